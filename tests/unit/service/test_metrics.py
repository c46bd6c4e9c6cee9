"""Names and labels are an interface: dashboards and alerts are written against them."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import values
from prometheus_client.parser import text_string_to_metric_families

from service.metrics import SHARED, Metrics, forget_worker, set_worker
from tests.support.contract import CONTRACT
from tests.support.paths import ROOT


def test_names_and_labels_are_those_of_the_contract() -> None:
    metrics = Metrics()
    bound = metrics.of("m")
    bound.answered("t", decode_s=1, queue_s=1, compute_s=1, encode_s=1, total_s=1)
    bound.batch_closed("full")
    bound.rejected("overloaded")
    bound.cancelled("queue")
    bound.cache_requests("hit", 1)
    bound.watch_cache(lambda: 1)
    bound.inference_error("raised")
    bound.watch(lambda: 1, lambda: 2, lambda: 3, lambda: 1)
    metrics.http_requests.labels("/", "GET", 200).inc()
    metrics.exports_refused.labels("m", "hash").inc()
    metrics.model_info.labels(*"mvtfdps").set(1)
    found = {}
    for family in text_string_to_metric_families(metrics.expose().decode()):
        if family.name.startswith("longdoc_"):
            found[family.name] = {label for s in family.samples for label in s.labels} - {"le"}
    assert found == CONTRACT


def test_model_is_announced_once_in_its_last_version() -> None:
    metrics = Metrics()
    for version in ("1", "2", "3"):
        metrics.announce("m", version, *"tfdps")
        metrics.announce("other", "7", *"tfdps")
    lines = [line for line in metrics.expose().decode().splitlines() if line.startswith("longdoc_model_info{")]
    assert sorted(line.split('version="')[1][0] for line in lines) == ["3", "7"]
    assert all(line.endswith(" 1.0") for line in lines)


def test_gauge_that_is_watched_is_up_to_date_whenever_it_is_shown() -> None:
    metrics, waiting = Metrics(), [1.0]
    metrics.of("m").watch(lambda: waiting[0], lambda: 2, lambda: 3, lambda: True)
    for depth in (1.0, 5.0, 0.0):
        waiting[0] = depth
        assert f'longdoc_queue_depth{{model="m"}} {depth}' in metrics.expose().decode()


def test_documents_are_counted_with_what_was_dropped() -> None:
    metrics = Metrics()
    bound = metrics.of("m")
    bound.count_document(100, 100)
    bound.count_document(100, 30)
    values = [metrics.registry.get_sample_value(f"longdoc_{name}", {"model": "m"}) for name in (
        "documents_total", "documents_truncated_total", "bytes_dropped_total", "document_bytes_sum"
    )]  # fmt: skip
    assert values == [2, 1, 70, 200]


WORKER = """
import os, sys
from pathlib import Path
from service.metrics import SHARED, Metrics, set_worker

index, version, requests, depth, oldest = sys.argv[1:]
set_worker(Path(os.environ[SHARED]), int(index))
metrics = Metrics()
bound = metrics.of("m")
metrics.http_requests.labels("/", "GET", 200).inc(float(requests))
bound.answered("t", decode_s=0, queue_s=0, compute_s=0, encode_s=0, total_s=float(requests))
bound.watch(lambda: float(depth), lambda: 10 * float(depth), lambda: float(oldest), lambda: float(depth) < 5)
bound.in_flight.inc(2)
metrics.announce("m", "1", *"tfdps")
if version != "1":
    metrics.announce("m", version, *"tfdps")
metrics.sample()
print(metrics.expose().decode())
"""


def shared(folder: Path, *arguments: str) -> dict[str, float]:
    """What a worker shows; it has ended then, and its files are as it left them."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, *arguments],
        cwd=ROOT, env={**os.environ, SHARED: str(folder)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    samples = (sample for family in text_string_to_metric_families(done.stdout) for sample in family.samples)
    return {f"{s.name}{sorted(s.labels.values())}": s.value for s in samples}


def test_workers_are_shown_as_one(tmp_path: Path) -> None:
    shared(tmp_path, "0", "1", "3", "4", "1.5")
    found = shared(tmp_path, "1", "2", "5", "6", "0.5")
    assert found["longdoc_http_requests_total['/', '200', 'GET']"] == 8
    assert found["longdoc_request_duration_seconds_count['m', 't']"] == 2
    assert found["longdoc_request_duration_seconds_sum['m', 't']"] == 8
    assert found["longdoc_request_duration_seconds_bucket['+Inf', 'm', 't']"] == 2
    gauges = ("queue_depth", "queue_bytes", "queue_oldest_seconds", "requests_in_flight", "model_ready")
    assert [found[f"longdoc_{name}['m']"] for name in gauges] == [10, 100, 1.5, 4, 0]
    assert found["process_start_time_seconds[]"] > 0
    files = sorted(tmp_path.iterdir())
    forget_worker(tmp_path, 1)
    found = shared(tmp_path, "1", "1", "1", "0", "0")
    assert sorted(tmp_path.iterdir()) == files, "a worker that died leaves no files beside those of the next one"
    assert found["longdoc_http_requests_total['/', '200', 'GET']"] == 9, "what the dead one has counted stays"
    assert [found[f"longdoc_{name}['m']"] for name in gauges] == [4, 40, 1.5, 4, 1], "what it held does not"
    assert found["longdoc_model_info['1', 'd', 'f', 'm', 'p', 's', 't']"] == 1
    assert "longdoc_model_info['2', 'd', 'f', 'm', 'p', 's', 't']" not in found


def test_version_that_one_worker_still_serves_is_shown_beside_the_new_one(tmp_path: Path) -> None:
    shared(tmp_path, "0", "1", "0", "0", "0")
    found = shared(tmp_path, "1", "2", "0", "0", "0")
    versions = {v: found[f"longdoc_model_info['{v}', 'd', 'f', 'm', 'p', 's', 't']"] for v in "12"}
    assert versions == {"1": 1, "2": 1}


def test_processes_of_workers_are_shown_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)  # which restores it
    set_worker(tmp_path, 0)
    (tmp_path / "worker-7").write_text("")
    found = shared(tmp_path, "1", "1", "0", "0", "0")
    assert {name for name in found if name.startswith("longdoc_worker_resident")} == {
        f"longdoc_worker_resident_memory_bytes['{index}']" for index in (0, 1)
    }


def test_disk_that_is_full_is_told(tmp_path: Path) -> None:
    """Files that may not grow stand for it. Else the process would end by SIGBUS at its first count."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
    try:
        with pytest.raises(OSError, match=f"^cannot keep metrics in {tmp_path}: "):
            set_worker(tmp_path, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
