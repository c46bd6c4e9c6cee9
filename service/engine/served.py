"""Served models: a loaded model with its batcher, metrics and requests in flight."""

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from artifact.arrays import Floats
from artifact.documents import sigmoid
from artifact.errors import InferenceFailed, NonFiniteOutput
from artifact.loading import LoadedModel
from artifact.manifest import ClassifierManifest, ForecasterManifest, Manifest, MatcherManifest
from artifact.series import Calibration
from service.batching.admission import ClientLimit
from service.batching.batcher import Batcher
from service.engine.cache import EncodingCache
from service.errors import DeadlineExceeded, ShuttingDown
from service.metrics import ModelMetrics

log = logging.getLogger(__name__)


class _InFlight:
    """Counts requests in flight: each runs in a block of this context manager, which may be entered many times."""

    def __init__(self, metrics: ModelMetrics) -> None:
        self.count = 0
        self.are_done = asyncio.Event()
        self.are_done.set()
        self._gauge = metrics.in_flight

    def __enter__(self) -> None:
        """Count a request."""
        self.count += 1
        self.are_done.clear()
        self._gauge.inc()

    def __exit__(self, *_: object) -> None:
        """Stop counting it."""
        self.count -= 1
        self._gauge.dec()
        if not self.count:
            self.are_done.set()


@dataclass(frozen=True)
class ServedModel:
    """One version of a model with its batcher."""

    manifest: Manifest
    batcher: Batcher
    metrics: ModelMetrics
    in_flight: _InFlight = field(init=False, repr=False, compare=False)
    """Counts a request while its block runs; an upload of lines is one request."""

    def __post_init__(self) -> None:
        """Count from 0."""
        object.__setattr__(self, "in_flight", _InFlight(self.metrics))

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight and no batch is being computed."""
        return not self.in_flight.count and self.batcher.is_idle and not self.batcher.is_computing

    async def drain(self) -> None:
        """Wait until no request is in flight."""
        await self.in_flight.are_done.wait()
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
            self.metrics.rejected("client_deadline" if isinstance(deadline, ClientLimit) else "deadline")
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
