"""The report, rendered from made-up data."""

from pathlib import Path

from benchmarks.models import classifier_speed
from tests.support.records import expect_in_report, made_up


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    measured = made_up(
        {
            "serving_s": {
                "single": [0.002],
                "512": [0.001],
                "4096": [0.008],
                "earlier single": [0.001],
                "earlier 512": [0.0005],
                "paper": [0.04],
            },
            "training": {
                name: {"step_s": [seconds], "memory_bytes": 2**20, "flops": 36_000_000}
                for name, seconds in ((classifier_speed.OURS, 0.1), (classifier_speed.PAPER, 3.2))
            },
        },
        rounds=1,
    )
    expect_in_report(
        classifier_speed.BENCHMARK,
        measured,
        [
            "costs 8.0 times less",
            "| ours, 300, alone | 2.00 | 2.00 x | 20.0 x |",
            "| ours, 4,096 | 8.00 | | 5.0 x |",
            "| ours | 320.0 | 32.0 |",
        ],
        tmp_path,
    )
