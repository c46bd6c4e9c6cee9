"""Arguments that all commands have."""

import argparse
import os


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the data lie, and where to compute."""
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), help="where the data sets lie")
    parser.add_argument("--data", metavar="PATH", help="a file or folder of your own, instead of a data set")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
