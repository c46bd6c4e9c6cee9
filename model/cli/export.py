"""`python -m model export`: export a run to exports/<name>/<version>/ and check every backend."""

import argparse
from pathlib import Path

from artifact.defaults import DEFAULTS
from model.cli.arguments import add_held_out_arguments, add_shared_arguments, files_of
from model.cli.results import print_results
from model.export.export import ExportRequest, export_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `export`."""
    add_shared_arguments(parser)
    add_held_out_arguments(parser)
    parser.add_argument("run_folder", metavar="RUN", help="folder of the run")
    parser.add_argument("--out", default="exports", help="folder of the exports (default: %(default)s)")
    parser.add_argument(
        "--float16", action="store_true", help="also export encoder blocks in float16, for LONGDOC_PRECISION"
    )


def run(args: argparse.Namespace) -> Path:
    """Export a run's best checkpoint as the next version, and print what was measured; returns the version folder.

    Raises: UserError, BadExport, ExportMismatch.
    """
    request = ExportRequest(
        Path(args.run_folder), files_of(args), Path(args.out), args.device, has_float16=args.float16
    )
    exported = export_run(request)
    manifest = exported.manifest
    print_results(manifest.results, exported.notes)
    if manifest.float16 is not None:
        print("in float16:")
        print_results(manifest.float16.results)
    print(f"exported {exported.folder}")
    if exported.warning:
        print(exported.warning)
    if exported.is_default:
        place = request.out / DEFAULTS
        print(f"{place}: {manifest.name} is the default model for requests without a model name")
    return exported.folder
