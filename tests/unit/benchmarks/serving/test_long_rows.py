"""The report, rendered from made-up data."""

from pathlib import Path

import pytest

from benchmarks.lib.record import Data
from benchmarks.serving import long_rows
from tests.support.records import expect_in_report, made_up

PERCENTILES = [float(q) for q in range(101)]
CASE: Data = {
    "bytes": 256,
    "in_time": 950,
    "late": 3,
    "statuses": {"200": 953, "429": 800, "504": 1},
    "failures": 2,
    "latency_ms": PERCENTILES,
}


@pytest.mark.parametrize(("factor", "goal"), [(1.5, "reached"), (2.0, "missed")])
def test_report_shows_the_measurements(tmp_path: Path, factor: float, goal: str) -> None:
    slower = [factor * q for q in PERCENTILES]
    measured = made_up(
        {
            "model": "documents@3",
            "beside": {"capacity": 100.0, "latency_ms": {"alone": [PERCENTILES], "beside": [slower], "long": [slower]}},
            "overload": {"capacity": 300.0, "cases": [CASE, {**CASE, "bytes": 65536, "latency_ms": []}]},
            "memory": {"statuses": {"200": 10}, "mib": [100.4, 200.6]},
        },
        rate=50.0,
        seconds=10.0,
        rounds=1,
        deadline_ms=2000,
    )
    expected = [
        "Model documents@3.",
        f"| {50 * factor:.1f} | {90 * factor:.1f} | {99 * factor:.1f} | {factor:.2f} |",
        f"1.5 times: {goal}.",
        "| 950 | 3 | 800 | 0 | 1 | 2 | 50 | 99 |",
        "100 MiB after the start, 201 MiB with 64",
    ]
    expect_in_report(long_rows.BENCHMARK, measured, expected, tmp_path)
