"""Every Prometheus metric of the service. `service.multiprocess` combines those of several workers."""

import asyncio
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from artifact.documents import TextCoverage
from artifact.recordings import RecordingCoverage
from artifact.series import SeriesCoverage
from service.multiprocess import SharedMetricsCollector, WorkersCollector, forget_worker
from service.sharing import Content, Paced
from service.statistics import Statistics

disable_created_metrics()  # type: ignore[no-untyped-call]

SECONDS = (
    *(ms / 1000 for ms in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 125, 250, 500)),
    *(1.0, 2.0, 4.0, 8.0, 16.0),
)
ROWS = tuple(2.0**i for i in range(11))
BYTES = tuple(2.0**i for i in range(4, 21))
RATIO = tuple(i / 10 for i in range(10))

INFERENCE_ERRORS = ("raised", "non_finite", "crashed")
PARSER_KILLS = ("time", "memory", "other")
REJECTED = ("overloaded", "too_late", "deadline", "client_deadline", "shutting_down", "not_ready")
Aggregation: TypeAlias = Callable[[Iterable[float]], float]
NEUTRAL: Mapping[Aggregation, float] = {sum: 0.0, max: -math.inf, min: math.inf}
"""Aggregation over workers -> its neutral value. With several workers, a removed series of a gauge gets this value, so
that it does not change the aggregate. A sum then stays at 0; an infinite aggregate is not exposed."""
EXPOSE_S = 1.0
"""Pause after metrics were written for a scrape; they take tens of milliseconds with many models or workers."""
SAMPLE_S = 1.0
"""Interval at which a worker updates its gauges for the other workers."""


class Definitions:
    """The metrics themselves; docs/operate/monitoring.md lists them.

    Args:
        registry: where they are registered.

    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.aggregations: dict[Gauge, Aggregation] = {}
        """How a gauge is aggregated, over the versions of a model as over workers."""
        self._define_requests()
        self._define_batches()
        self._define_documents()
        self._define_failures()
        self._define_parser()
        self._define_models()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str, over: Aggregation, *labels: str) -> Gauge:
        """A gauge; `over` aggregates it over the versions of a model, and over workers: sum, max or min."""
        mode = f"live{over.__name__}"
        gauge = Gauge(name, text, labels, multiprocess_mode=mode, registry=self.registry)  # type: ignore[arg-type]  # a Literal
        self.aggregations[gauge] = over
        return gauge

    def _define_requests(self) -> None:
        self.http_requests = self._counter("longdoc_http_requests", "HTTP responses.", "route", "method", "code")
        text = "Time from a complete request to its response."
        self.duration = self._histogram("longdoc_request_duration_seconds", text, SECONDS, "model", "task")
        stages = {
            "queue": "Longest time that a row of a request was queued.",
            "decode": "Time to convert documents to rows.",
            "compute": "Time of the longest batch of a request.",
            "encode": "Time to convert outputs to a response.",
        }
        self.stages = {
            stage: self._histogram(f"longdoc_request_{stage}_seconds", text, SECONDS, "model")
            for stage, text in stages.items()
        }
        self.in_flight = self._gauge("longdoc_requests_in_flight", "Requests in flight.", sum, "model")

    def _define_batches(self) -> None:
        self.queue_depth = self._gauge("longdoc_queue_depth", "Queued rows.", sum, "model")
        self.queue_bytes = self._gauge("longdoc_queue_bytes", "Bytes of the queued rows.", sum, "model")
        text = "Age of the oldest request with a queued row, without lines of uploads."
        self.queue_oldest = self._gauge("longdoc_queue_oldest_seconds", text, max, "model")
        self.batch_size = self._histogram("longdoc_batch_size", "Rows per batch.", ROWS, "model")
        self.batch_padding = self._histogram(
            "longdoc_batch_padding_ratio", "Share of a batch that is padding.", RATIO, "model"
        )
        text = "Batches; reason full, spread over slots, or drained if no other row was queued."
        self.batches = self._counter("longdoc_batches", text, "model", "reason")
        self.rejected = self._counter(
            "longdoc_requests_rejected", "Requests rejected by the engine.", "model", "reason"
        )
        self.cancelled = self._counter(
            "longdoc_requests_cancelled", "Requests whose client disconnected.", "model", "stage"
        )

    def _define_documents(self) -> None:
        self.documents = self._counter("longdoc_documents", "Answered documents and series.", "model")
        self.document_bytes = self._histogram("longdoc_document_bytes", "Length of documents.", BYTES, "model")
        text = "Share of a document's words that the model knows."
        self.document_known = self._histogram("longdoc_document_known_ratio", text, RATIO, "model")
        self.truncated = self._counter(
            "longdoc_documents_truncated", "Documents and recordings that were not read completely.", "model"
        )
        self.bytes_dropped = self._counter("longdoc_bytes_dropped", "Bytes of documents that were not read.", "model")
        text = "Distinct texts looked up in the cache of encodings."
        self.cache_requests = self._counter("longdoc_encoding_cache_requests", text, "model", "result")
        self.cache_bytes = self._gauge("longdoc_encoding_cache_bytes", "Size of the cache of encodings.", sum, "model")

    def _define_failures(self) -> None:
        self.inference_errors = self._counter(
            "longdoc_inference_errors", "Requests that failed in the backend.", "model", "kind"
        )
        self.exports_refused = self._counter(
            "longdoc_exports_refused", "Exports that cannot be served.", "model", "reason"
        )

    def _define_parser(self) -> None:
        self.parser_jobs = self._counter("longdoc_parser_jobs", "Bodies parsed in other processes.")
        text = "Processes that ended while they parsed a body."
        self.parser_kills = self._counter("longdoc_parser_kills", text, "reason")
        for reason in PARSER_KILLS:
            self.parser_kills.labels(reason)
        text = "Age of the oldest body that is not parsed yet."
        self.parser_oldest = self._gauge("longdoc_parser_oldest_seconds", text, max)

    def _define_models(self) -> None:
        labels = ("model", "version", "task", "format", "device", "precision", "sha256")
        self.model_info = self._gauge("longdoc_model_info", "1 for each served version.", max, *labels)
        self.model_ready = self._gauge("longdoc_model_ready", "1 if the model accepts requests.", min, "model")
        text = "Time to load, verify and warm up the model."
        self.model_load = self._gauge("longdoc_model_load_seconds", text, max, "model")


class Metrics(Definitions):
    """The metrics of a process, or of several workers.

    Args:
        shared: folder that workers share; this process is the worker that `set_worker` made it.
        node: id of the node of a Ray cluster; becomes a label of every metric. Its replicas share a folder, as
            workers do. The metrics of their parent, a process of Ray, are not exposed.

    """

    def __init__(self, shared: Path | None = None, node: str | None = None) -> None:
        if shared is None:
            forget_worker()
        super().__init__(CollectorRegistry())
        self.is_shared = shared is not None
        self._exposed = CollectorRegistry() if shared else self.registry
        labels = {} if node is None else {"node": node}
        if shared:
            SharedMetricsCollector(self._exposed, shared, labels)
            self._exposed.register(WorkersCollector(shared, labels))
        if node is None:
            ProcessCollector(registry=self._exposed, pid=os.getppid if shared else lambda: "self")
        PlatformCollector(registry=self._exposed)
        self._exposition = Paced(self._write, EXPOSE_S)
        self._watched: dict[tuple[Gauge, str], dict[ModelMetrics, Callable[[], float]]] = {}
        """(gauge, name of a model) -> metrics of a version -> function that returns the value of the gauge."""
        self._responses: dict[tuple[str, str, int], Counter] = {}
        """Series of `http_requests`: the look-up in prometheus_client costs more than counting."""
        self.parser_age: Callable[[], float] = lambda: 0.0
        """Returns the value of `parser_oldest`; set by `service.parser`."""

    def count_response(self, route: str, method: str, code: int) -> None:
        """Count an HTTP response."""
        counter = self._responses.get((route, method, code))
        if counter is None:
            counter = self._responses[route, method, code] = self.http_requests.labels(route, method, code)
        counter.inc()

    def watch(self, gauge: Gauge, model_metrics: "ModelMetrics", value: Callable[[], float]) -> None:
        """Read the gauge of a version from a function at every sample."""
        self._watched.setdefault((gauge, model_metrics.model), {})[model_metrics] = value

    def unwatch(self, model_metrics: "ModelMetrics") -> None:
        """Stop reading the gauges of a version; remove the gauges of a model with its last version."""
        for (gauge, model), functions in list(self._watched.items()):
            if functions.pop(model_metrics, None) is not None and not functions:
                del self._watched[gauge, model]
                self.remove_series(gauge, model)

    def remove_series(self, gauge: Gauge, *labels: str) -> None:
        """Remove a series of a gauge; with several workers, give it the neutral value (NEUTRAL) instead."""
        if self.is_shared:  # prometheus_client cannot remove a series from a shared file
            gauge.labels(*labels).set(NEUTRAL[self.aggregations[gauge]])
        else:
            gauge.remove(*labels)

    def sample(self) -> None:
        """Update the watched gauges, aggregated over the versions of each model."""
        for (gauge, model), functions in self._watched.items():
            gauge.labels(model).set(self.aggregations[gauge](function() for function in functions.values()))
        self.parser_oldest.set(self.parser_age())

    async def exposition(self) -> Content:
        """Metrics of this process, or of all workers, in Prometheus's text format.

        They were read after the call. They are read at most once in EXPOSE_S, for all callers: a call may take so long.
        """
        return await self._exposition.get()

    async def _write(self) -> Content:
        self.sample()
        return await asyncio.to_thread(lambda: Content(self.expose()))

    def expose(self) -> bytes:
        """Metrics in Prometheus's text format, with the gauges of the last `sample`. It may be called in any thread."""
        return generate_latest(self._exposed)

    def of(self, model: str) -> "ModelMetrics":
        """Create the metrics of one version of a model."""
        return ModelMetrics(self, model)


class ModelMetrics:
    """Metrics of one version of a model.

    All versions of a model share its series, because dashboards and alerts are about models, and to bound the number
    of series. Only `longdoc_model_info` and `statistics` are per version. Series with the single label `model` are
    looked up once, because the look-up costs more than counting.
    """

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        self.model = model
        self.statistics = Statistics()
        """Statistics of this version, in this process."""
        self._announced: tuple[str, ...] = ()
        self._durations: dict[str, Histogram] = {}
        self._batches: dict[str, Counter] = {}
        self.queue_seconds = metrics.stages["queue"].labels(model)
        self.decode_seconds = metrics.stages["decode"].labels(model)
        self.compute_seconds = metrics.stages["compute"].labels(model)
        self.encode_seconds = metrics.stages["encode"].labels(model)
        self.in_flight = metrics.in_flight.labels(model)
        self.batch_size = metrics.batch_size.labels(model)
        self.batch_padding = metrics.batch_padding.labels(model)
        self.documents = metrics.documents.labels(model)
        self.document_bytes = metrics.document_bytes.labels(model)
        self.document_known = metrics.document_known.labels(model)
        self.truncated = metrics.truncated.labels(model)
        self.bytes_dropped = metrics.bytes_dropped.labels(model)
        self.load_seconds = metrics.model_load.labels(model)
        for kind in INFERENCE_ERRORS:  # a counter that starts at 1 shows Prometheus no increase
            metrics.inference_errors.labels(model, kind)
        self._rejected = {reason: metrics.rejected.labels(model, reason) for reason in REJECTED}
        for stage in ("queue", "compute"):
            metrics.cancelled.labels(model, stage)

    def announce(self, *labels: str) -> None:
        """Publish the version in `longdoc_model_info`; `labels` are all of its labels except `model`."""
        self._announced = (self.model, *labels)
        self._metrics.model_info.labels(*self._announced).set(1)

    def withdraw(self) -> None:
        """Remove the gauges of a version that is no longer served; counters and gauges of the model stay."""
        self._metrics.remove_series(self._metrics.model_info, *self._announced)
        self._metrics.unwatch(self)

    def answered(
        self, task: str, *, decode_s: float, queue_s: float, compute_s: float, encode_s: float, total_s: float
    ) -> None:
        """Record the stages of a request that was answered."""
        self.decode_seconds.observe(decode_s)
        self.queue_seconds.observe(queue_s)
        self.compute_seconds.observe(compute_s)
        self.encode_seconds.observe(encode_s)
        if task not in self._durations:
            self._durations[task] = self._metrics.duration.labels(self.model, task)
        self._durations[task].observe(total_s)
        self.statistics.answered(
            decode_s=decode_s, queue_s=queue_s, compute_s=compute_s, encode_s=encode_s, total_s=total_s
        )

    def batch_closed(self, reason: str) -> None:
        """Count a batch by `reason`: full, spread or drained, by why no other row of its bucket joined it."""
        if reason not in self._batches:
            self._batches[reason] = self._metrics.batches.labels(self.model, reason)
        self._batches[reason].inc()

    def rejected(self, reason: str) -> None:
        """Count a rejected request."""
        self._rejected[reason].inc()

    def failed(self, seconds: float) -> None:
        """Record a request that was rejected, cancelled or failed, and its duration, in the statistics."""
        self.statistics.failed(seconds)

    def batch_computed(self, rows: int, seconds: float) -> None:
        """Record a computed batch in the statistics."""
        self.statistics.computed(rows, seconds)

    def cancelled(self, stage: str) -> None:
        """Count a request whose client disconnected, in the stage queue or compute."""
        self._metrics.cancelled.labels(self.model, stage).inc()

    def inference_error(self, kind: str) -> None:
        """Count a request that failed in the backend, by `kind`: raised, non_finite or crashed."""
        self._metrics.inference_errors.labels(self.model, kind).inc()

    def count_inputs(self, coverages: Sequence[TextCoverage] | Sequence[SeriesCoverage]) -> None:
        """Count the documents or series of a request, and what was read and is known of each document."""
        self.documents.inc(len(coverages))
        for coverage in coverages:
            if isinstance(coverage, TextCoverage):
                self.document_bytes.observe(coverage.bytes_total)
                if coverage.bytes_used < coverage.bytes_total:
                    self.truncated.inc()
                    self.bytes_dropped.inc(coverage.bytes_total - coverage.bytes_used)
                if coverage.known is not None:
                    self.document_known.observe(coverage.known)
            elif isinstance(coverage, RecordingCoverage) and coverage.observations_used < coverage.observations_total:
                self.truncated.inc()

    def cache_requests(self, result: str, count: int) -> None:
        """Count texts looked up in the cache, by `result`: hit or miss."""
        self._metrics.cache_requests.labels(self.model, result).inc(count)

    def watch_cache(self, size: Callable[[], float]) -> None:
        """Publish the size of the cache."""
        self._metrics.watch(self._metrics.cache_bytes, self, size)

    def watch_queue(
        self,
        depth: Callable[[], float],
        size: Callable[[], float],
        oldest: Callable[[], float],
        ready: Callable[[], float],
    ) -> None:
        """Publish the state of the queue: its rows, its bytes, its oldest request, and whether the model is ready."""
        metrics = self._metrics
        for gauge, value in (
            (metrics.queue_depth, depth),
            (metrics.queue_bytes, size),
            (metrics.queue_oldest, oldest),
            (metrics.model_ready, ready),
        ):
            metrics.watch(gauge, self, value)
