"""Every Prometheus metric of the service. Created by `service.server`, or by a replica of `service.scale.ray`.

Several workers, or the replicas on a node of a Ray cluster, share a folder. Each worker keeps its values in files
there, and the worker that gets a scrape aggregates those of all. The names of the files hold the worker's number, not
its process id: a restarted worker continues the counters of the one before it. An inherited PROMETHEUS_MULTIPROC_DIR is
ignored: the folder may be missing, or hold counters of other programs and of earlier runs.
"""

import asyncio
import math
import os
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

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
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from typing_extensions import override

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
NEUTRAL: Mapping[Callable[[Iterable[float]], float], float] = {sum: 0.0, max: -math.inf, min: math.inf}
"""Aggregation over workers -> its neutral value. With several workers, a removed series of a gauge gets this value, so
that it does not change the aggregate. A sum then stays at 0; an infinite aggregate is not exposed."""
SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable in which prometheus_client looks up the folder of shared metrics; set by `set_worker` alone."""
EXPOSE_S = 1.0
"""Pause after metrics were written for a scrape; they take tens of milliseconds with many models or workers."""
SAMPLE_S = 1.0
"""Interval at which a worker updates its gauges for the other workers."""
RESERVED_BYTES = {"counter": 2**16, "histogram": 2**18} | {f"gauge_live{mode}": 2**16 for mode in ("sum", "max", "min")}
"""Type of a metric -> bytes reserved for a worker's values. The files are mapped into memory: if the disk were full,
the first write to a page would end the process with SIGBUS."""


def set_worker(folder: Path, index: int) -> None:
    """Make this process the worker with that number; call it before the first metric is created.

    Raises: OSError that names the folder, if the disk is full.
    """
    try:
        (folder / f"worker-{index}").write_text(str(os.getpid()))
        for kind, size in RESERVED_BYTES.items():
            with (folder / f"{kind}_{index}.db").open("ab") as stream:
                stream.write(bytes(max(0, size - stream.tell())))
    except OSError as error:
        raise OSError(f"cannot keep metrics in {folder}: {error.strerror}") from None
    os.environ[SHARED] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: index)  # type: ignore[no-untyped-call]


def remove_gauges(folder: Path, index: int) -> None:
    """Remove the gauges of a worker that has ended, and its `longdoc_worker_*`; its counters stay."""
    (folder / f"worker-{index}").unlink(missing_ok=True)
    mark_process_dead(index, str(folder))  # type: ignore[no-untyped-call]


class _Shared(MultiProcessCollector):
    """Metrics of all workers, without the series of removed models.

    Args:
        registry: where the collector is registered.
        folder: folder that the workers share.
        labels: added to every sample.

    """

    def __init__(self, registry: CollectorRegistry, folder: Path, labels: Mapping[str, str]) -> None:
        self._labels = labels
        super().__init__(registry, str(folder))  # type: ignore[no-untyped-call]

    @override
    def collect(self) -> Iterable[Metric]:
        """Families with their samples."""
        for family in super().collect():  # type: ignore[no-untyped-call]
            family.samples = [
                sample._replace(labels={**sample.labels, **self._labels})
                for sample in family.samples
                if family.type != "gauge" or math.isfinite(sample.value)
            ]
            if family.samples:
                yield family


class _Workers(Collector):
    """`process_*` of each worker, under the name `longdoc_worker_*`; arguments as those of `_Shared`."""

    def __init__(self, folder: Path, labels: Mapping[str, str]) -> None:
        self._folder = folder
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        """Families with one sample per worker."""
        families: dict[str, Metric] = {}
        for path in sorted(self._folder.glob("worker-*")):
            try:
                pid = int(path.read_text() or 0)  # empty while the worker writes it
            except FileNotFoundError:  # the worker has just ended
                continue
            for found in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                name = found.name.replace("process", "longdoc_worker", 1)
                family = families.setdefault(name, Metric(name, found.documentation, found.type))
                for sample in found.samples:
                    labels = {"worker": path.name.removeprefix("worker-"), **self._labels}
                    family.add_sample(sample.name.replace("process", "longdoc_worker", 1), labels, sample.value)
        yield from families.values()


class _Deferred(MetricWrapperBase):
    """A metric whose series are plain numbers, which become its values when they are collected.

    Changing the values would take longer: prometheus_client locks them. The numbers are changed only from the event
    loop, never reset, and read in any thread. Used only without other workers: those read the values from the shared
    files at any time.
    """

    @abstractmethod
    def apply(self) -> None:
        """Set the values of a series."""

    @override
    def _child_samples(self) -> Iterable[Sample]:
        self.apply()
        return super()._child_samples()


class _DeferredSum(_Deferred):
    """A deferred metric whose series have one value."""

    _value: Any
    _total = 0.0

    @override
    def apply(self) -> None:
        self._value.set(self._total)


class _Counter(_DeferredSum, Counter):
    """A deferred counter."""

    @override
    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        self._total += amount


class _Level(_DeferredSum, Gauge):
    """A deferred gauge that is only incremented and decremented."""

    @override
    def inc(self, amount: float = 1) -> None:
        self._total += amount

    @override
    def dec(self, amount: float = 1) -> None:
        self._total -= amount


class _Histogram(_Deferred, Histogram):
    """A deferred histogram."""

    @override
    def _metric_init(self) -> None:
        super()._metric_init()
        self._total = 0.0
        self._counts = [0] * len(self._upper_bounds)

    @override
    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        self._total += amount
        self._counts[bisect_left(self._upper_bounds, amount)] += 1

    @override
    def apply(self) -> None:
        self._sum.set(self._total)
        for bucket, count in zip(self._buckets, self._counts, strict=True):
            bucket.set(count)


class Metrics:
    """All metrics; docs/operate/monitoring.md lists them.

    Args:
        shared: folder that workers share; this process is the worker that `set_worker` made it.
        node: id of the node of a Ray cluster; becomes a label of every metric. Its replicas share a folder, as
            workers do. The metrics of their parent, a process of Ray, are not exposed.

    """

    def __init__(self, shared: Path | None = None, node: str | None = None) -> None:
        if shared is None:
            values.ValueClass = values.MutexValue
        self.is_shared = shared is not None
        self.registry = r = CollectorRegistry()
        self._exposed = CollectorRegistry() if shared else r
        labels = {} if node is None else {"node": node}
        if shared:
            _Shared(self._exposed, shared, labels)
            self._exposed.register(_Workers(shared, labels))
        if node is None:
            ProcessCollector(registry=self._exposed, pid=os.getppid if shared else lambda: "self")
        PlatformCollector(registry=self._exposed)
        self._exposition = Paced(self._write, EXPOSE_S)
        self._watched: dict[tuple[Gauge, str], dict[ModelMetrics, Callable[[], float]]] = {}
        """(gauge, name of a model) -> metrics of a version -> function that returns the value of the gauge."""
        counter, level, histogram = (Counter, Gauge, Histogram) if shared else (_Counter, _Level, _Histogram)
        model = ("model",)
        self.http_requests = counter(
            "longdoc_http_requests", "HTTP responses.", ("route", "method", "code"), registry=r
        )
        self._responses: dict[tuple[str, str, int], Counter] = {}
        """Series of `http_requests`: the look-up in prometheus_client costs more than counting."""
        self.duration = histogram(
            "longdoc_request_duration_seconds",
            "Time from a complete request to its response.",
            ("model", "task"),
            buckets=SECONDS,
            registry=r,
        )
        stages = {
            "queue": "Longest time that a row of a request was queued.",
            "decode": "Time to convert documents to rows.",
            "compute": "Time of the longest batch of a request.",
            "encode": "Time to convert outputs to a response.",
        }
        self.stages = {
            stage: histogram(f"longdoc_request_{stage}_seconds", text, model, buckets=SECONDS, registry=r)
            for stage, text in stages.items()
        }
        self.in_flight = level(
            "longdoc_requests_in_flight", "Requests in flight.", model, multiprocess_mode="livesum", registry=r
        )
        self.queue_depth = Gauge("longdoc_queue_depth", "Queued rows.", model, multiprocess_mode="livesum", registry=r)
        self.queue_bytes = Gauge(
            "longdoc_queue_bytes", "Bytes of the queued rows.", model, multiprocess_mode="livesum", registry=r
        )
        self.queue_oldest = Gauge(
            "longdoc_queue_oldest_seconds",
            "Age of the oldest request with a queued row, without lines of uploads.",
            model,
            multiprocess_mode="livemax",
            registry=r,
        )
        self.batch_size = histogram("longdoc_batch_size", "Rows per batch.", model, buckets=ROWS, registry=r)
        self.batch_padding = histogram(
            "longdoc_batch_padding_ratio", "Share of a batch that is padding.", model, buckets=RATIO, registry=r
        )
        self.batches = counter(
            "longdoc_batches", "Batches; reason full, or drained if no other row was queued.",
            ("model", "reason"), registry=r,
        )  # fmt: skip
        self.rejected = counter(
            "longdoc_requests_rejected", "Requests rejected by the engine.", ("model", "reason"), registry=r
        )
        self.cancelled = counter(
            "longdoc_requests_cancelled", "Requests whose client disconnected.", ("model", "stage"), registry=r
        )
        self.documents = counter("longdoc_documents", "Answered documents and series.", model, registry=r)
        self.document_bytes = histogram(
            "longdoc_document_bytes", "Length of documents.", model, buckets=BYTES, registry=r
        )
        self.truncated = counter(
            "longdoc_documents_truncated", "Documents that were not read completely.", model, registry=r
        )
        self.bytes_dropped = counter(
            "longdoc_bytes_dropped", "Bytes of documents that were not read.", model, registry=r
        )
        self.cache_requests = counter(
            "longdoc_encoding_cache_requests",
            "Distinct texts looked up in the cache of encodings.",
            ("model", "result"),
            registry=r,
        )
        self.cache_bytes = Gauge(
            "longdoc_encoding_cache_bytes",
            "Size of the cache of encodings.",
            model,
            multiprocess_mode="livesum",
            registry=r,
        )
        self.inference_errors = counter(
            "longdoc_inference_errors", "Requests that failed in the backend.", ("model", "kind"), registry=r
        )
        self.exports_refused = Counter(  # counted by threads that load exports, too
            "longdoc_exports_refused", "Exports that cannot be served.", ("model", "reason"), registry=r
        )
        self.parser_jobs = counter("longdoc_parser_jobs", "Bodies parsed in other processes.", registry=r)
        self.parser_kills = Counter(  # counted by the threads of the parser
            "longdoc_parser_kills", "Processes that ended while they parsed a body.", ("reason",), registry=r
        )
        for reason in PARSER_KILLS:
            self.parser_kills.labels(reason)
        self.parser_oldest = Gauge(
            "longdoc_parser_oldest_seconds",
            "Age of the oldest body that is not parsed yet.",
            multiprocess_mode="livemax",
            registry=r,
        )
        self.parser_age: Callable[[], float] = lambda: 0.0
        """Returns the value of `parser_oldest`; set by `service.parser`."""
        self.model_info = Gauge(
            "longdoc_model_info",
            "1 for each served version.",
            ("model", "version", "task", "format", "device", "precision", "sha256"),
            multiprocess_mode="livemax",
            registry=r,
        )
        self.model_ready = Gauge(
            "longdoc_model_ready", "1 if the model accepts requests.", model, multiprocess_mode="livemin", registry=r
        )
        self.model_load = Gauge(
            "longdoc_model_load_seconds",
            "Time to load, verify and warm up the model.",
            model,
            multiprocess_mode="livemax",
            registry=r,
        )
        self._over_versions: dict[Gauge, Callable[[Iterable[float]], float]] = {
            self.queue_depth: sum,
            self.queue_bytes: sum,
            self.queue_oldest: max,
            self.cache_bytes: sum,
            self.model_ready: min,
        }
        """How a gauge is aggregated over the versions of a model, the same as its `multiprocess_mode` over workers."""

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
            gauge.labels(*labels).set(NEUTRAL[self._over_versions.get(gauge, max)])
        else:
            gauge.remove(*labels)

    def sample(self) -> None:
        """Update the watched gauges, aggregated over the versions of each model."""
        for (gauge, model), functions in self._watched.items():
            gauge.labels(model).set(self._over_versions[gauge](function() for function in functions.values()))
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


class CountedDocument(Protocol):
    """A document that was answered."""

    @property
    def bytes_total(self) -> int:
        """Length of the document."""

    @property
    def bytes_used(self) -> int:
        """Bytes that were read."""


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
        """Count a batch by `reason`: full, or drained if no other row of its class and bucket was queued."""
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

    def count_documents(self, documents: Collection[CountedDocument]) -> None:
        """Count the documents of a request."""
        self.documents.inc(len(documents))
        for document in documents:
            self.document_bytes.observe(document.bytes_total)
            if document.bytes_used < document.bytes_total:
                self.truncated.inc()
                self.bytes_dropped.inc(document.bytes_total - document.bytes_used)

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
