"""`longdoc-serve [check | predict]`, or `python -m service`: serve exports, check them, answer without a server."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import CliSettingsSource

from artifact.backends import require_one_runtime
from artifact.errors import BadExport
from artifact.loading import find_exports, load_export
from artifact.manifest import MANIFEST, is_version, newest_version
from service import log
from service.offline.files import InputError
from service.offline.predict import predict
from service.server import serve
from service.settings import Settings
from service.workers import supervise

PROGRAM = "longdoc-serve" if Path(sys.argv[0]).stem == "longdoc-serve" else "python -m service"
PREFIX = "LONGDOC_"
OTHERS = {"LONGDOC_DATA", "LONGDOC_IMAGE", "LONGDOC_PUBLISHED_PORT", "LONGDOC_MEMORY_LIMIT"}
"""Variables of training and of compose."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0, or 2 after one line on standard error."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    commands = {"check": _check, "predict": _predict}
    command = commands.get(given[0]) if given else None
    try:
        if command is not None:
            return command(given[1:])
        return _serve(given)
    except (BadExport, InputError) as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        print(f"error: {place}{error.strerror or error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 2


def _serve(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Serve exports over HTTP. Each flag is a variable too: --max-body-bytes is LONGDOC_MAX_BODY_BYTES.",
        epilog=f"{PROGRAM} check [EXPORTS] verifies exports; {PROGRAM} predict scores files. "
        "Both have a --help of their own.",
    )
    source = CliSettingsSource[argparse.ArgumentParser](
        Settings, root_parser=parser, cli_kebab_case=True, cli_implicit_flags=True, cli_hide_none_type=True
    )
    try:
        settings = Settings(_cli_settings_source=source(args=arguments))  # type: ignore[call-arg]  # not in the stubs
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=True)[0]
        name = ".".join(map(str, first["loc"]))
        given = "" if name == "api_keys" else f" = {first['input']!r}"  # keys are in no log
        raise InputError(f"setting {name}{given}: {first['msg']}") from None
    if settings.backend == "onnx":
        require_one_runtime()
    log.configure(settings.log_format)
    for name in sorted(os.environ):
        if (
            name.startswith(PREFIX)
            and name not in OTHERS
            and name.removeprefix(PREFIX).lower() not in Settings.model_fields
        ):
            logging.getLogger(__name__).warning("%s is no setting; docs/settings.md lists them", name)
    return supervise(settings) if settings.workers > 1 else serve(settings)


def _check(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"{PROGRAM} check", description="Verify hashes and golden outputs.")
    parser.add_argument("exports", nargs="?", default=Path("exports"), type=Path, help="default: %(default)s")
    parser.add_argument("--backend", choices=["onnx", "torchscript"], default="onnx")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    args = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    is_one = (args.exports / MANIFEST).is_file() or any(map(is_version, args.exports.glob("*")))
    folders = [newest_version(args.exports)] if is_one else find_exports(args.exports)
    for folder in folders:
        model = load_export(folder, format=args.backend, device=args.device)
        manifest = model.manifest
        print(f"{manifest.name:<24} {manifest.version:>4}  {manifest.task}  ok in {model.load_seconds:.2f} s")
    return 0


def _predict(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} predict",
        description="Answer files without a server; one JSON line an input on standard output.",
    )
    parser.add_argument("export", type=Path, help="an export's folder: exports/NAME or exports/NAME/VERSION")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="documents; CSV files for a forecaster")
    parser.add_argument("--jsonl", type=Path, help="documents in the field `text` of each line; pairs in `a` and `b`")
    parser.add_argument("--csv", type=Path, help="documents in the column `text`; pairs in `a` and `b`; or a series")
    parser.add_argument("--on-overflow", choices=["windows", "head", "tail", "head_tail", "error"], default="windows")
    parser.add_argument("--detail", action="store_true", help="add the scores of each window")
    parser.add_argument("--horizon", type=_positive, help="steps to forecast (default: all the model can)")
    parser.add_argument("--quantiles", type=float, nargs="*", default=[], help="levels of a forecast's error bands")
    args = parser.parse_args(arguments)
    sources = [bool(args.files), args.jsonl is not None, args.csv is not None]
    if sum(sources) != 1:
        parser.error("give files, or --jsonl, or --csv")
    return predict(args)


def _positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"not a positive integer: {text[:40]!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
