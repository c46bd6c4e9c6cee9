"""Served models: a loaded model with its batcher, metrics and requests in flight."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from artifact.documents import sigmoid
from artifact.errors import InferenceFailed, NonFiniteOutput
from artifact.loading import Floats, LoadedModel
from artifact.manifest import ClassifierManifest, ForecasterManifest, Manifest, MatcherManifest
from artifact.series import Calibration
from service.batching.batcher import Batcher
from service.engine.cache import EncodingCache
from service.errors import DeadlineExceeded, ShuttingDown
from service.metrics import ModelMetrics

log = logging.getLogger(__name__)


class _Requests:
    """Number of requests in flight."""

    def __init__(self) -> None:
        self.count = 0
        self.are_done = asyncio.Event()
        self.are_done.set()

    def change(self, by: int) -> None:
        """Add to the number."""
        self.count += by
        if self.count:
            self.are_done.clear()
        else:
            self.are_done.set()


@dataclass(frozen=True)
class ServedModel:
    """One version of a model with its batcher."""

    manifest: Manifest
    batcher: Batcher
    metrics: ModelMetrics
    _requests: _Requests = field(default_factory=_Requests, init=False, repr=False, compare=False)

    @contextlib.contextmanager
    def in_flight(self) -> Iterator[None]:
        """Count a request as in flight while the block runs; an upload of lines is one request."""
        with self.metrics.in_flight.track_inprogress():
            self._requests.change(1)
            try:
                yield
            finally:
                self._requests.change(-1)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight and no batch is being computed."""
        return not self._requests.count and self.batcher.is_idle and not self.batcher.is_computing

    async def drain(self) -> None:
        """Wait until no request is in flight."""
        await self._requests.are_done.wait()
        await self.batcher.drain()


@dataclass(frozen=True)
class ServedClassifier(ServedModel):
    """Documents -> labels."""

    manifest: ClassifierManifest


@dataclass(frozen=True)
class ServedForecaster(ServedModel):
    """Windows -> forecasts."""

    manifest: ForecasterManifest
    calibration: Calibration


@dataclass(frozen=True)
class ServedMatcher(ServedModel):
    """Documents -> vectors, computed in batches; pairs of vectors -> scores, computed by the head."""

    manifest: MatcherManifest
    cache: EncodingCache
    loaded: LoadedModel
    executor: Executor

    async def score(self, a: Floats, b: Floats, deadline: float) -> list[float]:
        """Probability that the documents of each pair belong together.

        Args:
            a: vectors of the first documents, (pairs, dim).
            b: vectors of the second documents, (pairs, dim).
            deadline: on the clock of the event loop.

        Raises: DeadlineExceeded, InferenceFailed, NonFiniteOutput, ShuttingDown.

        """
        try:
            running = asyncio.get_running_loop().run_in_executor(self.executor, self.loaded.run_head, a, b)
        except RuntimeError:
            raise ShuttingDown("the server is shutting down; retry on another one") from None
        try:
            async with asyncio.timeout_at(deadline):
                logits = await running
        except TimeoutError:
            self.metrics.rejected("deadline")
            raise DeadlineExceeded("the deadline passed while the pairs were scored") from None
        except Exception as error:
            log.exception("the head of the matcher failed on %d pairs", len(a))
            self.metrics.inference_error("raised")
            raise InferenceFailed("the backend failed on this input") from error
        if not np.isfinite(logits).all():
            self.metrics.inference_error("non_finite")
            raise NonFiniteOutput("the model returned NaN or infinity for this input")
        scores: list[float] = sigmoid(logits).tolist()
        return scores
