"""The report, rendered from made-up data."""

from pathlib import Path

from benchmarks.papers import attention_speed
from tests.support.records import expect_in_report, made_up

COSTS = {str(n): dict.fromkeys(attention_speed.NAMES, 0.5 * n / 256) for n in (256, 512)}


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    measured = made_up(
        {"device": "cpu", "training_s": COSTS, "inference_s": COSTS, "memory_bytes": COSTS}, batch=4, rounds=5
    )
    expect_in_report(attention_speed.BENCHMARK, measured, ["| s3 | 2.00 (1.0x) | 1.00 (1.0x) | 1.00 |"], tmp_path)
