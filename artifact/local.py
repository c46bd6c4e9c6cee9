"""In-process models, returned by `artifact.load`.

They give the same answers as the server and run batches on all cores.
"""

import dataclasses
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Integral, Real
from typing import Any, TypeVar, get_args, overload

import numpy as np
from typing_extensions import TypeIs

from artifact.arrays import Array, Floats
from artifact.backends.base import BATCH_ROWS, batches_at_once
from artifact.documents import OnOverflow
from artifact.errors import InferenceFailed, InvalidInput, NonFiniteOutput
from artifact.loading import LoadedModel
from artifact.manifest import ExportManifest
from artifact.series import Column, Tails, parse_frequency
from artifact.tasks.any_series import AnySeries
from artifact.tasks.base import Answer, Computation, RunModel, Task, advance
from artifact.tasks.classification import Classification
from artifact.tasks.forecaster import Forecaster, ForecastOptions
from artifact.tasks.labels import ResultOptions
from artifact.tasks.matching import LocatedText, Matching
from artifact.tasks.series_classification import SeriesClassification

Document = str | bytes | bytearray | memoryview
"""Text, encoded as UTF-8, or raw bytes."""
Values = Column | Array
"""Values of a series."""
Named = Mapping[str, Values]
"""Values of each channel by its name."""
Json = dict[str, Any]
"""An answer with the same keys as the server's JSON."""

SERIES = "a mapping from channels to values, or a sequence with the values of each channel"
"""What a series may be, for error messages."""

PART_BYTES = 2048
"""Rows are split among threads only into batches of at least this size."""

T = TypeVar("T")
K = TypeVar("K", bound=Task)


class Model:
    """A loaded export of any task. Thread-safe; methods of other tasks raise InvalidInput.

    Args:
        loaded: the export.
        threads: number of batches computed at the same time; None means one on each core, and as many as a GPU needs.

    """

    def __init__(self, loaded: LoadedModel, threads: int | None = None) -> None:
        self._loaded = loaded
        self._threads = threads or batches_at_once(loaded.backend.device)
        self._batch_rows = BATCH_ROWS[loaded.backend.device]
        self._pools: dict[int, ThreadPoolExecutor] = {}
        """Thread pool by process id: threads do not survive a fork."""

    @property
    def manifest(self) -> ExportManifest:
        """The export's manifest: labels or channels, limits, measured results, terms of use."""
        return self._loaded.manifest

    @overload
    def classify(  # type: ignore[overload-overlap]  # a str is also a Sequence[str]; the first overload applies
        self,
        documents: Document | Named,
        *,
        top_k: int | None = ...,
        on_overflow: OnOverflow = ...,
        detail: bool = ...,
        rate: float | None = ...,
    ) -> Json: ...

    @overload
    def classify(
        self,
        documents: Sequence[Document] | Sequence[Named],
        *,
        top_k: int | None = ...,
        on_overflow: OnOverflow = ...,
        detail: bool = ...,
        rate: float | None = ...,
    ) -> list[Json]: ...

    @overload
    def classify(
        self,
        documents: Sequence[Sequence[float | None]] | Values,
        *,
        top_k: int | None = ...,
        on_overflow: OnOverflow = ...,
        detail: bool = ...,
        rate: float | None = ...,
    ) -> Json: ...

    def classify(
        self,
        documents: Document | Sequence[Document] | Named | Sequence[Named] | Sequence[Values] | Values,
        *,
        top_k: int | None = None,
        on_overflow: OnOverflow = "windows",
        detail: bool = False,
        rate: float | None = None,
    ) -> Json | list[Json]:
        """Classify one document or recording, or several: returns label, scores and coverage (how much was read).

        Args:
            documents: documents of any length; or for a classifier of series a recording of any length: values of each
                channel, the oldest first, None for a missing one, by name or in the order of `manifest.channels`, or
                the values of the only channel. Several recordings are a list of mappings; their lengths may differ.
            top_k: number of scores to return, best first; None, or a number above the number of labels, returns all.
            on_overflow: how to read inputs longer than the model reads.
            detail: whether to return the contributions of each stretch, and of documents the scores of each window.
            rate: steps per second of the recordings, which are then resampled to the rate of the model.

        Raises: InvalidInput, InferenceFailed, NonFiniteOutput.

        """
        options = ResultOptions(top_k, on_overflow, detail)
        if isinstance(self.task, SeriesClassification):
            return self._classify_series(self.task, documents, options, rate)
        if _is_document(documents):
            return self._classify_documents([documents], options, rate)[0]
        return self._classify_documents(documents, options, rate)

    def _classify_documents(self, documents: Any, options: ResultOptions, rate: float | None) -> list[Json]:
        """Classify documents. Raises: as `classify`."""
        task = self._task(Classification, "classify documents")
        if isinstance(documents, Mapping):
            self._task(SeriesClassification, "classify series")  # raises
        _check_options(options)
        if rate is not None:
            raise InvalidInput.at("rate", f"{self.manifest.name} classifies texts, which have no rate; leave it out")
        _check_sequence("inputs", documents, "a document (str or bytes) or a sequence of documents")
        encoded = [_to_bytes(f"inputs.{i}", document) for i, document in enumerate(documents)]
        return [result.as_json(options) for result in self._run(task.classify(encoded, options.on_overflow))]

    def _classify_series(
        self, task: SeriesClassification, series: Any, options: ResultOptions, rate: float | None
    ) -> Json | list[Json]:
        """Classify a recording, or several if they are a list of mappings. Raises: as `classify`."""
        _check_options(options)
        _check_number("rate", rate)
        is_one = isinstance(series, Mapping)
        if not is_one:
            if _is_document(series) or (_is_sequence(series) and any(map(_is_document, series[:1]))):
                self._task(Classification, "classify documents")  # raises
            _check_sequence("series", series, f"{SERIES}, or a sequence of mappings")
            is_one = not isinstance(next(iter(series)), Mapping)
        recordings = []
        for place, one in [("series", series)] if is_one else [(f"series.{i}", one) for i, one in enumerate(series)]:
            names, columns = _channels_of(place, one)
            for name, column in zip(names or range(len(columns)), columns, strict=True):
                _check_column(f"{place}.{name}", column)
            recordings.append(task.recording(columns, names, rate, place))
        computation = task.classify(recordings, options.on_overflow, detail=options.detail)
        found = [result.as_json(options) for result in self._run(computation)]
        return found[0] if is_one else found

    def score(self, pairs: Sequence[tuple[Document, Document]], *, on_overflow: OnOverflow = "windows") -> list[Json]:
        """Score pairs of documents: returns the probability that the two match, and the coverage of both.

        Raises: InvalidInput, InferenceFailed, NonFiniteOutput.
        """
        _check_sequence("pairs", pairs, "a sequence of pairs of documents")
        for i, pair in enumerate(pairs):
            _check_sequence(f"pairs.{i}", pair, "a pair of documents")
            if len(pair) != 2:
                raise InvalidInput.at(f"pairs.{i}", f"must be two documents, not {len(pair)}")
        texts = [
            (_located(f"pairs.{i}.0", first), _located(f"pairs.{i}.1", second))
            for i, (first, second) in enumerate(pairs)
        ]
        task = self._task(Matching, "compare documents")
        _check_overflow(on_overflow)
        return [pair.as_json(on_overflow) for pair in self._run(task.score(texts, on_overflow))]

    def rank(
        self,
        query: Document,
        documents: Sequence[Document],
        *,
        top_n: int | None = None,
        on_overflow: OnOverflow = "windows",
    ) -> list[Json]:
        """Rank documents by their score with a query: returns index, score and coverage of each, best first.

        Args:
            query: document that all others are compared with.
            documents: documents of any length.
            top_n: number of results to return; None, or a number above the number of documents, returns all.
            on_overflow: how to read documents longer than the model's max_length.

        Raises: InvalidInput, InferenceFailed, NonFiniteOutput.

        """
        _check_positive("top_n", top_n)
        _check_sequence("documents", documents, "a sequence of documents")
        texts = [_located(f"documents.{i}", document) for i, document in enumerate(documents)]
        task = self._task(Matching, "compare documents")
        _check_overflow(on_overflow)
        return self._run(task.rank(_located("query", query), texts, on_overflow)).as_json(top_n, on_overflow)

    def forecast(
        self,
        series: Mapping[str, Values] | Sequence[Values] | Values,
        *,
        horizon: int | None = None,
        quantiles: Sequence[float] = (),
        season: int | Sequence[int] | None = None,
        frequency: str | None = None,
        non_negative: bool = False,
    ) -> Json:
        """Forecast a multivariate series, or with a forecaster of any series each alone; with error bands and coverage.

        Args:
            series: values of each channel, by name or in the order of `manifest.channels`; the oldest value first, None
                for a missing one. A forecaster of any series takes any number of series, by name or not, whose lengths
                may differ, or the values of one.
            horizon: number of steps to forecast; None means the model's maximum, or of any series one season, or 24
                steps without one.
            quantiles: quantile levels of the error bands.
            season: number of steps after which any series repeats, such as 12 for months; or two, such as (24, 168).
                None means that it follows from the frequency, or else from the data.
            frequency: time between two values, such as 1h or 1mo.
            non_negative: whether values below 0 become 0.

        Raises: InvalidInput, InferenceFailed, NonFiniteOutput.

        """
        options = self.forecast_options(horizon, quantiles, season, frequency, non_negative=non_negative)
        task = self._task(Forecaster, "forecast series")
        names, columns, is_one = None, list[Any](), False
        if isinstance(series, Mapping):
            names, columns = list(series), list(series.values())
        else:
            _check_sequence("series", series, SERIES)
            is_one = isinstance(task, AnySeries) and not hasattr(next(iter(series)), "__len__")
            columns = [series] if is_one else list(series)
        for name, column in zip(names or range(len(columns)), columns, strict=True):
            _check_column(f"series.{name}", column)
        plan = task.plan(names, Tails.of(columns, task.context_length), options)
        (forecast,) = self._run(task.forecast([dataclasses.replace(plan, is_flat=is_one)]))
        return forecast.as_json()

    def forecast_options(
        self,
        horizon: int | None,
        quantiles: Sequence[float],
        season: int | Sequence[int] | None = None,
        frequency: str | None = None,
        *,
        non_negative: bool = False,
    ) -> ForecastOptions:
        """The options of a forecast, checked. Raises: InvalidInput naming the option."""
        seasons = season if season is None or isinstance(season, Sequence) else (season,)
        for place, number in (("horizon", horizon), *(("season", number) for number in seasons or ())):
            _check_positive(place, number)
        if not _is_sequence(quantiles):
            raise InvalidInput.at("quantiles", f"must be a sequence of numbers, not {type(quantiles).__name__}")
        for level in quantiles:
            _check_number("quantiles", level)
        if not isinstance(frequency, str | None):
            raise InvalidInput.at("frequency", f"must be str, such as 1h or 1mo, not {type(frequency).__name__}")
        options = ForecastOptions(
            horizon,
            tuple(quantiles),
            None if frequency is None else parse_frequency(frequency),
            None if seasons is None else tuple(map(int, seasons)),
            non_negative,
        )
        self._task(Forecaster, "forecast series").check(options)
        return options

    @property
    def task(self) -> Task:
        """The export's task, which converts inputs and outputs."""
        return self._loaded.task

    def _task(self, kind: type[K], what: str) -> K:
        """The task. Raises: InvalidInput if the model has another one."""
        if not isinstance(self.task, kind):
            raise InvalidInput(f"{self.manifest.name} is for {self.task.name}; it cannot {what}")
        return self.task

    def _run(self, computation: Computation[T]) -> T:
        """Run a computation to its end. Raises: InvalidInput, InferenceFailed, NonFiniteOutput."""
        step = advance(computation)
        while not isinstance(step, Answer):
            if isinstance(step, RunModel):
                outputs = self._compute(step.rows)
            else:
                outputs = [_finite(self._loaded.run_head(step.a, step.b))]
            step = advance(computation, outputs)
        return step.value

    def _compute(self, rows: Sequence[bytes]) -> list[Floats]:
        """Output of each row. Rows of one bucket are batched; batches run concurrently."""
        lengths = self._loaded.row_lengths
        buckets = defaultdict[int, list[int]](list)
        for index, row in enumerate(rows):
            buckets[next(length for length in lengths if len(row) <= length)].append(index)
        batches = [
            (bucket, indices[first : first + size])
            for bucket, indices in buckets.items()
            for size in (self._rows_of_a_batch(bucket, len(indices)),)
            for first in range(0, len(indices), size)
        ]
        pool = self._pools.get(os.getpid()) or self._new_pool()
        computed = pool.map(lambda batch: self._loaded.run([rows[i] for i in batch[1]], batch[0]), batches)
        try:
            found = list(computed)
        except Exception as error:  # the runtimes' exceptions share no base class but Exception
            raise InferenceFailed("the backend failed on this input") from error
        outputs = (output for part in found for output in _finite(part))
        by_row = dict(zip((index for _, indices in batches for index in indices), outputs, strict=True))
        return [by_row[index] for index in range(len(rows))]

    def _rows_of_a_batch(self, bucket: int, count: int) -> int:
        """How many of the `count` rows of a bucket a batch has: an equal share for each thread."""
        parts = max(1, min(self._threads, count * bucket // PART_BYTES))
        return min(-(-count // parts), self._batch_rows * self._loaded.row_lengths[-1] // bucket)

    def _new_pool(self) -> ThreadPoolExecutor:
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="inference")
        return self._pools.setdefault(os.getpid(), pool)


def _check_options(options: ResultOptions) -> None:
    """Check the options of a classification. Raises: InvalidInput."""
    _check_positive("top_k", options.top_k)
    _check_overflow(options.on_overflow)


def _channels_of(place: str, recording: Any) -> tuple[list[str] | None, list[Any]]:
    """Names of the channels of a recording, None if they have the model's order, and their values.

    Raises: InvalidInput if several recordings mix mappings and lists.
    """
    if isinstance(recording, Mapping):
        return list(recording), list(recording.values())
    if place != "series":
        message = f"must be a mapping from channels to values, as the others are, not {type(recording).__name__}"
        raise InvalidInput.at(place, message)
    return None, list(recording) if hasattr(next(iter(recording)), "__len__") else [recording]


def _check_overflow(on_overflow: str) -> None:
    """Check that the option has an allowed value, as the server's schemas do for requests. Raises: InvalidInput."""
    if on_overflow not in (allowed := get_args(OnOverflow)):
        raise InvalidInput.at("on_overflow", f"must be one of {', '.join(allowed)}, not {on_overflow!r}")


def _check_positive(place: str, number: int | None) -> None:
    """Check that a value is None or an integer of at least 1. Raises: InvalidInput."""
    if number is None:
        return
    if isinstance(number, bool) or not isinstance(number, Integral):
        raise InvalidInput.at(place, f"must be an integer, not {type(number).__name__}")
    if number < 1:
        raise InvalidInput.at(place, f"must be at least 1, not {number}")


def _check_number(place: str, number: float | None) -> None:
    """Check that a value is None or a number. Raises: InvalidInput."""
    if number is not None and (isinstance(number, bool) or not isinstance(number, Real)):
        raise InvalidInput.at(place, f"must be a number, not {type(number).__name__}")


def _to_bytes(place: str, document: Document) -> bytes:
    """Bytes of a document. Raises: InvalidInput if it is neither bytes nor text that can be encoded as UTF-8."""
    if isinstance(document, bytes | bytearray | memoryview):
        return bytes(document)
    if not isinstance(document, str):
        raise InvalidInput.at(place, f"must be str or bytes, not {type(document).__name__}")
    try:
        return document.encode()
    except UnicodeEncodeError:
        raise InvalidInput.at(place, "contains a lone surrogate, which UTF-8 cannot encode; pass bytes") from None


def _located(place: str, document: Document) -> LocatedText:
    """A document with its location. Raises: as `_to_bytes`."""
    return LocatedText(place, _to_bytes(place, document))


def _is_document(value: object) -> TypeIs[Document]:
    """Whether a value is one document."""
    return isinstance(value, str | bytes | bytearray | memoryview)


def _is_sequence(value: Any) -> bool:
    """Whether a value is a list, a tuple, an array or like them, such as a column of a data frame, and no document."""
    is_ordered = hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, Mapping)
    return is_ordered and not _is_document(value) and getattr(value, "ndim", 1) > 0


def _check_sequence(place: str, inputs: Any, allowed: str) -> None:
    """Check that `inputs` is a sequence, and not empty. Raises: InvalidInput naming what is allowed."""
    if not _is_sequence(inputs):
        raise InvalidInput.at(place, f"must be {allowed}, not {type(inputs).__name__}")
    if len(inputs) == 0:  # the truth value of an array is ambiguous
        raise InvalidInput.at(place, "at least 1 is needed")


def _check_column(place: str, column: Values) -> None:
    """Check that all values are numbers or None; NumPy would convert strings and booleans. Raises: InvalidInput."""
    if not _is_sequence(column):
        raise InvalidInput.at(place, f"must be a sequence of numbers, not {type(column).__name__}")
    if isinstance(column, np.ndarray) and column.ndim != 1:
        raise InvalidInput.at(place, f"must be a sequence of numbers, not an array of {column.ndim} dimensions")
    kinds = {column.dtype.type} if isinstance(column, np.ndarray) else set(map(type, column))
    wrong = [kind for kind in kinds if kind is bool or not issubclass(kind, (int, float, np.number, type(None)))]
    if wrong:
        raise InvalidInput.at(place, f"must contain numbers or None, not {wrong[0].__name__}")
    try:
        np.asarray(column, np.float64)
    except OverflowError:
        raise InvalidInput.at(place, "contains an integer that is too large") from None


def _finite(outputs: Floats) -> Floats:
    """Return the outputs unchanged. Raises: NonFiniteOutput if one is NaN or infinite."""
    if not np.isfinite(outputs).all():
        raise NonFiniteOutput("the model returned NaN or infinity for this input")
    return outputs
