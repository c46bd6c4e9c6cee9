"""A short measurement, and the report rendered from made-up data."""

from pathlib import Path

from benchmarks.serving import batch_rates
from tests.support.records import expect_in_report, made_up


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    measured = made_up({"core_seconds": {"256": [0.001, 0.0018], "4096": [0.0036]}}, rounds=2)
    lines = [
        "| 256 | 1.40 (1.00 to 1.80) | 0.39 (0.28 to 0.50) |",
        "| 4,096 | 3.60 (3.60 to 3.60) | 1.00 (1.00 to 1.00) |",
    ]
    expect_in_report(batch_rates.BENCHMARK, measured, lines, tmp_path)


def test_every_length_is_measured_in_every_round() -> None:
    args = batch_rates.BENCHMARK.parse(["--lengths", "16384", "65536", "--rounds", "2"])
    (data,) = batch_rates.measure(args)
    assert {length: len(found) for length, found in data["core_seconds"].items()} == {"16384": 2, "65536": 2}
    assert all(seconds > 0 for found in data["core_seconds"].values() for seconds in found)
