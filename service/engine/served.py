"""Models behind their batchers."""

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass

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


@dataclass(frozen=True)
class ServedModel:
    """A loaded model behind its batcher."""

    manifest: Manifest
    batcher: Batcher
    metrics: ModelMetrics


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
    """Documents -> vectors, by the batcher; pairs of vectors -> scores, by the head."""

    manifest: MatcherManifest
    cache: EncodingCache
    loaded: LoadedModel
    executor: Executor

    async def score(self, a: Floats, b: Floats, deadline: float) -> list[float]:
        """Probability that each a belongs with its b; vectors (pairs, dim).

        Raises: DeadlineExceeded, InferenceFailed, NonFiniteOutput, ShuttingDown.
        """
        try:
            running = asyncio.get_running_loop().run_in_executor(self.executor, self.loaded.run_head, a, b)
        except RuntimeError:
            raise ShuttingDown("the server is shutting down; ask another one") from None
        try:
            async with asyncio.timeout_at(deadline):
                logits = await running
        except TimeoutError:
            self.metrics.rejected("deadline")
            raise DeadlineExceeded("the deadline passed while the pairs were scored") from None
        except Exception as error:
            log.exception("the head failed on %d pairs", len(a))
            self.metrics.inference_error("raised")
            raise InferenceFailed("the backend failed on this input") from error
        if not np.isfinite(logits).all():
            self.metrics.inference_error("non_finite")
            raise NonFiniteOutput("the model gave no finite answer for this input")
        scores: list[float] = sigmoid(logits).tolist()
        return scores
