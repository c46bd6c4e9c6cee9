"""The report, rendered from made-up data."""

from pathlib import Path

from benchmarks.serving import front_end
from tests.support.records import expect_in_report, made_up


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    measured = made_up(
        {
            "cores": 2,
            "rates": {
                "no model, one core": {"floor": [4000.0, 5000.0, 6000.0], "ours, JSON": [2000.0, 2500.0, 3000.0]},
                "model, one core": {"bare": [100.0, 100.0, 100.0], "served": [80.0, 90.0, 95.0]},
                "model, all cores": {"bare": [200.0, 200.0, 200.0], "served": [100.0, 100.0, 150.0]},
            },
        },
        connections=32,
        rounds=3,
        seconds=5.0,
    )
    expect_in_report(
        front_end.BENCHMARK,
        measured,
        ["| ours, JSON | 2500 (2000 to 3000) | 0.50 |", "| served | 90 (80 to 95) | 0.90 |"],
        tmp_path,
    )
