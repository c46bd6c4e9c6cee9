"""Metrics of several workers in a shared folder."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import values
from prometheus_client.parser import text_string_to_metric_families

from service.multiprocess import SHARED, remove_gauges, set_worker
from tests.support.paths import ROOT

WORKER = """
import sys
from pathlib import Path
from service.metrics import Metrics
from service.multiprocess import set_worker

folder, index, version, requests, depth, oldest = sys.argv[1:]
set_worker(Path(folder), int(index))
metrics = Metrics(Path(folder))
bound = metrics.of("m")
metrics.http_requests.labels("/", "GET", 200).inc(float(requests))
bound.answered("t", decode_s=0, queue_s=0, compute_s=0, encode_s=0, total_s=float(requests))
bound.watch_queue(lambda: float(depth), lambda: 10 * float(depth), lambda: float(oldest), lambda: float(depth) < 5)
bound.in_flight.inc(2)
bound.announce("1", *"tfdps")
if version != "1":
    before = bound
    bound = metrics.of("m")
    bound.announce(version, *"tfdps")
    before.withdraw()
    bound.watch_queue(lambda: float(depth), lambda: 10 * float(depth), lambda: float(oldest), lambda: float(depth) < 5)
metrics.sample()
print(metrics.expose().decode())
"""


def shared(folder: Path, *arguments: str, script: str = WORKER) -> dict[str, float]:
    """Run a worker process until it exits, and return the metrics it exposed; its files remain."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )  # fmt: skip
    samples = (sample for family in text_string_to_metric_families(done.stdout) for sample in family.samples)
    return {f"{s.name}{sorted(s.labels.values())}": s.value for s in samples}


def test_metrics_of_workers_are_combined(tmp_path: Path) -> None:
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
    remove_gauges(tmp_path, 1)
    found = shared(tmp_path, "1", "1", "1", "0", "0")
    assert sorted(tmp_path.iterdir()) == files, "the new worker reuses the files of the dead one"
    assert found["longdoc_http_requests_total['/', '200', 'GET']"] == 9, "counters of the dead worker are kept"
    assert [found[f"longdoc_{name}['m']"] for name in gauges] == [4, 40, 1.5, 4, 1], "gauges of the dead worker are not"
    assert found["longdoc_model_info['1', 'd', 'f', 'm', 'p', 's', 't']"] == 1
    assert "longdoc_model_info['2', 'd', 'f', 'm', 'p', 's', 't']" not in found


def test_version_that_one_worker_still_serves_is_listed_with_the_new_one(tmp_path: Path) -> None:
    shared(tmp_path, "0", "1", "0", "0", "0")
    found = shared(tmp_path, "1", "2", "0", "0", "0")
    versions = {v: found[f"longdoc_model_info['{v}', 'd', 'f', 'm', 'p', 's', 't']"] for v in "12"}
    assert versions == {"1": 1, "2": 1}


REMOVED = """
import sys
from pathlib import Path
from service.metrics import Metrics
from service.multiprocess import set_worker

folder, index, steps = sys.argv[1:]
set_worker(Path(folder), int(index))
metrics, bound = Metrics(Path(folder)), None
for step in steps:
    if step == "+":
        bound = metrics.of("m")
        bound.announce("1", *"tfdps")
        bound.watch_queue(lambda: 4, lambda: 40, lambda: 1.5, lambda: 1)
        metrics.sample()
    else:
        bound.withdraw()
print(metrics.expose().decode())
"""


@pytest.mark.parametrize(
    ("first", "second", "ready"),
    [("+-", "+-", None), ("+", "+-", 1), ("+-", "+", 1), ("+-+", "+-+", 1), ("+-", "+-+", 1)],
)
def test_removed_model_is_not_shown_as_failed(tmp_path: Path, first: str, second: str, ready: float | None) -> None:
    """The alert takes a 0 of `longdoc_model_ready` for a crash. A worker that still serves the model reports it."""
    shared(tmp_path, "0", first, script=REMOVED)
    found = shared(tmp_path, "1", second, script=REMOVED)
    assert found.get("longdoc_model_ready['m']") == ready
    assert found.get("longdoc_model_info['1', 'd', 'f', 'm', 'p', 's', 't']") == ready
    assert found.get("longdoc_queue_oldest_seconds['m']") == (ready and 1.5)
    assert found["longdoc_queue_depth['m']"] == 4 * (first.endswith("+") + second.endswith("+"))


def test_each_worker_process_has_its_own_process_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED, "before")  # so that it is restored, as the next one
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    set_worker(tmp_path, 0)
    (tmp_path / "worker-7").write_text("")
    found = shared(tmp_path, "1", "1", "0", "0", "0")
    assert {name for name in found if name.startswith("longdoc_worker_resident")} == {
        f"longdoc_worker_resident_memory_bytes['{index}']" for index in (0, 1)
    }


def test_full_disk_is_an_error(tmp_path: Path) -> None:
    """Simulated by files that cannot grow. Without the check, the first count would end the process by SIGBUS."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
    try:
        with pytest.raises(OSError, match=f"^cannot keep metrics in {tmp_path}: "):
            set_worker(tmp_path, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
