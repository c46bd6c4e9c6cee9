"""The report, rendered from made-up data."""

from pathlib import Path

from benchmarks.serving import batch_rows
from tests.support.records import expect_in_report, made_up


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    measured = made_up(
        {"documents_per_second": {"1": [10.0, 20.0], "4": [15.0, 50.0]}}, rows=[1, 4], rounds=2, seconds=4.0
    )
    expect_in_report(
        batch_rows.BENCHMARK, measured, ["| 1 | 15 (10 to 20) | 1.00 |", "| 4 | 32 (15 to 50) | 2.00 |"], tmp_path
    )
