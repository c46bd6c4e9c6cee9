"""Every Prometheus metric of the service. Created by `service.server`.

Several workers share a folder, which prometheus_client reads from the environment when it is imported: each keeps its
numbers in files there, and whichever is asked adds up those of all. The files bear the number of the worker, not of its
process: one that is started again goes on with those of the one before it.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
    values,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

disable_created_metrics()  # type: ignore[no-untyped-call]

SECONDS = (
    *(ms / 1000 for ms in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 125, 250, 500)),
    *(1.0, 2.0, 4.0, 8.0, 16.0),
)
ROWS = tuple(2.0**i for i in range(11))
BYTES = tuple(2.0**i for i in range(4, 21))
RATIO = tuple(i / 10 for i in range(10))


INFERENCE_ERRORS = ("raised", "non_finite", "crashed")
REJECTED = ("overloaded", "too_late", "deadline", "shutting_down", "not_ready")
SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Variable that names the folder of several workers."""
SAMPLE_S = 1.0
"""Age at most of the gauges that a worker shows to the others."""


RESERVED_BYTES = {"counter": 2**16, "histogram": 2**18} | {f"gauge_live{mode}": 2**16 for mode in ("sum", "max", "min")}
"""Room for a worker's numbers, by kind. They are mapped into memory: where the disk is full, the first touch of a page
would end the process by SIGBUS."""


def set_worker(folder: Path, index: int) -> None:
    """Make this process the worker of that number. Call it before the first metric is made.

    Raises: OSError that names the folder, if there is no room for its numbers.
    """
    try:
        (folder / f"worker-{index}").write_text(str(os.getpid()))
        for kind, size in RESERVED_BYTES.items():
            with (folder / f"{kind}_{index}.db").open("ab") as stream:
                stream.write(bytes(max(0, size - stream.tell())))
    except OSError as error:
        raise OSError(f"cannot keep metrics in {folder}: {error.strerror}") from None
    values.ValueClass = values.MultiProcessValue(lambda: index)  # type: ignore[no-untyped-call]


def forget_worker(folder: Path, index: int) -> None:
    """Drop the gauges of a worker that has ended; what it counted stays."""
    mark_process_dead(index, str(folder))  # type: ignore[no-untyped-call]


class _Workers(Collector):
    """`process_*` of each worker, under the name `longdoc_worker_*`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        """Families with one sample a worker."""
        families: dict[str, Metric] = {}
        for path in sorted(self._folder.glob("worker-*")):
            pid = int(path.read_text() or 0)
            for found in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                name = found.name.replace("process", "longdoc_worker", 1)
                family = families.setdefault(name, Metric(name, found.documentation, found.type))
                for sample in found.samples:
                    labels = {"worker": path.name.removeprefix("worker-")}
                    family.add_sample(sample.name.replace("process", "longdoc_worker", 1), labels, sample.value)
        yield from families.values()


class Metrics:
    """The families of the contract, part 7."""

    def __init__(self) -> None:
        shared = os.environ.get(SHARED)
        self.is_shared = shared is not None
        self.registry = r = CollectorRegistry()
        self._exposed = CollectorRegistry() if shared else r
        if shared:
            MultiProcessCollector(self._exposed, shared)  # type: ignore[no-untyped-call]
            self._exposed.register(_Workers(Path(shared)))
        ProcessCollector(registry=self._exposed, pid=os.getppid if shared else lambda: "self")
        PlatformCollector(registry=self._exposed)
        self._watched: dict[tuple[Gauge, str], Callable[[], float]] = {}
        self._announced: dict[str, tuple[str, ...]] = {}
        model = ("model",)
        self.http_requests = Counter(
            "longdoc_http_requests", "Answers by route.", ("route", "method", "code"), registry=r
        )
        self.duration = Histogram(
            "longdoc_request_duration_seconds",
            "From the head of a request to its answer.",
            ("model", "task"),
            buckets=SECONDS,
            registry=r,
        )
        stages = {
            "queue": "Longest wait of a request's rows for a batch.",
            "decode": "Documents to rows.",
            "compute": "Longest batch of a request.",
            "encode": "Outputs to answer.",
        }
        self.stages = {
            stage: Histogram(f"longdoc_request_{stage}_seconds", text, model, buckets=SECONDS, registry=r)
            for stage, text in stages.items()
        }
        self.in_flight = Gauge(
            "longdoc_requests_in_flight", "Requests being answered.", model, multiprocess_mode="livesum", registry=r
        )
        self.queue_depth = Gauge(
            "longdoc_queue_depth", "Rows waiting for a batch.", model, multiprocess_mode="livesum", registry=r
        )
        self.queue_bytes = Gauge(
            "longdoc_queue_bytes", "Bytes waiting for a batch.", model, multiprocess_mode="livesum", registry=r
        )
        self.queue_oldest = Gauge(
            "longdoc_queue_oldest_seconds",
            "Age of the oldest request with a row that waits.",
            model,
            multiprocess_mode="livemax",
            registry=r,
        )
        self.batch_size = Histogram("longdoc_batch_size", "Rows in a batch.", model, buckets=ROWS, registry=r)
        self.batch_padding = Histogram(
            "longdoc_batch_padding_ratio", "Share of a batch that is padding.", model, buckets=RATIO, registry=r
        )
        self.batches = Counter(
            "longdoc_batches", "Batches by why they were closed: full, or nothing else waited.",
            ("model", "reason"), registry=r,
        )  # fmt: skip
        self.rejected = Counter(
            "longdoc_requests_rejected", "Requests refused by the engine.", ("model", "reason"), registry=r
        )
        self.cancelled = Counter(
            "longdoc_requests_cancelled", "Requests whose client left.", ("model", "stage"), registry=r
        )
        self.documents = Counter("longdoc_documents", "Documents answered.", model, registry=r)
        self.document_bytes = Histogram(
            "longdoc_document_bytes", "Length of documents.", model, buckets=BYTES, registry=r
        )
        self.truncated = Counter("longdoc_documents_truncated", "Documents not read completely.", model, registry=r)
        self.bytes_dropped = Counter("longdoc_bytes_dropped", "Bytes of documents not read.", model, registry=r)
        self.cache_requests = Counter(
            "longdoc_encoding_cache_requests", "Distinct texts looked up in the cache.", ("model", "result"), registry=r
        )
        self.cache_bytes = Gauge(
            "longdoc_encoding_cache_bytes",
            "Size of the cache of encodings.",
            model,
            multiprocess_mode="livesum",
            registry=r,
        )
        self.inference_errors = Counter(
            "longdoc_inference_errors", "Requests failed by the backend.", ("model", "kind"), registry=r
        )
        self.exports_refused = Counter(
            "longdoc_exports_refused", "Exports that cannot be served.", ("model", "reason"), registry=r
        )
        self.model_info = Gauge(
            "longdoc_model_info",
            "1 for each model served.",
            ("model", "version", "task", "format", "device", "precision", "sha256"),
            multiprocess_mode="livemax",
            registry=r,
        )
        self.model_ready = Gauge(
            "longdoc_model_ready", "1 if the model takes requests.", model, multiprocess_mode="livemin", registry=r
        )
        self.model_load = Gauge(
            "longdoc_model_load_seconds",
            "Time to load, check and warm.",
            model,
            multiprocess_mode="livemax",
            registry=r,
        )

    def announce(self, model: str, *labels: str) -> None:
        """Say what is served under a name; what was before is served no more."""
        self._retract(model)
        self._announced[model] = (model, *labels)
        self.model_info.labels(model, *labels).set(1)

    def withdraw(self, model: str) -> None:
        """Say that nothing is served under a name any more; what was counted stays."""
        self._retract(model)
        for gauge in [gauge for gauge, watched in self._watched if watched == model]:
            del self._watched[gauge, model]
            if self.is_shared:
                gauge.labels(model).set(0)
            else:
                gauge.remove(model)

    def _retract(self, model: str) -> None:
        if (before := self._announced.pop(model, None)) is not None:
            if self.is_shared:  # prometheus_client cannot remove a series from a shared file
                self.model_info.labels(*before).set(0)
            else:
                self.model_info.remove(*before)

    def watch(self, gauge: Gauge, model: str, value: Callable[[], float]) -> None:
        """Take a gauge's value from a function, whenever it is shown."""
        self._watched[gauge, model] = value

    def sample(self) -> None:
        """Bring the gauges that are watched up to date."""
        for (gauge, model), value in self._watched.items():
            gauge.labels(model).set(value())

    def expose(self) -> bytes:
        """Prometheus text of this process, or of all workers."""
        self.sample()
        return generate_latest(self._exposed)

    def of(self, model: str) -> "ModelMetrics":
        """The metrics of one model, its label bound."""
        return ModelMetrics(self, model)


class ModelMetrics:
    """Label `model` bound once, since binding costs more than counting."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        self._model = model
        self.queue_seconds = metrics.stages["queue"].labels(model)
        self.decode_seconds = metrics.stages["decode"].labels(model)
        self.compute_seconds = metrics.stages["compute"].labels(model)
        self.encode_seconds = metrics.stages["encode"].labels(model)
        self.in_flight = metrics.in_flight.labels(model)
        self.batch_size = metrics.batch_size.labels(model)
        self.batch_padding = metrics.batch_padding.labels(model)
        self.documents = metrics.documents.labels(model)
        self.document_bytes = metrics.document_bytes.labels(model)
        self.truncated = metrics.truncated.labels(model)
        self.bytes_dropped = metrics.bytes_dropped.labels(model)
        self.load_seconds = metrics.model_load.labels(model)
        for kind in INFERENCE_ERRORS:  # a counter that starts at 1 shows Prometheus no increase
            metrics.inference_errors.labels(model, kind)
        self._rejected = {reason: metrics.rejected.labels(model, reason) for reason in REJECTED}
        for stage in ("queue", "compute"):
            metrics.cancelled.labels(model, stage)

    def answered(
        self, task: str, *, decode_s: float, queue_s: float, compute_s: float, encode_s: float, total_s: float
    ) -> None:
        """Record the stages of a request that was answered."""
        self.decode_seconds.observe(decode_s)
        self.queue_seconds.observe(queue_s)
        self.compute_seconds.observe(compute_s)
        self.encode_seconds.observe(encode_s)
        self._metrics.duration.labels(self._model, task).observe(total_s)

    def batch_closed(self, reason: str) -> None:
        """Count a batch: full, or drained (nothing else of its kind waited)."""
        self._metrics.batches.labels(self._model, reason).inc()

    def rejected(self, reason: str) -> None:
        """Count a refused request."""
        self._rejected[reason].inc()

    def cancelled(self, stage: str) -> None:
        """Count a request whose client left, in the queue or in compute."""
        self._metrics.cancelled.labels(self._model, stage).inc()

    def inference_error(self, kind: str) -> None:
        """Count a request that the backend failed: raised, non_finite or crashed."""
        self._metrics.inference_errors.labels(self._model, kind).inc()

    def count_document(self, total: int, used: int) -> None:
        """Count a document and what of it was not read, in bytes."""
        self.documents.inc()
        self.document_bytes.observe(total)
        if used < total:
            self.truncated.inc()
            self.bytes_dropped.inc(total - used)

    def cache_requests(self, result: str, count: int) -> None:
        """Count texts looked up: hit or miss."""
        self._metrics.cache_requests.labels(self._model, result).inc(count)

    def watch_cache(self, size: Callable[[], float]) -> None:
        """Show the size of the cache."""
        self._metrics.watch(self._metrics.cache_bytes, self._model, size)

    def watch(
        self,
        depth: Callable[[], float],
        size: Callable[[], float],
        oldest: Callable[[], float],
        ready: Callable[[], float],
    ) -> None:
        """Show the state of the queue."""
        metrics = self._metrics
        for gauge, value in (
            (metrics.queue_depth, depth),
            (metrics.queue_bytes, size),
            (metrics.queue_oldest, oldest),
            (metrics.model_ready, ready),
        ):
            metrics.watch(gauge, self._model, value)
