"""`python -m service predict`: files -> JSON lines, by the same engine as the server. Called by `__main__`."""

import argparse
import asyncio
import csv
import json
import math
import sys
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from artifact.errors import InvalidInput, LongdocError
from artifact.loading import load_export
from artifact.manifest import newest_version
from service.engine.engine import Engine, ServedClassifier, ServedForecaster, ServedMatcher, ServedModel
from service.observe.metrics import Metrics
from service.routes import forecast as forecasting
from service.routes import matching
from service.settings import Settings
from service.tasks.classification import classify
from service.tasks.forecasting import check_channels, check_levels, choose_horizon, forecast
from service.tasks.matching import Text, score
from service.wire import responses as answering
from service.wire.schemas import ClassifyOptions

csv.field_size_limit(2**31 - 1)

CHUNK = 64
"""Documents, pairs or series that are under way at once."""
NO_DEADLINE_S = 1e6


class InputError(Exception):
    """A file or row that cannot be read; one line that names its place."""


Answer = Coroutine[Any, Any, dict[str, Any]]
Job = tuple[str, Callable[[float], Answer]]
"""Where an input stands, and what answers it before a deadline."""


def predict(args: argparse.Namespace) -> int:
    """Answer every input; a bad one becomes a line with its error, and the exit code is 1.

    Raises: BadExport; InputError for a file that cannot be read, or that the model's task has no use for.
    """
    loaded = load_export(newest_version(args.export))
    # A chunk of the longest documents must find room; the variables of the server have no say here.
    settings = Settings.model_construct(max_queue_rows=sys.maxsize, max_queue_bytes=sys.maxsize)
    engine = Engine([loaded], settings, Metrics())
    (model,) = engine.models.values()
    try:
        failed = asyncio.run(_predict(_jobs(model, args)))
    finally:
        engine.close()
    return 1 if failed else 0


async def _predict(jobs: Iterator[Job]) -> int:
    """Answer in chunks; returns the number of inputs that failed."""
    failed = 0
    deadline = asyncio.get_running_loop().time() + NO_DEADLINE_S
    with tqdm(unit="doc", file=sys.stderr) as bar:
        while chunk := list(islice(jobs, CHUNK)):
            answers = await asyncio.gather(*(answer(deadline) for _, answer in chunk), return_exceptions=True)
            for (place, _), result in zip(chunk, answers, strict=True):
                line: dict[str, object] = {"source": place}
                if isinstance(result, LongdocError):
                    failed += 1
                    line["error"] = {"code": result.code, "detail": str(result)}
                elif isinstance(result, BaseException):
                    raise result
                else:
                    line |= result
                print(json.dumps(line, ensure_ascii=False))
            bar.update(len(chunk))
    return failed


def _jobs(model: ServedModel, args: argparse.Namespace) -> Iterator[Job]:
    """Inputs of the source that was named, for the model's task."""
    if isinstance(model, ServedClassifier):
        return _classify_jobs(model, args)
    if isinstance(model, ServedMatcher):
        return _match_jobs(model, args)
    assert isinstance(model, ServedForecaster)
    return _forecast_jobs(model, args)


def _classify_jobs(model: ServedClassifier, args: argparse.Namespace) -> Iterator[Job]:
    """One a document."""
    options = ClassifyOptions(on_overflow=args.on_overflow, detail=args.detail)

    async def answer(document: bytes, deadline: float) -> dict[str, Any]:
        answers, _ = await classify(model, [document], on_overflow=args.on_overflow, deadline=deadline)
        return answering.describe(answers[0], model.manifest.labels, options)

    rows = ((str(path), (_read(path),)) for path in args.files) if args.files else _rows(args, ("text",))
    for place, (document,) in rows:
        yield place, lambda deadline, document=document: answer(document, deadline)  # type: ignore[misc]


def _match_jobs(model: ServedMatcher, args: argparse.Namespace) -> Iterator[Job]:
    """One a pair."""
    if args.files:
        raise InputError(f"{model.manifest.name} scores pairs: give --jsonl or --csv with the fields a and b")

    async def answer(a: bytes, b: bytes, deadline: float) -> dict[str, Any]:
        pair = (Text("a", a), Text("b", b))
        scores, encodings, _ = await score(model, [pair], on_overflow=args.on_overflow, deadline=deadline)
        return matching.describe(scores[0], encodings[0], args.on_overflow)

    for place, (a, b) in _rows(args, ("a", "b")):
        yield place, lambda deadline, a=a, b=b: answer(a, b, deadline)  # type: ignore[misc]


def _forecast_jobs(model: ServedForecaster, args: argparse.Namespace) -> Iterator[Job]:
    """One a file; columns that are no channels of the model are left out."""
    if args.jsonl is not None:
        raise InputError(f"{model.manifest.name} forecasts series: give CSV files with its channels as columns")
    names = model.manifest.channels
    try:
        horizon = choose_horizon(model, args.horizon)
        check_levels(model, args.quantiles)
    except InvalidInput as error:
        raise InputError(f"--{error}") from None

    async def answer(columns: dict[str, list[float | None]], deadline: float) -> dict[str, Any]:
        places = check_channels(model, list(columns), len(columns))
        values = list(columns.values())
        result, _ = await forecast(model, values, horizon=horizon, levels=args.quantiles, deadline=deadline)
        return forecasting.describe(result, list(columns), places, None, model.manifest.context_length)

    for path in args.files or [args.csv]:
        columns = _columns(path, names)
        yield str(path), lambda deadline, columns=columns: answer(columns, deadline)  # type: ignore[misc]


def _rows(args: argparse.Namespace, fields: tuple[str, ...]) -> Iterator[tuple[str, tuple[bytes, ...]]]:
    """Place and texts of each line or row."""
    return _jsonl(args.jsonl, fields) if args.jsonl is not None else _csv(args.csv, fields)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _jsonl(path: Path, fields: tuple[str, ...]) -> Iterator[tuple[str, tuple[bytes, ...]]]:
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{path}:{number}", _texts(line, f"{path}:{number}", fields)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _texts(line: bytes, place: str, fields: tuple[str, ...]) -> tuple[bytes, ...]:
    try:
        row = json.loads(line)
        return tuple(row[field].encode() for field in fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        known = " and ".join(f"`{field}`" for field in fields)
        raise InputError(f"{place}: expected a JSON object with a string {known}") from None


def _csv(path: Path, fields: tuple[str, ...]) -> Iterator[tuple[str, tuple[bytes, ...]]]:
    for place, row in _table(path, fields):
        yield place, tuple(row[field].encode() for field in fields)


def _columns(path: Path, names: tuple[str, ...]) -> dict[str, list[float | None]]:
    """The model's channels of a file, empty cells as None."""
    columns: dict[str, list[float | None]] = {name: [] for name in names}
    for place, row in _table(path, names):
        for name in names:
            cell = row[name].strip()
            columns[name].append(_number(cell, f"{place}: column {name}") if cell else None)
    return columns


def _number(cell: str, place: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise InputError(f"{place}: not a number: {cell[:40]!r}") from None
    if not math.isfinite(value):
        raise InputError(f"{place}: not a finite number: {cell[:40]!r}; leave the cell of a missing value empty")
    return value


def _table(path: Path, fields: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Place and cells of each row of a CSV file that has certain columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            header = next(reader, [])
            for field in fields:
                if header.count(field) != 1:
                    raise InputError(f"{path}:1: {'two columns' if field in header else 'no column'} `{field}`")
            for row in filter(None, reader):
                place = f"{path}:{reader.line_num}"
                if len(row) != len(header):
                    raise InputError(f"{place}: {len(row)} cells under {len(header)} columns")
                yield place, dict(zip(header, row, strict=True))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from None
