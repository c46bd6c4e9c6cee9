"""Every Prometheus metric of the service, on a registry of its own. Created by `service.app`."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

disable_created_metrics()  # type: ignore[no-untyped-call]

SECONDS = (
    *(ms / 1000 for ms in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 125, 250, 500)),
    *(1.0, 2.0, 4.0, 8.0, 16.0),
)
ROWS = tuple(2.0**i for i in range(11))
BYTES = tuple(2.0**i for i in range(4, 21))
RATIO = tuple(i / 10 for i in range(10))


class Metrics:
    """The families of the contract, part 7."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        r = self.registry
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
            "decode": "Body to rows.",
            "compute": "Longest batch of a request.",
            "encode": "Outputs to answer.",
        }
        self.stages = {
            stage: Histogram(f"longdoc_request_{stage}_seconds", text, model, buckets=SECONDS, registry=r)
            for stage, text in stages.items()
        }
        self.in_flight = Gauge("longdoc_requests_in_flight", "Requests being answered.", model, registry=r)
        self.queue_depth = Gauge("longdoc_queue_depth", "Rows waiting for a batch.", model, registry=r)
        self.queue_bytes = Gauge("longdoc_queue_bytes", "Bytes waiting for a batch.", model, registry=r)
        self.queue_oldest = Gauge("longdoc_queue_oldest_seconds", "Age of the oldest row waiting.", model, registry=r)
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
        self.cache_bytes = Gauge("longdoc_encoding_cache_bytes", "Size of the cache of encodings.", model, registry=r)
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
            registry=r,
        )
        self.model_ready = Gauge("longdoc_model_ready", "1 if the model takes requests.", model, registry=r)
        self.model_load = Gauge("longdoc_model_load_seconds", "Time to load, check and warm.", model, registry=r)

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

    def duration(self, task: str) -> Histogram:
        """Histogram of whole requests of a task."""
        return self._metrics.duration.labels(self._model, task)

    def batch_closed(self, reason: str) -> None:
        """Count a batch: full, or drained (nothing else of its kind waited)."""
        self._metrics.batches.labels(self._model, reason).inc()

    def rejected(self, reason: str) -> None:
        """Count a refused request."""
        self._metrics.rejected.labels(self._model, reason).inc()

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

    def cache_requests(self, result: str) -> None:
        """Count a text looked up: hit or miss."""
        self._metrics.cache_requests.labels(self._model, result).inc()

    def watch_cache(self, size: Callable[[], float]) -> None:
        """Read the size of the cache when scraped."""
        self._metrics.cache_bytes.labels(self._model).set_function(size)

    def watch(
        self,
        depth: Callable[[], float],
        size: Callable[[], float],
        oldest: Callable[[], float],
        ready: Callable[[], float],
    ) -> None:
        """Read the gauges of the queue when scraped."""
        self._metrics.queue_depth.labels(self._model).set_function(depth)
        self._metrics.queue_bytes.labels(self._model).set_function(size)
        self._metrics.queue_oldest.labels(self._model).set_function(oldest)
        self._metrics.model_ready.labels(self._model).set_function(ready)
