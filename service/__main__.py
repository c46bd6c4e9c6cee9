"""`longdoc-serve [check | predict | batch | ray]`, or `python -m service`: serve or check exports, predict offline."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_settings import CliSettingsSource

from artifact.backends import require_one_runtime
from artifact.defaults import DEFAULTS, read_defaults
from artifact.encodings import codec_of
from artifact.errors import BadExport, InputError
from artifact.exports import version_folder, versions_of
from artifact.loading import find_exports, find_versions, load_export
from artifact.manifest import MANIFEST
from artifact.series import Layout
from service import log
from service.engine.selection import unknown_defaults
from service.multiprocess import SHARED
from service.offline.compute import OPERATIONS, PredictOptions
from service.offline.predict import PredictFiles, predict
from service.server import serve
from service.settings import Settings
from service.workers import supervise

PROGRAM = "longdoc-serve" if Path(sys.argv[0]).stem == "longdoc-serve" else "python -m service"
PREFIX = "LONGDOC_"
S = TypeVar("S", bound=Settings)
NOT_SETTINGS = {
    "LONGDOC_BALANCER_IMAGE",
    "LONGDOC_BALANCER_PORT",
    "LONGDOC_DATA",
    "LONGDOC_IMAGE",
    "LONGDOC_MEMORY_LIMIT",
    "LONGDOC_PUBLISHED_GRPC_PORT",
    "LONGDOC_PUBLISHED_PORT",
    "LONGDOC_REVISION",
}
"""Variables of training and of Docker Compose, which are not settings of the server."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code. An error is printed as one line on standard error, and its code is 2."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    commands = {"check": _check, "predict": _predict, "batch": _batch, "ray": _ray}
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
    epilog = (
        f"{PROGRAM} check verifies exports; {PROGRAM} predict computes predictions for files; {PROGRAM} batch does so "
        f"for large files on a Ray cluster; {PROGRAM} ray serves on a Ray cluster. Each has its own --help."
    )
    settings = _settings(Settings, arguments, PROGRAM, "Serve exports over HTTP.", epilog)
    if settings.otlp_endpoint is not None:
        _check_tracing(settings)
    return supervise(settings) if settings.workers > 1 else serve(settings)


def _check_tracing(settings: Settings) -> None:
    """Raise BadExport before models are loaded if tracing is misconfigured."""
    from service.app import create_tracing  # not above: the server imports FastAPI while it loads models

    tracing = create_tracing(settings)
    assert tracing is not None
    tracing.close()


def _ray(arguments: list[str]) -> int:
    try:
        from service.scale.ray import RaySettings, run
    except ModuleNotFoundError as error:
        raise _missing("ray", error) from None
    return run(_settings(RaySettings, arguments, f"{PROGRAM} ray", "Serve exports on a Ray cluster, over HTTP."))


def _missing(command: str, error: ModuleNotFoundError) -> InputError:
    """The error of a command whose packages are not installed."""
    return InputError(f"{PROGRAM} {command} needs {error.name}, which is not installed; run pip install '.[ray]'")


def _settings(kind: type[S], arguments: list[str], program: str, description: str, epilog: str | None = None) -> S:
    """Parse the settings, check them and configure the log. Raises: BadExport, InputError."""
    parser = argparse.ArgumentParser(
        prog=program,
        description=f"{description} Every flag is also an environment variable: --max-body-bytes is "
        "LONGDOC_MAX_BODY_BYTES.",
        epilog=epilog,
    )
    source = CliSettingsSource[argparse.ArgumentParser](
        kind, root_parser=parser, cli_kebab_case=True, cli_implicit_flags=True, cli_hide_none_type=True
    )
    try:
        settings = kind(_cli_settings_source=source(args=arguments))  # type: ignore[call-arg]  # not in the stubs
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=True)[0]
        name, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        if not name:  # a combination of settings; the message names them
            raise InputError(f"settings: {message}") from None
        given = "" if name == "api_keys" else f" = {first['input']!r}"  # keys must not be logged
        raise InputError(f"setting {name}{given}: {message}") from None
    if settings.backend == "onnx":
        require_one_runtime()
    try:
        find_exports(settings.exports)
    except BadExport as error:
        hint = "give --exports FOLDER; `python -m model export RUN --out FOLDER` makes exports"
        raise BadExport(f"{error}; {hint}", error.reason) from None
    log.configure(settings.log_format)
    for name in (SHARED, SHARED.lower()):
        if os.environ.pop(name, None) is not None:
            logging.getLogger(__name__).warning("%s is ignored: workers share metrics in a folder of their own", name)
    for name in sorted(os.environ):
        if (
            name.startswith(PREFIX)
            and name not in NOT_SETTINGS
            and name.removeprefix(PREFIX).lower() not in kind.model_fields
        ):
            logging.getLogger(__name__).warning(
                "%s is not a setting; docs/operate/settings.md lists all settings", name
            )
    return settings


def _check(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} check",
        description="Load every version of every export and verify its hashes and golden outputs; verify that the "
        f"models in {DEFAULTS} exist.",
    )
    parser.add_argument(
        "exports",
        nargs="?",
        default=Path("exports"),
        type=Path,
        help="folder of exports, or of one model, or of one version; default: %(default)s",
    )
    parser.add_argument("--backend", choices=["onnx", "torchscript"], default="onnx")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument(
        "--precision", choices=["float32", "float16"], default="float32", help="precision of encoder blocks"
    )
    args = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    root: Path = args.exports
    folders, defaults = _exports(root)
    manifests = []
    for folder in folders:
        model = load_export(folder, format=args.backend, device=args.device, precision=args.precision)
        manifest = model.manifest
        manifests.append(manifest)
        what = f"{manifest.task}, {manifest.precision}"
        print(f"{manifest.name:<24} {manifest.version:>4}  {what}  ok in {model.load_seconds:.2f} s")
    if problems := "; ".join(unknown_defaults(defaults, manifests)):
        raise BadExport(f"{root / DEFAULTS}: {problems}", "missing")
    return 0


def _exports(root: Path) -> tuple[list[Path], dict[str, str]]:
    """Folder of each version in a folder of exports, of one model, or of one version; content of `defaults.json`."""
    if (root / MANIFEST).is_file():
        return [version_folder(root.absolute())], {}
    if root.is_dir() and (versions := versions_of(root.absolute())):
        return versions, {}
    found = find_versions(root)
    for error in found.unreadable.values():
        raise error
    return [folder for versions in found.versions.values() for folder in versions], read_defaults(root)


def _predict(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} predict",
        description="Compute predictions for files without a server; print a line of JSON per input. "
        "A forecaster of any series reads one table and prints the next steps as a table of the same layout.",
    )
    parser.add_argument(
        "export", type=Path, help="folder of an export: exports/NAME (the highest version) or exports/NAME/VERSION"
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="a document, or many in .csv, .tsv, .jsonl (also .gz, .xz) or .parquet; - is standard input; or a series; "
        "or recordings in such tables, .ts files or folders",
    )
    parser.add_argument(
        "--jsonl",
        type=Path,
        help="documents in the field `text` of each line, recordings in `series`, pairs in `a` and `b`; - is standard "
        "input",
    )
    parser.add_argument("--csv", type=Path, help="documents in the column `text`, pairs in `a` and `b`, or a series")
    _add_options(parser)
    _add_layout(parser)
    args = parser.parse_args(arguments)
    sources = [bool(args.files), args.jsonl is not None, args.csv is not None]
    if sum(sources) != 1:
        parser.error("give files, or --jsonl, or --csv")
    return predict(args.export, PredictFiles(args.files, args.jsonl, args.csv, _layout(args)), _options(args))


def _batch(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} batch",
        description="Compute predictions for files of any size on a Ray cluster, or on this machine. The same command "
        "continues after an interruption. The exit code is 1 if any row was bad.",
    )
    parser.add_argument(
        "export", type=Path, help="folder of an export, under the same path on every node: exports/NAME[/VERSION]"
    )
    parser.add_argument(
        "--input",
        nargs="+",
        required=True,
        metavar="FILE",
        help="files or patterns such as 's3://bucket/*.parquet': .parquet, or .jsonl, .csv or .tsv (also .gz, .xz)",
    )
    parser.add_argument("--output", required=True, metavar="FOLDER", help="new folder, also in an object store")
    parser.add_argument("--task", choices=OPERATIONS, help="default: what the model does; a matcher scores")
    parser.add_argument(
        "--format", choices=["jsonl", "csv", "parquet"], default="jsonl", help="of the output; default: %(default)s"
    )
    parser.add_argument("--workers", type=_positive, help="cores that compute; default: all of the cluster")
    _add_options(parser)
    args = parser.parse_args(arguments)
    try:
        from service.scale.batch import batch
    except ModuleNotFoundError as error:
        raise _missing("batch", error) from None
    return batch(args.export, args.input, args.output, args.task, args.format, args.workers, _options(args))


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the results."""
    parser.add_argument("--text-column", nargs="+", metavar="NAME", help="other names of these columns or fields")
    parser.add_argument(
        "--encoding",
        type=_codec,
        default="",
        metavar="NAME",
        help="encoding of the files, such as cp1252; default: UTF-8, or by a byte order mark",
    )
    parser.add_argument(
        "--on-overflow",
        choices=["windows", "head", "tail", "head_tail", "error"],
        default="windows",
        help="how inputs longer than the model's length are read; default: %(default)s",
    )
    parser.add_argument(
        "--detail", action="store_true", help="add the contributions of each stretch, and the scores of each window"
    )
    parser.add_argument(
        "--top", type=_positive, help="scores of a classification, or documents of a ranking, to return"
    )
    parser.add_argument(
        "--rate", type=float, help="steps per second of recordings to classify; default: by their times, or the model's"
    )
    parser.add_argument(
        "--horizon", type=_positive, help="steps to forecast; default: the model's horizon, or of any series a season"
    )
    parser.add_argument("--quantiles", type=float, nargs="*", default=[], help="quantile levels of a forecast")
    parser.add_argument(
        "--season",
        type=_positive,
        nargs="+",
        metavar="STEPS",
        help="of any series: steps of its season, or of two; default: by the time stamps, or else by the values",
    )
    parser.add_argument("--non-negative", action="store_true", help="forecast 0 instead of values below")


def _add_layout(parser: argparse.ArgumentParser) -> None:
    """Add the options of tables of series, by default those of the training data."""
    for name, what in (
        ("--time-column", "time column"),
        ("--id-column", "column with the name of each row's series, in a long table"),
        ("--target-column", "column with the values of a long table"),
    ):
        parser.add_argument(
            name,
            default="",
            metavar="NAME",
            help=f"{what} of a series; default: as in training, of recordings by the names",
        )
    parser.add_argument(
        "--day-first", action="store_true", help="read the day first in dates of a series such as 31/12/2024"
    )
    parser.add_argument(
        "--frequency",
        default="",
        help="of any series: time between two values, such as 1mo, or irregular; default: that of the time column",
    )


def _layout(args: argparse.Namespace) -> Layout:
    return Layout(
        time_column=args.time_column,
        id_column=args.id_column,
        target_column=args.target_column,
        day_first=args.day_first,
        frequency=args.frequency,
    )


def _options(args: argparse.Namespace) -> PredictOptions:
    return PredictOptions(
        text_column=tuple(args.text_column or ()),
        encoding=args.encoding,
        on_overflow=args.on_overflow,
        detail=args.detail,
        top=args.top,
        rate=args.rate,
        horizon=args.horizon,
        quantiles=tuple(args.quantiles),
        season=None if args.season is None else tuple(args.season),
        non_negative=args.non_negative,
    )


def _codec(text: str) -> str:
    """Parse the name of an encoding."""
    codec = codec_of(text)
    if text and not codec:
        raise argparse.ArgumentTypeError(f"unknown: {text[:40]!r}; name one such as utf-16, latin-1 or cp1252")
    return codec


def _positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"not a positive integer: {text[:40]!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
