"""Inputs -> results, without a server: what `predict` and `batch` share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, get_args

from artifact.documents import OnOverflow
from artifact.encodings import RAW
from artifact.errors import InputError, InvalidInput, LongdocError
from artifact.local import Model, Result
from artifact.manifest import ClassifierManifest, ForecasterManifest, Manifest, MatcherManifest
from artifact.tables.reading import Field, Source, Values
from artifact.tables.table import BadRow

CHUNK = 64
"""Inputs computed together."""
Task = Literal["classify", "score", "rank", "forecast"]
Compute = Callable[[Sequence[Any]], list[Result]]
"""Values of rows -> results; raises LongdocError if a row is invalid."""
FIELDS: dict[Task, tuple[Field, ...]] = {
    "classify": (Field("text"),),
    "score": (Field("a"), Field("b")),
    "rank": (Field("query"), Field("documents", "a list of strings")),
    "forecast": (Field("series", "a series"),),
}
"""What a row of each task holds."""


@dataclass(frozen=True)
class Options:
    """Options of the results; None means the model's default, or all."""

    text_column: tuple[str, ...] = ()
    """Other names of the fields of a row."""
    encoding: str = ""
    """Codec of texts without a byte order mark; by default UTF-8, or UTF-16 and UTF-32 by their zero bytes."""
    on_overflow: OnOverflow = "windows"
    detail: bool = False
    top: int | None = None
    """Number of scores of a classification, or of documents of a ranking."""
    horizon: int | None = None
    quantiles: tuple[float, ...] = ()


def choose_task(manifest: Manifest, asked: str | None = None) -> Task:
    """The task of a model, or the one asked for. Raises: InputError if the model has another one."""
    if isinstance(manifest, ClassifierManifest):
        known: tuple[Task, ...] = ("classify",)
    else:
        known = ("score", "rank") if isinstance(manifest, MatcherManifest) else ("forecast",)
    for task in known:
        if asked in (None, task):
            return task
    raise InputError(f"--task {asked}: {manifest.name} can {' or '.join(known)}")


def choose_fields(task: Task, options: Options, name: str) -> tuple[Field, ...]:
    """Fields of a row, named by --text-column if it is given. Raises: InputError if their numbers differ."""
    fields = FIELDS[task]
    names = options.text_column or tuple(field.name for field in fields)
    if len(names) != len(fields):
        raise InputError(f"--text-column: {name} needs {len(fields)}, not {len(names)}: {' '.join(names)}")
    return tuple(field._replace(name=given) for field, given in zip(fields, names, strict=True))


def choose_encoding(manifest: Manifest, options: Options) -> str:
    """Encoding in which files are read: the one that is asked for; a model of bytes reads documents as they are."""
    reads_text = isinstance(manifest, ForecasterManifest) or manifest.reads_text
    return options.encoding if reads_text else RAW


def prepare(model: Model, task: Task, fields: Sequence[Field], options: Options) -> Compute:
    """The function that computes the results of a task. Raises: InputError for an option that the model does not allow.

    Args:
        model: a model that has the task.
        task: what is computed.
        fields: fields of a row; errors name them.
        options: options of the results.

    """
    on_overflow = options.on_overflow
    if task == "forecast":
        try:
            model.check_forecast(options.horizon, options.quantiles)
        except InvalidInput as error:
            raise InputError(f"--{error}") from None
        return lambda rows: [
            model.forecast(series, horizon=options.horizon, quantiles=options.quantiles) for (series,) in rows
        ]
    if task == "classify":
        return lambda rows: model.classify(
            [text for (text,) in rows], top_k=options.top, on_overflow=on_overflow, detail=options.detail
        )
    names = [field.name for field in fields]
    if task == "score":
        return _renamed(lambda rows: model.score(rows, on_overflow=on_overflow), ("pairs.0.0", "pairs.0.1"), names)
    return _renamed(
        lambda rows: [
            {"results": model.rank(query, documents, top_n=options.top, on_overflow=on_overflow)}
            for query, documents in rows
        ],
        ("query", "documents"),
        names,
    )


def _renamed(compute: Compute, places: Sequence[str], names: Sequence[str]) -> Compute:
    """Name fields, not the arguments of the model, in the error of a single row."""

    def rename(place: str) -> str:
        for prefix, name in zip(places, names, strict=True):
            if place == prefix or place.startswith(f"{prefix}."):
                return name + place.removeprefix(prefix)
        return place

    def renamed(rows: Sequence[Any]) -> list[Result]:
        try:
            return compute(rows)
        except InvalidInput as error:
            raise error.renamed(rename) from None

    return renamed


def results(rows: Iterable[Source[Values | BadRow]], compute: Compute) -> Iterator[Source[Result]]:
    """Location and result of each row, in order; that of a bad row is its error. A missing text is an empty one."""
    found = iter(rows)
    while chunk := list(islice(found, CHUNK)):
        good = [[b"" if value is None else value for value in row] for _, row in chunk if not isinstance(row, BadRow)]
        computed = iter(compute_each(compute, good))
        for place, row in chunk:
            yield place, failure("invalid_input", row.reason) if isinstance(row, BadRow) else next(computed)


def compute_each(compute: Compute, rows: Sequence[Sequence[Any]]) -> list[Result]:
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


def failure(code: str, detail: str) -> Result:
    """The result of a row without one."""
    return {"error": {"code": code, "detail": detail}}


TASKS: tuple[Task, ...] = get_args(Task)
