"""The report, of figures that are made up."""

from pathlib import Path

from benchmarks.serving import fairness
from tests.support.records import expect_in_report, made_up

PERCENTILES = [float(q) for q in range(101)]


def test_report(tmp_path: Path) -> None:
    measured = made_up(
        {
            "latency_ms": {"alone": [PERCENTILES], "beside the bulk job": [[3 * q for q in PERCENTILES]]},
            "bulk_documents_per_second": [400.0],
        },
        rate=20.0,
        seconds=20.0,
        rounds=1,
    )
    expect_in_report(
        fairness.BENCHMARK,
        measured,
        ["| beside the bulk job | 150.0 | 270.0 | 297.0 | 400 |", "times: not reached."],
        tmp_path,
    )
