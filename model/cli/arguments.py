"""Command-line arguments shared by all commands."""

import argparse
import os
from pathlib import Path

from artifact.encodings import codec_of
from model.data.own import DataFiles
from model.errors import UserError

PAGES = (".html", ".htm")
"""Extensions of pages."""


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --data-dir, --data and --device."""
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), help="folder of the data sets")
    parser.add_argument(
        "--data", type=path_argument, metavar="PATH", help="your own file or folder, instead of a data set"
    )
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])


def path_argument(text: str) -> Path:
    """Type of arguments that name a file or folder. Raises: ArgumentTypeError if it is empty."""
    if not text:
        raise argparse.ArgumentTypeError("expected the path of a file or folder, not an empty string")
    return Path(text)


def page_argument(text: str) -> Path:
    """Type of arguments that name a page to write, which replaces no other file. Raises: ArgumentTypeError."""
    if (path := path_argument(text)).suffix.lower() not in PAGES:
        raise argparse.ArgumentTypeError(f"expected a file that ends in {' or '.join(PAGES)}, not {text!r}")
    return path


def encoding_argument(text: str) -> str:
    """Type of arguments that name an encoding: its codec. Raises: ArgumentTypeError if it is unknown."""
    codec = codec_of(text)
    if text and not codec:
        raise argparse.ArgumentTypeError(f"unknown: {text!r}; name one such as utf-16, latin-1 or cp1252")
    return codec


def add_held_out_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --validation and --test."""
    for name in ("validation", "test"):
        parser.add_argument(
            f"--{name}", type=path_argument, metavar="PATH", help=f"{name} split of --data (default: a part of it)"
        )


def files_of(args: argparse.Namespace) -> DataFiles:
    """The files of the arguments. Raises: UserError for --validation and --test without --data."""
    validation, test = (getattr(args, name, None) for name in ("validation", "test"))
    if args.data is None and (validation or test):
        raise UserError("--validation and --test need --data, the training file")
    unlabelled, series = getattr(args, "unlabelled", None), getattr(args, "series", ())
    return DataFiles(Path(args.data_dir), args.data, validation, test, unlabelled, tuple(series))
