"""The engine: models with their batchers, from loading to drain. Created by `service.server`, used by the routes."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from artifact.backends.base import InferenceBackend
from artifact.cores import cpu_count
from artifact.documents import pad_rows, sigmoid
from artifact.errors import BadExport, InvalidInput, LongdocError, NonFiniteOutput
from artifact.loading import LoadedModel, find_exports, load_export
from artifact.manifest import ClassifierManifest, ForecasterManifest, Manifest, MatcherManifest
from artifact.series import Calibration
from service.batching.batcher import Batcher, Floats, Limits, Refusal, Run
from service.engine.cache import EncodingCache
from service.errors import DeadlineExceeded, InferenceFailed, ModelNotFound, ShuttingDown
from service.observe.metrics import Metrics, ModelMetrics
from service.settings import Settings

log = logging.getLogger(__name__)

M = TypeVar("M", bound="ServedModel")

DEFAULTS = {
    "default_classifier": "text-classification",
    "default_matcher": "text-matching",
    "default_forecaster": "forecasting",
}
"""Setting -> task of the model it names."""
CPU_BATCH_ROWS = 16
CUDA_BATCH_ROWS = 64
CUDA_SLOTS = 2
"""One batch computes while the next one is copied."""
HEAD_ROWS = 256
"""Pairs the head of a matcher computes at once, always: a score then does not depend on how many others there are."""


def load_models(settings: Settings, metrics: Metrics) -> tuple[list[LoadedModel], list[Path]]:
    """Load the newest version of every export; also the folders of those refused.

    Raises: BadExport for the first damaged one, unless `skip_bad_exports`; always if none is left.
    """
    models, refused = list[LoadedModel](), list[Path]()
    for folder in find_exports(settings.exports):
        try:
            models.append(load_export(folder, format=settings.backend, device=settings.device))
        except BadExport as error:
            metrics.exports_refused.labels(folder.parent.name, error.reason).inc()
            if not settings.skip_bad_exports:
                raise
            log.error("refused: %s", error)
            refused.append(folder)
            last = error
    if refused and not models:
        raise last
    _check_defaults(models, settings)
    return models, refused


def _check_defaults(models: Sequence[LoadedModel], settings: Settings) -> None:
    """Every default model must be there and of its task. Raises: BadExport."""
    for setting, task in DEFAULTS.items():
        names = [model.manifest.name for model in models if model.manifest.task == task]
        if (name := getattr(settings, setting)) not in (None, *names):
            known = ", ".join(names) or "none"
            raise BadExport(f"{setting} {name!r} is not among the exports for {task}: {known}", "missing")


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
    head: InferenceBackend
    executor: Executor

    async def score(self, a: Floats, b: Floats, deadline: float) -> list[float]:
        """Probability that each a belongs with its b; vectors (pairs, dim).

        Raises: DeadlineExceeded, InferenceFailed, NonFiniteOutput, ShuttingDown.
        """
        try:
            running = asyncio.get_running_loop().run_in_executor(self.executor, self._run_head, a, b)
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

    def _run_head(self, a: Floats, b: Floats) -> Floats:
        """Logits (pairs,), in chunks of HEAD_ROWS."""
        names, output = [spec.name for spec in self.manifest.head.inputs], self.manifest.head.outputs[0].name
        logits = []
        for first in range(0, len(a), HEAD_ROWS):
            count = len(a[first : first + HEAD_ROWS])
            chunk = np.zeros((2, HEAD_ROWS, a.shape[1]), np.float32)
            chunk[0, :count], chunk[1, :count] = a[first : first + HEAD_ROWS], b[first : first + HEAD_ROWS]
            logits.append(self.head.run(dict(zip(names, chunk, strict=True)))[output].reshape(-1)[:count])
        return np.concatenate(logits)


class Engine:
    """All models of the process; lives on one event loop.

    Each model has its own queue; they share one pool with a thread for each slot. On a CPU there is a slot for every
    core and each run takes one thread: small batches side by side keep their activations in the cache.
    """

    def __init__(self, models: Sequence[LoadedModel], settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._is_draining = False
        self.crashed = asyncio.Event()
        is_cuda = any(model.backend.device == "cuda" for model in models)
        slots = CUDA_SLOTS if is_cuda else max(1, cpu_count() // settings.workers)
        self._executor = ThreadPoolExecutor(slots, thread_name_prefix="inference")
        self._limits = Limits(
            batch_rows=settings.max_batch_rows or (CUDA_BATCH_ROWS if is_cuda else CPU_BATCH_ROWS),
            queue_rows=settings.max_queue_rows,
            queue_bytes=settings.max_queue_bytes,
            slots=slots,
        )
        self._metrics = metrics
        self._replaced: list[Batcher] = []
        self.models = {model.manifest.name: self._serve(model) for model in models}
        for task in sorted({model.manifest.task for model in models}):
            self._say_who_answers(task)

    def put(self, model: LoadedModel) -> None:
        """Serve a model from now on, instead of the one of its name; requests that have begun end with the old one.

        Raises: BadExport if the old one is of another task.
        """
        name, task = model.manifest.name, model.manifest.task
        old = self.models.get(name)
        if old is not None and old.manifest.task != task:
            raise BadExport(
                f"{name}/{model.manifest.version} does {task}; {name} is served for {old.manifest.task}", "task"
            )
        self.models[name] = self._serve(model)
        self._say_who_answers(task)
        if old is not None:
            self._replaced.append(old.batcher)

    def let_go(self) -> None:
        """Forget the batchers of replaced models whose last request has ended, and so their memory."""
        self._replaced = [batcher for batcher in self._replaced if batcher.is_computing or not batcher.is_idle]

    def _say_who_answers(self, task: str) -> None:
        """Warn where requests that name no model will be refused, for there are several."""
        names = [model.manifest.name for model in self.models.values() if model.manifest.task == task]
        setting = next(setting for setting, of in DEFAULTS.items() if of == task)
        if len(names) > 1 and getattr(self._settings, setting) is None:
            known = ", ".join(names)
            log.warning("%s: requests have to name one of %s, unless %s is set", task, known, setting)

    def _serve(self, model: LoadedModel) -> ServedModel:
        """Put a batcher before a model and announce it."""
        manifest, bound = model.manifest, self._metrics.of(model.manifest.name)
        files = manifest.files_of(model.format)
        lengths = _row_lengths(manifest, sorted(files))
        batcher = Batcher(_runner(model), lengths, self._limits, self._executor, bound, self.crashed.set)
        bound.watch(
            lambda: batcher.waiting_rows, lambda: batcher.waiting_bytes, batcher.oldest_s, lambda: batcher.is_ready
        )
        bound.load_seconds.set(model.load_seconds)
        file, device = files[max(files)], model.backend.device
        facts = (str(manifest.version), manifest.task, model.format, device, file.precision, file.sha256)
        self._metrics.announce(manifest.name, *facts)
        if isinstance(manifest, ClassifierManifest):
            return ServedClassifier(manifest, batcher, bound)
        if isinstance(manifest, ForecasterManifest):
            assert model.calibration is not None
            return ServedForecaster(manifest, batcher, bound, model.calibration)
        assert model.head is not None
        cache = EncodingCache(self._settings.max_cache_bytes, bound)
        bound.watch_cache(lambda: cache.size)
        return ServedMatcher(manifest, batcher, bound, cache, model.head, self._executor)

    @property
    def is_ready(self) -> bool:
        """Whether every model takes requests and the server is to stay."""
        return not self._is_draining and all(model.batcher.is_ready for model in self.models.values())

    @property
    def is_draining(self) -> bool:
        """Whether the server is about to stop."""
        return self._is_draining

    def model(self, name: str, version: str | None = None) -> ServedModel:
        """Look a model up. Raises: ModelNotFound naming what there is."""
        model = self.models.get(name)
        if model is None:
            raise ModelNotFound(f"no model of that name is served; there are: {', '.join(self.models)}")
        if version is not None and version != str(model.manifest.version):
            raise ModelNotFound(f"model {name} is served in version {model.manifest.version} only")
        return model

    def refusal_at_door(self, task: str, left_s: float, entering: int) -> LongdocError | None:
        """Why a request is refused before it is read, if no model of its task can take one; counted.

        Args:
            task: of the model.
            left_s: until the deadline.
            entering: requests for the task that were let in and have not asked yet.

        """
        first: tuple[ServedModel, Refusal] | None = None
        for model in self.models.values():
            if model.manifest.task == task:
                refusal = model.batcher.refusal_at_door(left_s, entering)
                if refusal is None:
                    return None
                first = first or (model, refusal)
        if first is None:
            return None
        model, (reason, error) = first
        model.metrics.rejected(reason)
        return error

    def classifier(self, name: str | None) -> ServedClassifier:
        """Model for a request: the one named, the setting's, or the only one.

        Raises: ModelNotFound; InvalidInput if the model is of another task, or one has to be named.
        """
        models = {n: m for n, m in self.models.items() if isinstance(m, ServedClassifier)}
        return self._choose(models, name, self._settings.default_classifier)

    def matcher(self, name: str | None) -> ServedMatcher:
        """As `classifier`, for pairs."""
        models = {n: m for n, m in self.models.items() if isinstance(m, ServedMatcher)}
        return self._choose(models, name, self._settings.default_matcher)

    def forecaster(self, name: str | None, channels: Sequence[str] | None = None) -> ServedForecaster:
        """As `classifier`, for series; named channels that fit one model alone choose it before the setting does."""
        models = {n: m for n, m in self.models.items() if isinstance(m, ServedForecaster)}
        if name is None and channels is not None:
            fitting = [model for model in models.values() if set(model.manifest.channels) == set(channels)]
            if len(fitting) == 1:
                return fitting[0]
        return self._choose(models, name, self._settings.default_forecaster)

    def _choose(self, models: Mapping[str, M], name: str | None, default: str | None) -> M:
        """Take the named one of a task's models, else the default, else the only one."""
        known = ", ".join(models) or "none"
        name = name or default
        if name is None and len(models) != 1:
            raise InvalidInput(f"name a model; for this route there are: {known}", [("model", "missing")])
        chosen = models.get(name or next(iter(models)))
        if chosen is None:
            other = self.model(name or "")
            message = f"{other.manifest.name} does {other.manifest.task}; for this route there are: {known}"
            raise InvalidInput(message, [("model", "of another task")])
        return chosen

    def begin_drain(self) -> None:
        """End readiness; requests are still taken, for clients that have not noticed yet."""
        self._is_draining = True

    async def drain(self) -> None:
        """Take no more requests and wait for those accepted."""
        self._is_draining = True
        batchers = self._batchers()
        for batcher in batchers:
            batcher.close()
        await asyncio.gather(*(batcher.drain() for batcher in batchers))

    @property
    def is_computing(self) -> bool:
        """Whether a thread has not come back."""
        return any(batcher.is_computing for batcher in self._batchers())

    def _batchers(self) -> list[Batcher]:
        return [*self._replaced, *(model.batcher for model in self.models.values())]

    def close(self) -> None:
        """Give the threads back; what still computes is left behind."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _row_lengths(manifest: Manifest, buckets: Sequence[int]) -> list[int]:
    """Bytes of a row in each bucket."""
    if isinstance(manifest, ForecasterManifest):
        return [4 * bucket * len(manifest.channels) for bucket in buckets]
    return list(buckets)


def _runner(model: LoadedModel) -> Run:
    """What computes a batch of rows."""
    manifest, backend = model.manifest, model.backend
    names, output = [spec.name for spec in manifest.inputs], manifest.outputs[0].name

    def run_text(rows: Sequence[bytes], bucket: int) -> Floats:
        return backend.run(dict(zip(names, pad_rows(rows, bucket), strict=True)))[output]

    def run_series(rows: Sequence[bytes], bucket: int) -> Floats:
        del bucket
        windows = np.frombuffer(bytearray().join(rows), np.float32)  # writable, else PyTorch warns
        return backend.run({names[0]: windows.reshape(len(rows), *manifest.inputs[0].shape[1:])})[output]

    return run_series if isinstance(manifest, ForecasterManifest) else run_text


PUBLIC = {
    *("name", "version", "task", "labels", "min_length", "max_length", "window_overlap"),
    *("channels", "context_length", "horizon", "min_observations", "frequency"),
    *("calibration_source", "calibration_examples", "quantiles_reliable"),
    *("temperature", "reliability"),
    *("results", "training", "data_terms", "non_commercial"),
}


def public_facts(manifest: Manifest) -> dict[str, object]:
    """What `/v1/models` tells of a model."""
    return manifest.model_dump(mode="json", include=PUBLIC)
