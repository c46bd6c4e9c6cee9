"""`python -m model evaluate`: evaluate on the test split, which is used for nothing else, or on held-out data."""

import argparse
from pathlib import Path

from model.cli.arguments import add_shared_arguments, files_of, path_argument
from model.cli.results import print_results
from model.runs.evaluate import EvaluationRequest, evaluate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate`."""
    add_shared_arguments(parser)
    parser.add_argument("folder", help="a run folder, or an export below exports/")
    parser.add_argument("--out", help="JSON file for the results of an export (default: in the current folder)")
    parser.add_argument(
        "--report",
        type=path_argument,
        metavar="FILE",
        help="also write a report as one HTML file, and the answer to each example as CSV beside it",
    )
    parser.add_argument("--precision", default="float32", choices=["float32", "float16"], help="precision of an export")


def run(args: argparse.Namespace) -> None:
    """Evaluate a run or an export; print a table. Raises: BadExport, UserError."""
    out = Path(args.out) if args.out else None
    request = EvaluationRequest(Path(args.folder), files_of(args), args.device, args.precision, out, args.report)
    found = evaluate(request)
    if found.source:
        print(found.source)
    print_results(found.results, found.notes, found.stated)
    if found.warning:
        print(found.warning)
    print(f"written to {found.written}")
    if found.report:
        print(f"report: {found.report}")
