"""`python -m model train | evaluate | export`: the commands that make what `service` serves."""

import argparse
import os
import sys

from artifact.errors import BadExport
from model.cli.evaluate import evaluate
from model.cli.export import export
from model.cli.train import train
from model.config.run import RUNS
from model.errors import UserError


def main() -> int:
    """Parse arguments, run a command; 0, or 2 after one line on stderr, or 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m model", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), help="where the data sets lie")
    shared.add_argument("--data", metavar="PATH", help="a file or folder of your own, instead of a data set")
    shared.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])

    command = commands.add_parser("train", parents=[shared], help="recipe -> run folder")
    command.add_argument(
        "recipe",
        nargs="?",
        help="a .toml file, or the name of one in model/recipes (default: that of the task)",
    )
    command.add_argument("--task", choices=list(RUNS), help="take this task's default recipe")
    command.add_argument("--text-column", nargs="+", help="of --data (default: text; for pairs: text_a text_b)")
    command.add_argument("--label-column", default="label", help="of --data (default: %(default)s)")
    command.add_argument("--time-column", default="", help="of --data (default: its first column)")
    command.add_argument("--set", action="append", metavar="KEY=VALUE", help="override one key of the recipe")
    command.add_argument("--runs", default="runs", help="folder of run folders (default: %(default)s)")
    command.add_argument("--resume", action="store_true", help="go on from the run's last checkpoint")
    command.set_defaults(run=train)

    command = commands.add_parser("evaluate", parents=[shared], help="measure on the test split")
    command.add_argument("folder", help="a run folder, or an export below exports/")
    command.add_argument("--out", help="JSON file to write for an export (default: in the current folder)")
    command.set_defaults(run=evaluate)

    command = commands.add_parser("export", parents=[shared], help="run folder -> exports/<name>/<version>/")
    command.add_argument("run_folder", metavar="RUN", help="a run folder")
    command.add_argument("--out", default="exports", help="folder of exports (default: %(default)s)")
    command.set_defaults(run=export)

    args = parser.parse_args()
    try:
        args.run(args)
    except (UserError, BadExport, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; --resume goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
