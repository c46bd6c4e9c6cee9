"""The engine: models with their batchers, from loading to drain. Created by `service.server`, used by the routes."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from service.batching import Batcher, Floats, Limits
from service.codec import pad_rows
from service.errors import BadExport, InvalidInput, ModelNotFound
from service.exports import LoadedModel, find_exports, load_export
from service.manifest import Manifest
from service.metrics import Metrics, ModelMetrics
from service.settings import Settings, cpu_count

log = logging.getLogger(__name__)

CPU_BATCH_ROWS = 4
CUDA_BATCH_ROWS = 64
CUDA_SLOTS = 2
"""One batch computes while the next one is copied."""


def load_models(settings: Settings, metrics: Metrics) -> list[LoadedModel]:
    """Load the newest version of every export.

    Raises: BadExport for the first damaged one, unless `skip_bad_exports`; always if none is left.
    """
    models, refused = [], None
    for folder in find_exports(settings.exports):
        try:
            models.append(load_export(folder, format=settings.backend, device=settings.device))
        except BadExport as error:
            metrics.exports_refused.labels(folder.parent.name, error.reason).inc()
            if not settings.skip_bad_exports:
                raise
            log.error("refused: %s", error)
            refused = error
    if refused is not None and not models:
        raise refused
    names = [model.manifest.name for model in models]
    if settings.default_classifier not in (None, *names):
        known = ", ".join(names)
        raise BadExport(
            f"default_classifier {settings.default_classifier!r} is not among the exports: {known}", "missing"
        )
    return models


class ServedModel:
    """A loaded model behind its batcher."""

    def __init__(self, model: LoadedModel, batcher: Batcher, metrics: ModelMetrics) -> None:
        self.manifest = model.manifest
        self.batcher = batcher
        self.metrics = metrics


class Engine:
    """All models of the process; lives on one event loop.

    Each model has its own queue; they share one pool with a thread for each slot. On a CPU there is a slot for every
    core and each run takes one thread: small batches side by side keep their activations in the cache.
    """

    def __init__(self, models: Sequence[LoadedModel], settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._is_draining = False
        is_cuda = any(model.backend.device == "cuda" for model in models)
        slots = CUDA_SLOTS if is_cuda else cpu_count()
        self._executor = ThreadPoolExecutor(slots, thread_name_prefix="inference")
        limits = Limits(
            batch_rows=settings.max_batch_rows or (CUDA_BATCH_ROWS if is_cuda else CPU_BATCH_ROWS),
            queue_rows=settings.max_queue_rows,
            queue_bytes=settings.max_queue_bytes,
            slots=slots,
        )
        self.models = {model.manifest.name: self._serve(model, limits, metrics) for model in models}

    def _serve(self, model: LoadedModel, limits: Limits, metrics: Metrics) -> ServedModel:
        """Put a batcher before a model and announce it."""
        manifest, backend = model.manifest, model.backend
        files = manifest.files_of(model.format)
        bytes_name, lengths_name = (spec.name for spec in manifest.inputs)
        output_name = manifest.outputs[0].name

        def run(rows: Sequence[bytes], bucket: int) -> Floats:
            padded, lengths = pad_rows(rows, bucket)
            return backend.run({bytes_name: padded, lengths_name: lengths})[output_name]

        bound = metrics.of(manifest.name)
        batcher = Batcher(run, sorted(files), limits, self._executor, bound)
        bound.watch(
            lambda: batcher.waiting_rows, lambda: batcher.waiting_bytes, batcher.oldest_s, lambda: batcher.is_ready
        )
        bound.load_seconds.set(model.load_seconds)
        file = files[max(files)]
        metrics.model_info.labels(
            manifest.name, manifest.version, manifest.task, model.format, backend.device, file.precision, file.sha256
        ).set(1)
        return ServedModel(model, batcher, bound)

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

    def classifier(self, name: str | None) -> ServedModel:
        """Model for a request: the one named, the setting's, or the only one.

        Raises: ModelNotFound; InvalidInput if the model is of another task, or one has to be named.
        """
        name = name or self._settings.default_classifier
        names = [m.manifest.name for m in self.models.values() if m.manifest.task == "text-classification"]
        if name is None and len(names) != 1:
            known = ", ".join(names) or "none"
            raise InvalidInput(f"name a model; text classifiers: {known}", [("model", "missing")])
        return self.model(name or names[0])

    def begin_drain(self) -> None:
        """End readiness; requests are still taken, for clients that have not noticed yet."""
        self._is_draining = True

    async def drain(self) -> None:
        """Take no more requests and wait for those accepted."""
        self._is_draining = True
        for model in self.models.values():
            model.batcher.close()
        await asyncio.gather(*(model.batcher.drain() for model in self.models.values()))

    def close(self) -> None:
        """Give the threads back; what still computes is left behind."""
        self._executor.shutdown(wait=False, cancel_futures=True)


PUBLIC = {
    *("name", "version", "task", "labels", "max_length", "window_overlap"),
    *("results", "training", "data_terms", "non_commercial"),
}


def public_facts(manifest: Manifest) -> dict[str, object]:
    """What `/v1/models` tells of a model."""
    return manifest.model_dump(mode="json", include=PUBLIC)
