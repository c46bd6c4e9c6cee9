"""`python -m model evaluate`: evaluate on the test split, which is used for nothing else, or on held-out data."""

import argparse
from dataclasses import replace
from pathlib import Path

from model.cli.arguments import add_shared_arguments, encoding_argument, files_of, page_argument
from model.cli.results import print_results
from model.errors import UserError
from model.runs.evaluate import EvaluationRequest, evaluate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate`."""
    add_shared_arguments(parser)
    parser.add_argument("folder", help="a run folder, or an export below exports/")
    parser.add_argument("--out", help="JSON file for the results of an export (default: in the current folder)")
    parser.add_argument(
        "--report",
        type=page_argument,
        metavar="FILE",
        help="also write a report as one HTML file, and the answer to each example as CSV beside it",
    )
    parser.add_argument(
        "--encoding",
        type=encoding_argument,
        default="",
        metavar="NAME",
        help="encoding of texts in --data, such as utf-8 (default: that of training, or by a byte order mark)",
    )
    parser.add_argument("--precision", default="float32", choices=["float32", "float16"], help="precision of an export")


def run(args: argparse.Namespace) -> None:
    """Evaluate a run or an export; print a table. Raises: BadExport, UserError."""
    out, files = Path(args.out) if args.out else None, replace(files_of(args), encoding=args.encoding)
    if files.encoding and files.data is None:
        raise UserError("--encoding needs --data, your own file or folder")
    request = EvaluationRequest(Path(args.folder), files, args.device, args.precision, out, args.report)
    found = evaluate(request)
    if found.source:
        print(found.source)
    print_results(found.results, found.notes, found.stated)
    if found.warning:
        print(found.warning)
    print(f"written to {found.written}")
    if found.report:
        print(f"report: {found.report}")
