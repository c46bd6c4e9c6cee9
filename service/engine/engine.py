"""All models of the process with their batchers, from the first request to the drain."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Literal

from artifact.backends.base import BATCH_ROWS, batches_at_once
from artifact.defaults import DEFAULTS, TaskName
from artifact.errors import BadExport, LongdocError
from artifact.loading import LoadedModel
from artifact.manifest import ClassifierManifest, ForecasterManifest
from service.batching.admission import Limits, Refusal
from service.batching.batcher import Batcher
from service.engine.cache import EncodingCache
from service.engine.selection import SETTINGS, Models
from service.engine.served import ServedClassifier, ServedForecaster, ServedMatcher, ServedModel
from service.metrics import Metrics
from service.settings import Settings

log = logging.getLogger(__name__)


class Engine:
    """All models of the process; lives on one event loop.

    Each model has its own queue; they share one pool with a thread for each slot. On a CPU there is a slot for every
    core and each run takes one thread: small batches side by side keep their activations in the cache.
    """

    def __init__(
        self,
        models: Sequence[LoadedModel],
        settings: Settings,
        metrics: Metrics,
        defaults: Mapping[TaskName, str] = MappingProxyType({}),
    ) -> None:
        self._settings = settings
        self._is_draining = False
        self.crashed = asyncio.Event()
        is_cuda = any(model.backend.device == "cuda" for model in models)
        device: Literal["cpu", "cuda"] = "cuda" if is_cuda else "cpu"
        slots = batches_at_once(device) if is_cuda else max(1, batches_at_once(device) // settings.workers)
        self._executor = ThreadPoolExecutor(slots, thread_name_prefix="inference")
        self._limits = Limits(
            batch_rows=settings.max_batch_rows or BATCH_ROWS[device],
            queue_rows=settings.max_queue_rows,
            queue_bytes=settings.max_queue_bytes,
            slots=slots,
        )
        self._metrics = metrics
        self._replaced: list[Batcher] = []
        self.models = Models(settings, defaults)
        """By name."""
        for model in models:
            self.models[model.manifest.name] = self._serve(model)
        for task in sorted({model.manifest.task for model in models}):
            self._tell_default(task)

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
        before = self.models.default(task)
        self.models[name] = self._serve(model)
        if self.models.settle(task) != before or before is None:
            self._tell_default(task)
        if old is not None:
            self._replaced.append(old.batcher)

    def remove(self, name: str) -> None:
        """Serve a model no more; requests that have begun end with it."""
        model = self.models.pop(name)
        self._replaced.append(model.batcher)
        self._metrics.withdraw(name)
        if any(other.manifest.task == model.manifest.task for other in self.models.values()):
            self._tell_default(model.manifest.task)

    def forget_replaced(self) -> None:
        """Forget the batchers of replaced models whose last request has ended, and so their memory."""
        self._replaced = [batcher for batcher in self._replaced if batcher.is_computing or not batcher.is_idle]

    def _tell_default(self, task: str) -> None:
        """Log which model answers when a request names none, or that requests have to name one."""
        default = self.models.settle(task)
        if default is not None:
            log.info("%s: %s answers when a request names no model (%s)", task, default.name, default.reason)
            return
        known = ", ".join(model.manifest.name for model in self.models.values() if model.manifest.task == task)
        setting = next(setting for setting, of in SETTINGS.items() if of == task)
        log.warning("%s: requests have to name one of %s, unless %s or %s does", task, known, setting, DEFAULTS)

    def _serve(self, model: LoadedModel) -> ServedModel:
        """Put a batcher before a model and announce it."""
        manifest, bound = model.manifest, self._metrics.of(model.manifest.name)
        batcher = Batcher(model.run, model.row_lengths, self._limits, self._executor, bound, self.crashed.set)
        bound.watch(
            lambda: batcher.waiting_rows, lambda: batcher.waiting_bytes, batcher.oldest_s, lambda: batcher.is_ready
        )
        bound.load_seconds.set(model.load_seconds)
        files = manifest.files_of(model.format)
        file, device = files[max(files)], model.backend.device
        facts = (str(manifest.version), manifest.task, model.format, device, file.precision, file.sha256)
        self._metrics.announce(manifest.name, *facts)
        if isinstance(manifest, ClassifierManifest):
            return ServedClassifier(manifest, batcher, bound)
        if isinstance(manifest, ForecasterManifest):
            assert model.calibration is not None
            return ServedForecaster(manifest, batcher, bound, model.calibration)
        cache = EncodingCache(self._settings.max_cache_bytes, bound)
        bound.watch_cache(lambda: cache.size)
        return ServedMatcher(manifest, batcher, bound, cache, model, self._executor)

    @property
    def is_ready(self) -> bool:
        """Whether every model takes requests and the server is to stay."""
        return not self._is_draining and all(model.batcher.is_ready for model in self.models.values())

    @property
    def is_draining(self) -> bool:
        """Whether the server is about to stop."""
        return self._is_draining

    def refusal(self, task: str, left_s: float, entering: int) -> LongdocError | None:
        """Why a request is refused before it is read, if no model of its task can take one; counted.

        Args:
            task: of the model.
            left_s: until the deadline.
            entering: requests for the task that were admitted and have not asked yet.

        """
        first: tuple[ServedModel, Refusal] | None = None
        for model in self.models.values():
            if model.manifest.task == task:
                refusal = model.batcher.refusal(left_s, entering)
                if refusal is None:
                    return None
                first = first or (model, refusal)
        if first is None:
            return None
        model, refused = first
        model.metrics.rejected(refused.reason)
        return refused.error

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
