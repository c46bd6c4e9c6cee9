"""The models of a process: serve, replace and remove them, reject requests early, drain."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from artifact.backends.base import BATCH_ROWS, batches_at_once
from artifact.defaults import DEFAULTS
from artifact.loading import LoadedModel
from service.batching.admission import Limits
from service.batching.batcher import Batcher
from service.batching.lane import BackgroundThreads, ForegroundThreads
from service.engine.cache import EncodingCache
from service.engine.selection import DEFAULT_SETTINGS, Default, Models, check_task, unknown_defaults
from service.engine.served import AnyModel, ServedModel
from service.errors import RetryableError
from service.metrics import Metrics
from service.settings import Settings

log = logging.getLogger(__name__)


class Engine:
    """The models that a process serves; used only from the event loop.

    Each version of a model has its own queues. All versions share the threads, one for each slot of each lane. A GPU
    has a fixed number of slots. A CPU has one slot per core, divided among the workers; each batch is computed by one
    thread and is small, so that its activations fit into the CPU's caches.

    Args:
        models: served from the start.
        settings: the settings of the server.
        metrics: the metrics of the process.
        defaults: content of `defaults.json`.

    """

    def __init__(
        self,
        models: Sequence[LoadedModel],
        settings: Settings,
        metrics: Metrics,
        defaults: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._settings = settings
        self._is_draining = False
        self.crashed = asyncio.Event()
        is_cuda = any(model.backend.device == "cuda" for model in models)
        device: Literal["cpu", "cuda"] = "cuda" if is_cuda else "cpu"
        slots = batches_at_once(device) if is_cuda else max(1, batches_at_once(device) // settings.workers)
        self._background = BackgroundThreads(slots)
        self._foreground = ForegroundThreads(slots, self._background)
        self._limits = Limits(
            batch_rows=settings.max_batch_rows or BATCH_ROWS[device],
            queue_rows=settings.max_queue_rows,
            queue_bytes=settings.max_queue_bytes,
            slots=slots,
        )
        self._metrics = metrics
        self._removed: list[AnyModel] = []
        self._defaults: Mapping[str, str] = {}
        self.models = Models(settings)
        for model in models:
            self.models.add(self._create_served(model))
        if defaults:
            self._set_defaults(defaults)
        for task in self._tasks():
            self._log_default(task, self.models.choose_default(task))

    def put(self, model: LoadedModel) -> None:
        """Serve a version of a model, in addition to the versions already served.

        Raises: BadExport if the model is already served for another task.
        """
        name, task = model.manifest.name, model.manifest.task
        other = self.models.get(name)
        check_task(model.manifest, other.manifest if other else None)
        before = self.models.default(task)
        self.models.add(self._create_served(model))
        self._update_default(task, before)

    def remove(self, name: str, version: int) -> AnyModel:
        """Stop serving a version of a model and return it; its requests in flight are still answered."""
        task = self.models[name].manifest.task
        before = self.models.default(task)
        model = self.models.discard(name, version)
        self._removed.append(model)
        model.metrics.withdraw()
        if task in self._tasks():
            self._update_default(task, before)
        return model

    async def drain_removed(self, name: str) -> None:
        """Wait until no request of a removed version of a model is in flight."""
        for model in list(self._removed):
            if model.manifest.name == name:
                await model.drain()

    def release_removed(self) -> None:
        """Free the memory of removed models that have no request in flight."""
        self._removed = [model for model in self._removed if not model.is_idle]

    def use_defaults(self, defaults: Mapping[str, str]) -> None:
        """Replace the default models of `defaults.json`; log the names that are not served."""
        if defaults == self._defaults:
            return
        before = {task: self.models.default(task) for task in self._tasks()}
        self._set_defaults(defaults)
        for task, default in before.items():
            self._update_default(task, default)

    def _set_defaults(self, defaults: Mapping[str, str]) -> None:
        self._defaults = defaults
        self.models.use_defaults(defaults)
        models = self._settings.models
        expected = {task: name for task, name in defaults.items() if not models or name.partition("@")[0] in models}
        for problem in unknown_defaults(expected, [model.manifest for model in self.models.served]):
            log.warning("%s: %s", self._settings.exports / DEFAULTS, problem)

    def _tasks(self) -> list[str]:
        """Tasks of the served models, sorted."""
        return sorted({model.manifest.task for model in self.models.served})

    def _update_default(self, task: str, before: Default | None) -> None:
        """Choose the default model of a task again; log it if it has changed."""
        default = self.models.choose_default(task)
        if default != before:
            self._log_default(task, default)

    def _log_default(self, task: str, default: Default | None) -> None:
        """Log the default model of a task, or that there is none and requests must name a model."""
        if default is not None:
            log.info("%s: requests without a model go to %s (%s)", task, default.name, default.reason)
            return
        known = ", ".join(model.manifest.name for model in self.models.values() if model.manifest.task == task)
        log.warning(
            "%s: requests must name a model (%s), because neither %s nor %s names a served one",
            task, known, DEFAULT_SETTINGS[task], DEFAULTS,
        )  # fmt: skip

    def _create_served(self, model: LoadedModel) -> AnyModel:
        """Create the served model of a loaded one, with its batcher; publish its metrics."""
        manifest, model_metrics = model.manifest, self._metrics.of(model.manifest.name)
        batcher = Batcher(
            model.run,
            model.row_lengths,
            self._limits,
            self._foreground,
            self._background,
            model_metrics,
            self.crashed.set,
        )
        model_metrics.watch_queue(
            lambda: batcher.waiting_rows, lambda: batcher.waiting_bytes, batcher.oldest_age_s, lambda: batcher.is_ready
        )
        model_metrics.load_seconds.set(model.load_seconds)
        files = manifest.files_of(model.format)
        file, device = files[max(files)], model.backend.device
        model_metrics.announce(str(manifest.version), manifest.task, model.format, device, file.precision, file.sha256)
        cache = None
        if model.task.has_head:
            cache = EncodingCache(self._settings.max_cache_bytes, model_metrics)
            model_metrics.watch_cache(lambda: cache.size)
        return ServedModel(
            model.task,
            batcher,
            model_metrics,
            model.run_head,
            self._foreground,
            self._limits.slots,
            cache,
            model.card,
            model.created,
        )

    @property
    def is_ready(self) -> bool:
        """Whether every model accepts requests and the server is not draining."""
        return not self._is_draining and all(model.batcher.is_ready for model in self.models.served)

    def is_serving(self, model: AnyModel) -> bool:
        """Whether a model accepts requests and the server is not draining."""
        return model.batcher.is_ready and not self._is_draining

    @property
    def is_draining(self) -> bool:
        """Whether the server is draining before it stops."""
        return self._is_draining

    def may_reject(self, tasks: Sequence[str], left_s: float) -> bool:
        """Whether any model of some tasks would reject a request; arguments as in `rejection`."""
        models = (model for task in tasks for model in self.models.of_task(task))
        return any(model.batcher.rejection(left_s) is not None for model in models)

    def rejection(
        self,
        tasks: Sequence[str],
        left_s: float,
        asked: Callable[[], AnyModel | None] = lambda: None,
        size: int | None = None,
    ) -> RetryableError | None:
        """Why a request is rejected before it is handled; None if a model that it may ask for can accept it.

        A rejection is counted in the metrics of the model; if the model is not known, in those of the default model of
        the first task that has one, or of the first model.

        Args:
            tasks: tasks that the request may ask for.
            left_s: seconds until its deadline.
            asked: returns the model that the request asks for; None if that is not known before it is handled. Called
                only if the models of the tasks differ in whether they can accept it.
            size: bytes of its documents; None if not known.

        """
        models = [model for task in tasks for model in self.models.of_task(task)]
        rejections = [
            (model, rejection) for model in models if (rejection := model.batcher.rejection(left_s, size)) is not None
        ]
        if not rejections:
            return None
        if len(rejections) < len(models):
            named = asked()
            rejections = [(model, rejection) for model, rejection in rejections if model is named]
            if not rejections:
                return None
        defaults = [self.models.default_model(task) for task in tasks] if len(rejections) > 1 else []
        by_default = (pair for default in defaults for pair in rejections if pair[0] is default)
        model, rejection = next(by_default, rejections[0])
        model.metrics.rejected(rejection.reason)
        model.metrics.failed(0.0)
        return rejection.error

    def begin_drain(self) -> None:
        """Report that the server is not ready; still accept requests, because load balancers need time to react."""
        self._is_draining = True

    async def drain(self) -> None:
        """Reject new requests and wait until the accepted ones are answered."""
        self._is_draining = True
        batchers = self._batchers()
        for batcher in batchers:
            batcher.close()
        await asyncio.gather(*(batcher.drain() for batcher in batchers))

    @property
    def is_computing(self) -> bool:
        """Whether a batch is being computed."""
        return any(batcher.is_computing for batcher in self._batchers())

    def _batchers(self) -> list[Batcher]:
        return [model.batcher for model in (*self._removed, *self.models.served)]

    def close(self) -> None:
        """Reject all requests and shut the threads down without waiting for batches that are being computed."""
        for batcher in self._batchers():
            batcher.close()
        for threads in (self._foreground, self._background):
            threads.shutdown(wait=False, cancel_futures=True)
