"""The report, rendered from made-up data."""

from pathlib import Path

from benchmarks.models import inference_paths
from tests.support.records import expect_in_report, made_up


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    measured = made_up(
        {
            "paths": [
                {"path": "eager", "failure": "", "error": 0.0, "seconds": [0.1, 0.1]},
                {"path": "fast", "failure": "", "error": 2e-6, "seconds": [0.05, 0.05]},
                {"path": "broken", "failure": "no compiler", "error": 0.0, "seconds": []},
            ]
        },
        batch=4,
        seq_len=4096,
        threads=2,
        rounds=2,
    )
    expect_in_report(
        inference_paths.BENCHMARK,
        measured,
        ["| fast | 80.0 | 50.0 | 50.0 | 2.00 | 2e-06 |", "broken: no compiler"],
        tmp_path,
    )
