"""The report, rendered from made-up data."""

from pathlib import Path

from benchmarks.lib.record import Data
from benchmarks.serving import overload
from tests.support.records import expect_in_report, made_up

PERCENTILES = [float(q) for q in range(101)]
OVERLOAD: Data = {
    "bytes": 4096,
    "times": 2,
    "capacity": [90.0, 110.0],
    "offered": 180.0,
    "in_time": 990,
    "goodput": 95.0,
    "late": 3,
    "statuses": {"200": 953, "429": 800, "500": 1},
    "other": 4,
    "refused_with_retry_after": 1.0,
    "memory_mb": [100.4, 120.6],
    "latency_ms": PERCENTILES,
}


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    measured = made_up(
        {"cases": [OVERLOAD, {**OVERLOAD, "latency_ms": [], "refused_with_retry_after": None}]},
        seconds=10.0,
        deadline_ms=2000,
    )
    expect_in_report(
        overload.BENCHMARK, measured, ["| 100 | 180 | 95 | 0.95 | 3 | 800 | 0 | 0 | 4 | 100% | 50 | 99 |"], tmp_path
    )
