"""Names and labels of metrics: an interface, because dashboards and alerts depend on them."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from artifact.documents import TextCoverage, WordCounts
from artifact.recordings import RecordingCoverage
from artifact.series import SeriesCoverage
from service.metrics import Metrics
from service.statistics import Duration
from tests.support.contract import CONTRACT


def test_names_and_labels_equal_the_contract() -> None:
    metrics = Metrics()
    bound = metrics.of("m")
    bound.answered("t", decode_s=1, queue_s=1, compute_s=1, encode_s=1, total_s=1)
    bound.batch_closed("full")
    bound.rejected("overloaded")
    bound.cancelled("queue")
    bound.cache_requests("hit", 1)
    bound.watch_cache(lambda: 1)
    bound.inference_error("raised")
    bound.watch_queue(lambda: 1, lambda: 2, lambda: 3, lambda: 1)
    metrics.http_requests.labels("/", "GET", 200).inc()
    metrics.exports_refused.labels("m", "hash").inc()
    bound.announce(*"vtfdps")
    metrics.sample()
    found = {}
    for family in text_string_to_metric_families(metrics.expose().decode()):
        if family.name.startswith("longdoc_"):
            found[family.name] = {label for s in family.samples for label in s.labels} - {"le"}
    assert found == CONTRACT


def test_requests_are_in_the_statistics_of_their_version_too() -> None:
    metrics = Metrics()
    old, new = metrics.of("m"), metrics.of("m")
    for bound in (old, new, new):
        bound.answered("t", decode_s=1, queue_s=2, compute_s=3, encode_s=4, total_s=10)
    labels = {"model": "m", "task": "t"}
    assert metrics.registry.get_sample_value("longdoc_request_duration_seconds_count", labels) == 3
    assert (old.statistics.success, new.statistics.success) == (Duration(1, 10), Duration(2, 20))
    assert (new.statistics.decode, new.statistics.encode) == (Duration(2, 2), Duration(2, 8))


def announced(metrics: Metrics) -> list[str]:
    lines = [line for line in metrics.expose().decode().splitlines() if line.startswith("longdoc_model_info{")]
    assert all(line.endswith(" 1.0") for line in lines)
    return sorted(line.split('version="')[1][0] for line in lines)


def test_versions_are_listed_until_they_are_withdrawn() -> None:
    metrics = Metrics()
    versions = {number: metrics.of("m") for number in "123"}
    for number, bound in versions.items():
        bound.announce(number, *"tfdps")
    metrics.of("other").announce("7", *"tfdps")
    assert announced(metrics) == ["1", "2", "3", "7"]
    versions["1"].withdraw()
    versions["3"].withdraw()
    assert announced(metrics) == ["2", "7"]


def test_gauges_of_a_model_combine_its_versions_and_end_with_the_last() -> None:
    metrics = Metrics()

    def shown() -> list[float | None]:
        metrics.sample()
        names = ("queue_depth", "queue_bytes", "queue_oldest_seconds", "model_ready", "encoding_cache_bytes")
        return [metrics.registry.get_sample_value(f"longdoc_{name}", {"model": "m"}) for name in names]

    one, two = metrics.of("m"), metrics.of("m")
    for bound, factor in ((one, 1), (two, 10)):
        bound.announce(str(factor), *"tfdps")
        bound.watch_queue(
            lambda factor=factor: 2 * factor,  # type: ignore[misc]
            lambda factor=factor: 3 * factor,  # type: ignore[misc]
            lambda factor=factor: 4 * factor,  # type: ignore[misc]
            lambda factor=factor: factor == 1,  # type: ignore[misc]
        )
        bound.watch_cache(lambda factor=factor: 5 * factor)  # type: ignore[misc]
    metrics.of("other").watch_queue(lambda: 1, lambda: 1, lambda: 1, lambda: 1)
    assert shown() == [22, 33, 40, 0, 55]
    two.withdraw()
    assert shown() == [2, 3, 4, 1, 5]
    one.withdraw()
    assert shown() == [None] * 5
    assert metrics.registry.get_sample_value("longdoc_queue_depth", {"model": "other"}) == 1


async def test_watched_gauge_is_read_at_each_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.metrics.EXPOSE_S", 0.0)
    metrics, waiting = Metrics(), [1.0]
    metrics.of("m").watch_queue(lambda: waiting[0], lambda: 2, lambda: 3, lambda: True)
    for depth in (1.0, 5.0, 0.0):
        waiting[0] = depth
        exposed = b"".join((await metrics.exposition()).plain)
        assert f'longdoc_queue_depth{{model="m"}} {depth}' in exposed.decode()


async def test_counts_up_to_a_scrape_are_in_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are added while another scrape is written in a thread."""
    monkeypatch.setattr("service.metrics.EXPOSE_S", 0.0)
    metrics = Metrics()
    bound = metrics.of("m")
    for number in range(1, 21):
        writing = asyncio.ensure_future(metrics.exposition())
        await asyncio.sleep(0)
        bound.documents.inc()
        bound.in_flight.inc()
        bound.batch_size.observe(3)
        await writing
        exposed = b"".join((await metrics.exposition()).plain).decode()
        for name in ("documents_total", "requests_in_flight", "batch_size_count"):
            assert f'longdoc_{name}{{model="m"}} {number}.0\n' in exposed
        assert f'longdoc_batch_size_sum{{model="m"}} {3 * number}.0\n' in exposed


def test_documents_are_counted_with_their_dropped_bytes() -> None:
    metrics = Metrics()
    for used in (100, 30):
        metrics.of("m").count_inputs([TextCoverage(100, used, 1)])
    values = [metrics.registry.get_sample_value(f"longdoc_{name}", {"model": "m"}) for name in (
        "documents_total", "documents_truncated_total", "bytes_dropped_total", "document_bytes_sum"
    )]  # fmt: skip
    assert values == [2, 1, 70, 200]


def test_recordings_that_were_cut_are_counted() -> None:
    """Forecasters never read more than their context; that is no cut."""
    metrics = Metrics()
    metrics.of("m").count_inputs([RecordingCoverage(9, used, 0, 8, 9, 1, is_resampled=False) for used in (9, 8)])
    metrics.of("m").count_inputs([SeriesCoverage(9, 8, 0, 8)])
    values = [
        metrics.registry.get_sample_value(f"longdoc_documents{name}_total", {"model": "m"})
        for name in ("", "_truncated")
    ]
    assert values == [3, 1]


def test_known_words_are_measured_where_they_are_counted() -> None:
    metrics = Metrics()
    metrics.of("m").count_inputs([TextCoverage(9, 9, 1, WordCounts(1, 4)), TextCoverage(9, 9, 1, WordCounts(1, 1))])
    metrics.of("m").count_inputs([TextCoverage(9, 9, 1)])
    name, model = "longdoc_document_known_ratio", {"model": "m"}
    assert [metrics.registry.get_sample_value(f"{name}_{part}", model) for part in ("count", "sum")] == [2, 1.25]
    below = [metrics.registry.get_sample_value(f"{name}_bucket", model | {"le": le}) for le in ("0.2", "0.3", "0.9")]
    assert below == [0, 1, 1]
