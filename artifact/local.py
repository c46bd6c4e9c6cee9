"""Models in this process, without a server. `artifact.load` returns one.

They answer as the server does, and compute batches on every core.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Integral
from typing import Any, TypeVar, get_args, overload

import numpy as np

from artifact.backends.base import BATCH_ROWS, batches_at_once
from artifact.classification import Documents, Options
from artifact.documents import OnOverflow, sigmoid
from artifact.errors import InferenceFailed, InvalidInput, NonFiniteOutput
from artifact.forecasting import Series, check_channels, check_levels, choose_horizon
from artifact.loading import Floats, LoadedModel
from artifact.manifest import ClassifierManifest, ForecasterManifest, Manifest, MatcherManifest
from artifact.matching import Encoding, Ranking, ScoredPair, Text, Texts, pooled
from artifact.series import Calibration, Column, Tails

Document = str | bytes | bytearray | memoryview
"""Text, which is read as UTF-8, or raw bytes."""
Result = dict[str, Any]
"""An answer with the keys that the server's JSON has."""

M = TypeVar("M", ClassifierManifest, MatcherManifest, ForecasterManifest)


class Model:
    """A loaded export of any task; the methods of other tasks raise InvalidInput. Threads may share it."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._batch_rows = BATCH_ROWS[loaded.backend.device]
        self._pools: dict[int, ThreadPoolExecutor] = {}
        """By process: in a child that was forked, the threads of its parent do not run."""

    @property
    def manifest(self) -> Manifest:
        """What the export says of itself: labels or channels, limits, measured results, terms of use."""
        return self._loaded.manifest

    @overload
    def classify(  # type: ignore[overload-overlap]  # a str is a sequence of str too, and the first one fits
        self, documents: Document, *, top_k: int | None = ..., on_overflow: OnOverflow = ..., detail: bool = ...
    ) -> Result: ...

    @overload
    def classify(
        self,
        documents: Sequence[Document],
        *,
        top_k: int | None = ...,
        on_overflow: OnOverflow = ...,
        detail: bool = ...,
    ) -> list[Result]: ...

    def classify(
        self,
        documents: Document | Sequence[Document],
        *,
        top_k: int | None = None,
        on_overflow: OnOverflow = "windows",
        detail: bool = False,
    ) -> Result | list[Result]:
        """Label, scores and coverage of a document, or of each of several.

        Args:
            documents: of any length.
            top_k: scores to return, best first; None returns all, as does a number beyond the labels.
            on_overflow: what happens beyond the model's length.
            detail: whether to return the scores of each window.

        Raises: InvalidInput, InferenceFailed, NonFiniteOutput.

        """
        if isinstance(documents, str | bytes | bytearray | memoryview):
            return self.classify([documents], top_k=top_k, on_overflow=on_overflow, detail=detail)[0]
        manifest, options = (
            self._manifest_of(ClassifierManifest, "classify documents"),
            Options(top_k, on_overflow, detail),
        )
        _check_positive("top_k", top_k)
        _check_overflow(on_overflow)
        _check_count("inputs", documents)
        encoded = [_encoded(f"inputs.{i}", document) for i, document in enumerate(documents)]
        request = Documents(encoded, manifest, on_overflow)
        return [answer.as_json(manifest.labels, options) for answer in request.answers(self._compute(request.rows))]

    def score(self, pairs: Sequence[tuple[Document, Document]], *, on_overflow: OnOverflow = "windows") -> list[Result]:
        """Probability that the documents of each pair belong together, and coverage of both.

        Raises: InvalidInput, InferenceFailed, NonFiniteOutput.
        """
        _check_several("pairs", pairs)
        for i, pair in enumerate(pairs):
            _check_several(f"pairs.{i}", pair)
            if len(pair) != 2:
                raise InvalidInput.at(f"pairs.{i}", f"must be two documents, not {len(pair)}")
        places = [f"pairs.{i}.{side}" for i in range(len(pairs)) for side in (0, 1)]
        given = [document for pair in pairs for document in pair]
        texts = [Text(place, _encoded(place, document)) for place, document in zip(places, given, strict=True)]
        vectors, encodings = self._encode(texts, on_overflow)
        scores = self._scores(vectors[0::2], vectors[1::2])
        return [pair.as_json(on_overflow) for pair in map(ScoredPair, scores, encodings[0::2], encodings[1::2])]

    def rank(
        self,
        query: Document,
        documents: Sequence[Document],
        *,
        top_n: int | None = None,
        on_overflow: OnOverflow = "windows",
    ) -> list[Result]:
        """Index, score with the query and coverage of documents, best score first.

        Args:
            query: what the documents are compared with.
            documents: of any length.
            top_n: results to return; None returns all, as does a number beyond the documents.
            on_overflow: what happens beyond the model's length.

        Raises: InvalidInput, InferenceFailed, NonFiniteOutput.

        """
        _check_positive("top_n", top_n)
        _check_several("documents", documents)
        places = [f"documents.{i}" for i in range(len(documents))]
        texts = [Text(place, _encoded(place, document)) for place, document in zip(places, documents, strict=True)]
        vectors, encodings = self._encode([Text("query", _encoded("query", query)), *texts], on_overflow)
        scores = self._scores(np.repeat(vectors[:1], len(texts), axis=0), vectors[1:])
        return Ranking(encodings[0], scores, encodings[1:]).as_json(top_n, on_overflow)

    def forecast(
        self,
        series: Mapping[str, Column] | Sequence[Column],
        *,
        horizon: int | None = None,
        quantiles: Sequence[float] = (),
    ) -> Result:
        """Continuation of a multivariate series, with error bands and coverage.

        Args:
            series: values of each channel, oldest first, None where one is missing; by name, or in the model's order.
            horizon: steps to forecast; None forecasts all the model can.
            quantiles: levels of the error bands.

        Raises: InvalidInput, InferenceFailed, NonFiniteOutput.

        """
        manifest, calibration, horizon = self.check_forecast(horizon, quantiles)
        names, columns = (list(series), list(series.values())) if isinstance(series, Mapping) else (None, list(series))
        places = check_channels(manifest, names, len(columns))
        for name, column in zip(names or range(len(columns)), columns, strict=True):
            _check_column(f"series.{name}", column)
        request = Series(
            Tails.of([columns[place] for place in places], manifest.context_length),
            manifest,
            calibration,
            horizon=horizon,
            levels=quantiles,
        )
        return request.answer(self._compute([request.row])[0]).as_json(names, places)

    def check_forecast(
        self, horizon: int | None, quantiles: Sequence[float]
    ) -> tuple[ForecasterManifest, Calibration, int]:
        """Manifest, calibration and horizon of a forecast. Raises: InvalidInput."""
        _check_positive("horizon", horizon)
        manifest, calibration = self._manifest_of(ForecasterManifest, "forecast series"), self._loaded.calibration
        assert calibration is not None
        check_levels(calibration, quantiles)
        return manifest, calibration, choose_horizon(manifest, horizon)

    def _manifest_of(self, kind: type[M], what: str) -> M:
        """The manifest. Raises: InvalidInput if it is of another task."""
        if not isinstance(self.manifest, kind):
            raise InvalidInput(f"{self.manifest.name} does {self.manifest.task}; it cannot {what}")
        return self.manifest

    def _encode(self, texts: Sequence[Text], on_overflow: OnOverflow) -> tuple[Floats, list[Encoding]]:
        """Vectors (texts, dim), and what of each text was read."""
        manifest = self._manifest_of(MatcherManifest, "compare documents")
        _check_overflow(on_overflow)
        request = Texts(texts, manifest, on_overflow)
        keys = list(dict.fromkeys(request.keys))
        rows = [request.rows(key) for key in keys]
        vectors = pooled([len(part) for part in rows], self._compute([row for part in rows for row in part]))
        return request.vectors(dict(zip(keys, vectors, strict=True))), request.encodings

    def _scores(self, a: Floats, b: Floats) -> list[float]:
        """Probabilities of pairs of vectors."""
        scores: list[float] = sigmoid(_finite(self._loaded.run_head(a, b))).tolist()
        return scores

    def _compute(self, rows: Sequence[bytes]) -> Floats:
        """Outputs (rows, ...); rows of one bucket are computed together, batches side by side."""
        lengths = self._loaded.row_lengths
        buckets = defaultdict[int, list[int]](list)
        for index, row in enumerate(rows):
            buckets[next(length for length in lengths if len(row) <= length)].append(index)
        batches = [
            (bucket, indices[first : first + size])
            for bucket, indices in buckets.items()
            for size in (self._batch_rows * lengths[-1] // bucket,)
            for first in range(0, len(indices), size)
        ]
        pool = self._pools.get(os.getpid()) or self._new_pool()
        computed = pool.map(lambda batch: self._loaded.run([rows[i] for i in batch[1]], batch[0]), batches)
        try:
            outputs = np.concatenate(list(computed))
        except Exception as error:  # runtimes raise classes of their own
            raise InferenceFailed("the backend failed on this input") from error
        ordered = np.empty_like(outputs)
        ordered[[index for _, indices in batches for index in indices]] = outputs
        return _finite(ordered)

    def _new_pool(self) -> ThreadPoolExecutor:
        pool = ThreadPoolExecutor(batches_at_once(self._loaded.backend.device), thread_name_prefix="inference")
        return self._pools.setdefault(os.getpid(), pool)


def _check_overflow(on_overflow: str) -> None:
    """Refuse a strategy that there is not; the server's schemas do it for requests. Raises: InvalidInput."""
    if on_overflow not in (allowed := get_args(OnOverflow)):
        raise InvalidInput.at("on_overflow", f"{on_overflow!r} is none of {', '.join(allowed)}")


def _check_positive(place: str, number: int | None) -> None:
    """Refuse what is not a count of at least one. Raises: InvalidInput."""
    if number is None:
        return
    if isinstance(number, bool) or not isinstance(number, Integral):
        raise InvalidInput.at(place, f"must be an integer, not {type(number).__name__}")
    if number < 1:
        raise InvalidInput.at(place, f"must be at least 1, not {number}")


def _check_count(what: str, inputs: Sequence[object]) -> None:
    """Refuse a request without inputs. Raises: InvalidInput."""
    if len(inputs) == 0:  # an array has no truth value
        raise InvalidInput.at(what, "at least 1 is needed")


def _encoded(place: str, document: Document) -> bytes:
    """The bytes of a document. Raises: InvalidInput if it is neither text that UTF-8 can hold nor bytes."""
    if isinstance(document, bytes | bytearray | memoryview):
        return bytes(document)
    if not isinstance(document, str):
        raise InvalidInput.at(place, f"must be str or bytes, not {type(document).__name__}")
    try:
        return document.encode()
    except UnicodeEncodeError:
        raise InvalidInput.at(place, "holds a lone surrogate, which UTF-8 cannot write; give bytes") from None


def _check_several(place: str, documents: Sequence[object]) -> None:
    """Refuse what is no sequence of documents: one text is a sequence, too, of letters. Raises: InvalidInput."""
    if isinstance(documents, str | bytes | bytearray) or not isinstance(documents, Sequence | np.ndarray):
        raise InvalidInput.at(place, f"must be a sequence of documents, not {type(documents).__name__}")
    _check_count(place, documents)


def _check_column(place: str, column: Column) -> None:
    """Refuse values that are not numbers or None; strings and booleans would be read as some. Raises: InvalidInput."""
    if isinstance(column, str | bytes) or not hasattr(column, "__len__"):
        raise InvalidInput.at(place, f"must be a sequence of numbers, not {type(column).__name__}")
    kinds = {column.dtype.type} if isinstance(column, np.ndarray) else set(map(type, column))
    wrong = [kind for kind in kinds if kind is bool or not issubclass(kind, (int, float, np.number, type(None)))]
    if wrong:
        raise InvalidInput.at(place, f"must hold numbers, or None, not {wrong[0].__name__}")
    try:
        np.asarray(column, np.float64)
    except OverflowError:
        raise InvalidInput.at(place, "holds an integer that is too large") from None


def _finite(outputs: Floats) -> Floats:
    """Outputs that are all finite. Raises: NonFiniteOutput."""
    if not np.isfinite(outputs).all():
        raise NonFiniteOutput("the model gave no finite answer for this input")
    return outputs
