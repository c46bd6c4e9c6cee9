"""The report, rendered from made-up data."""

from dataclasses import replace
from pathlib import Path

from benchmarks.serving import node_failures
from tests.support.records import expect_in_report, made_up


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    kills = [
        {"sent": 1000, "repeated": 5, "lost": 0, "failed": {"ConnectError": 4, "503": 1}, "how_lost": {}},
        {"sent": 500, "repeated": 7, "lost": 2, "failed": {"ConnectError": 7}, "how_lost": {"ReadError": 2}},
    ]
    measured = made_up({"kills": kills, "servers": {"ray": "2.60.0"}}, clients=4, kills=2)
    expect_in_report(
        node_failures.BENCHMARK,
        replace(measured, hardware={"cpu": "abacus", "cores": 2}),
        [
            "| 2 | 500 | 7 | 2 | ConnectError 7 |",
            "| all | 1,500 | 12 | 2 | ConnectError 11, 503 1 |",
            "share 2 cores",
        ],
        tmp_path,
    )
