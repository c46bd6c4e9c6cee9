"""The report, rendered from made-up data."""

from pathlib import Path

from benchmarks.serving import fairness
from tests.support.records import expect_in_report, made_up

PERCENTILES = [float(q) for q in range(101)]


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    latency = {}
    for base, (alone, others) in enumerate(fairness.OTHERS.items(), 1):
        for factor, name in enumerate([alone, *others], 1):
            latency[name] = [[base * factor * q for q in PERCENTILES]]
    measured = made_up(
        {"latency_ms": latency, "answers_per_second": {name: [400.0] for name in latency}},
        rate=20.0,
        seconds=20.0,
        rounds=1,
    )
    expect_in_report(
        fairness.BENCHMARK,
        measured,
        [
            "| alone | 50.0 | 90.0 | 99.0 | | |",
            "| beside series of 8 MB | 150.0 | 270.0 | 297.0 | 3.00 | 400.0 |",
            "| 300 KB alone | 100.0 | 180.0 | 198.0 | | |",
            "| 300 KB beside an unfinished string | 200.0 | 360.0 | 396.0 | 2.00 | 400.0 |",
            "times: missed beside series of 8 MB, ",
        ],
        tmp_path,
    )
