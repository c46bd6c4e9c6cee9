"""The report, rendered from made-up data."""

from pathlib import Path

from benchmarks.serving import restarts
from tests.support.records import expect_in_report, made_up


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    measured = made_up(
        {"cases": [{"case": "one process", "requests": {"200": 90, "503": 4, "ReadError": 1}, "exit_codes": {"0": 2}}]},
        restarts=2,
        clients=8,
    )
    expect_in_report(restarts.BENCHMARK, measured, ["| one process | 95 | 5 | 503 4, ReadError 1 | 2 x 0 |"], tmp_path)
