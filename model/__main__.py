"""`python -m model COMMAND`: train, evaluate and export the models that `service` serves."""

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from artifact.errors import BadExport
from model.errors import UserError

COMMANDS = {
    "train": "train a recipe into a run folder",
    "evaluate": "evaluate a run or an export on the test split",
    "export": "export a run to exports/<name>/<version>/",
    "card": "write the card of an export, its README.md, from its manifest",
    "runs": "list runs with their data, results and differences",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default from sys.argv; returns 0, 2 after an error (one line on stderr), 130 after Ctrl-C.

    As a program it ends in the same way after SIGTERM, so that an export leaves no files behind.
    """
    program = Path(sys.argv[0]).name
    parser = argparse.ArgumentParser(
        prog="python -m model" if program == "__main__.py" else program, description=__doc__
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    try:
        modules = {name: importlib.import_module(f"model.cli.{name}") for name in COMMANDS}
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is not installed; install the extra `train`", file=sys.stderr)
        return 2
    for name, module in modules.items():
        command = commands.add_parser(name, help=COMMANDS[name])
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    args = parser.parse_args(arguments)
    try:
        args.run(args)
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is not installed; install the extra `train`", file=sys.stderr)
        return 2
    except (UserError, BadExport, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print("; ".join(("interrupted", *error.args)), file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
