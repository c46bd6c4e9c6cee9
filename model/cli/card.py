"""`python -m model card`: write the card of an export, its README.md, from its manifest."""

import argparse
from pathlib import Path

from model.cli.arguments import path_argument
from model.export.card import write_card


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `card`."""
    parser.add_argument("folder", type=path_argument, metavar="EXPORT", help="an export below exports/")


def run(args: argparse.Namespace) -> Path:
    """Write the card and return its path. Raises: BadExport, UserError."""
    path = write_card(args.folder)
    print(f"written to {path}")
    return path
