"""The report, rendered from made-up data."""

from pathlib import Path

from benchmarks.serving import fairness
from tests.support.records import expect_in_report, made_up

PERCENTILES = [float(q) for q in range(101)]


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    others = list(fairness.OTHERS)
    slower = {name: [[factor * q for q in PERCENTILES]] for name, factor in zip(others, (3, 1, 2), strict=True)}
    measured = made_up(
        {
            "latency_ms": {"alone": [PERCENTILES], **slower},
            "answers_per_second": {name: [400.0] for name in others},
        },
        rate=20.0,
        seconds=20.0,
        rounds=1,
    )
    expect_in_report(
        fairness.BENCHMARK,
        measured,
        [f"| {others[0]} | 150.0 | 270.0 | 297.0 | 3.00 | 400.0 |", f"times: missed {others[0]}."],
        tmp_path,
    )
