"""Inputs -> results, without a server: what `predict` and `batch` share."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from artifact.documents import OnOverflow
from artifact.encodings import RAW
from artifact.errors import InputError, InvalidInput, LongdocError
from artifact.local import Json, Model
from artifact.tables.reading import Field, Source, Values
from artifact.tables.table import BadRow
from artifact.tasks.base import Task
from artifact.tasks.series_classification import SeriesClassification

T = TypeVar("T")

CHUNK = 64
"""Inputs computed together."""
Predict = Callable[[Sequence[Any]], list[Json]]
"""Values of rows -> results; raises LongdocError if a row is invalid."""


@dataclass(frozen=True)
class PredictOptions:
    """Options of the results; None means the model's default, or all."""

    text_column: tuple[str, ...] = ()
    """Other names of the fields of a row."""
    encoding: str = ""
    """Codec of texts without a byte order mark; by default UTF-8, or UTF-16 and UTF-32 by their zero bytes."""
    on_overflow: OnOverflow = "windows"
    detail: bool = False
    top: int | None = None
    """Number of scores of a classification, or of documents of a ranking."""
    rate: float | None = None
    """Steps per second of recordings, if they are to be resampled to the rate of the model."""
    horizon: int | None = None
    quantiles: tuple[float, ...] = ()
    season: tuple[int, ...] | None = None
    """Of any series; None: to be found."""
    non_negative: bool = False
    """Whether forecasts below 0 become 0."""


@dataclass(frozen=True)
class Operation:
    """What is computed for each row of a file."""

    fields: tuple[Field, ...]
    """What a row holds."""
    columns: Mapping[str, type]
    """What a result holds; lists and objects are strings of JSON in CSV and Parquet."""
    run: Callable[[Model, Sequence[Any], PredictOptions], list[Json]]
    """Values of rows -> results."""
    check: Callable[[Model, PredictOptions], object] = lambda *_: None
    """Raises InvalidInput for an option that the model does not allow."""
    places: tuple[str, ...] = ()
    """Location of each field in errors of `run` for a single row, which then name the field."""


def _classify(model: Model, rows: Sequence[Any], options: PredictOptions) -> list[Json]:
    """Labels of documents or recordings; a recording may also be a list of its channels, which is sent alone."""
    inputs = [content for (content,) in rows]
    classify: Callable[[Any], Any] = functools.partial(
        model.classify,
        top_k=options.top,
        on_overflow=options.on_overflow,
        detail=options.detail,
        rate=options.rate,
    )
    if len(inputs) > 1 and not any(isinstance(content, list) for content in inputs):
        together: list[Json] = classify(inputs)
        return together
    found = [classify(content) for content in inputs]
    if any(isinstance(result, list) for result in found):
        raise InvalidInput.at("series", "must be one recording, not a list of several")
    return found


def _check_rate(model: Model, options: PredictOptions) -> None:
    """Raise InvalidInput if the model does not know the rate of its recordings."""
    if options.rate is not None and getattr(model.manifest, "rate", None) is None:
        raise InvalidInput.at("rate", f"{model.manifest.name} has no rate; leave it out")


OPERATIONS = {
    "classify": Operation(
        (Field("text"),),
        {"label": str, "score": float, **dict.fromkeys(("labels", "scores", "coverage", "windows", "stretches"), str)},
        _classify,
        places=("inputs.0",),
        check=_check_rate,
    ),
    "score": Operation(
        (Field("a"), Field("b")),
        {"score": float, "coverage": str},
        lambda model, rows, options: model.score(rows, on_overflow=options.on_overflow),
        places=("pairs.0.0", "pairs.0.1"),
    ),
    "rank": Operation(
        (Field("query"), Field("documents", "a list of strings")),
        {"results": str},
        lambda model, rows, options: [
            {"results": model.rank(query, documents, top_n=options.top, on_overflow=options.on_overflow)}
            for query, documents in rows
        ],
        places=("query", "documents"),
    ),
    "forecast": Operation(
        (Field("series", "a series"),),
        {"forecast": str, "quantiles": str, "quantiles_reliable": bool, "coverage": str},
        lambda model, rows, options: [
            model.forecast(
                series,
                horizon=options.horizon,
                quantiles=options.quantiles,
                season=options.season,
                non_negative=options.non_negative,
            )
            for (series,) in rows
        ],
        check=lambda model, options: model.forecast_options(
            options.horizon, options.quantiles, options.season, non_negative=options.non_negative
        ),
    ),
}
"""The operations of all tasks, by name."""
RECORDING = (Field("series", "a series"),)
"""What a row holds for a classifier of series, instead of the fields of `classify`."""


def choose_operation(task: Task, asked: str | None = None) -> str:
    """What to compute: the first operation of a task, or the one asked for. Raises: InputError if it has none."""
    if asked is None or asked in task.operations:
        return asked or task.operations[0]
    raise InputError(f"--task {asked}: {task.manifest.name} can {' or '.join(task.operations)}")


def choose_fields(operation: str, options: PredictOptions, task: Task) -> tuple[Field, ...]:
    """Fields of a row, named by --text-column if it is given. Raises: InputError if their numbers differ."""
    fields = RECORDING if isinstance(task, SeriesClassification) else OPERATIONS[operation].fields
    names = options.text_column or tuple(field.name for field in fields)
    if len(names) != len(fields):
        wrong = f"not {len(names)}: {' '.join(names)}"
        raise InputError(f"--text-column: {task.manifest.name} needs {len(fields)}, {wrong}")
    return tuple(field._replace(name=given) for field, given in zip(fields, names, strict=True))


def choose_encoding(task: Task, options: PredictOptions) -> str:
    """Encoding in which files are read: the one that is asked for; a model of bytes reads documents as they are."""
    return options.encoding if task.manifest.reads_text else RAW


def prepare(model: Model, operation: str, fields: Sequence[Field], options: PredictOptions) -> Predict:
    """The function that computes an operation. Raises: InputError for an option that the model does not allow.

    Args:
        model: a model whose task has the operation.
        operation: what is computed.
        fields: fields of a row; errors name them.
        options: options of the results.

    """
    chosen = OPERATIONS[operation]
    try:
        chosen.check(model, options)
    except InvalidInput as error:
        raise InputError(f"--{error}") from None

    def rename(place: str) -> str:
        for prefix, field in zip(chosen.places, fields, strict=False):
            if place == prefix or place.startswith(f"{prefix}."):
                return field.name + place.removeprefix(prefix)
        return place

    def compute(rows: Sequence[Any]) -> list[Json]:
        try:
            return chosen.run(model, rows, options)
        except InvalidInput as error:
            raise (error.renamed(rename) if chosen.places else error) from None

    return compute


def results(rows: Iterable[Source[Values | BadRow]], compute: Predict) -> Iterator[Source[Json]]:
    """Location and result of each row, in order; that of a bad row is its error. A missing text is an empty one.

    While rows are computed in a thread, the caller uses the results before them, and the next rows are read. If they
    cannot be read, the error is raised after the results of all rows before it.
    """
    found, computing = iter(rows), None
    thread = ThreadPoolExecutor(1, "predict")
    try:
        error: Exception | None = None
        while error is None:
            chunk, error = _read(found)
            before, computing = computing, thread.submit(_results_of, chunk, compute)
            yield from before.result() if before else ()
        yield from computing.result() if computing else ()
        if not isinstance(error, StopIteration):
            raise error
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


def _read(rows: Iterator[T]) -> tuple[list[T], Exception | None]:
    """The next CHUNK rows; or those that are left, and why there are no more."""
    chunk = list[T]()
    try:
        while len(chunk) < CHUNK:
            chunk.append(next(rows))
    except Exception as error:  # StopIteration at the end
        return chunk, error
    return chunk, None


def _results_of(rows: Sequence[Source[Values | BadRow]], compute: Predict) -> list[Source[Json]]:
    """As `results`, all at once."""
    good = [[b"" if value is None else value for value in row] for _, row in rows if not isinstance(row, BadRow)]
    computed = iter(compute_each(compute, good))
    return [
        (place, failure("invalid_input", row.reason) if isinstance(row, BadRow) else next(computed))
        for place, row in rows
    ]


def compute_each(compute: Predict, rows: Sequence[Sequence[Any]]) -> list[Json]:
    """Results of all rows; if one of them is invalid, each half is computed on its own, until the row is found."""
    if not rows:
        return []
    try:
        return compute(rows)
    except LongdocError as error:
        if len(rows) == 1:
            return [failure(error.code, str(error))]
        middle = len(rows) // 2
        return compute_each(compute, rows[:middle]) + compute_each(compute, rows[middle:])


def failure(code: str, detail: str) -> Json:
    """The result of a row without one."""
    return {"error": {"code": code, "detail": detail}}
