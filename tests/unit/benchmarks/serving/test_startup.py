"""A start of the service, and the report rendered from made-up data."""

from pathlib import Path

import pytest

from benchmarks.lib.record import Data
from benchmarks.serving import startup
from tests.support.records import expect_in_report, made_up


def one(seconds: float, mib: float) -> Data:
    return {"seconds": seconds, "core_seconds": 0.5, "mib": [100.0, mib]}


@pytest.mark.parametrize(
    ("seconds", "mib", "goals"),
    [
        (1.5, 200, ["2 s: reached, slowest 1.50 s", "350 MiB: reached, largest 200 MiB"]),
        (2.5, 400, ["2 s: missed, slowest 2.50 s", "350 MiB: missed, largest 400 MiB"]),
    ],
)
def test_report_shows_the_measurements(tmp_path: Path, seconds: float, mib: float, goals: list[str]) -> None:
    starts = {"compiled": [one(1.0, 150), one(1.2, 150)], "compiling": [one(seconds, mib), one(seconds, mib)]}
    measured = made_up({"models": ["a", "b"], "starts": starts}, rounds=2)
    lines = [
        "Starts with 2 models (a, b)",
        "| compiled before | 1.10 ± 0.14 | 0.50 ± 0.00 | 100 ± 0 | 150 ± 0 |",
        f"| compiled at each start | {seconds:.2f} ± 0.00 | 0.50 ± 0.00 | 100 ± 0 | {mib:.0f} ± 0 |",
    ]
    expect_in_report(startup.BENCHMARK, measured, [*lines, *goals], tmp_path)


def test_start_is_measured_with_and_without_compiled_modules() -> None:
    (data,) = startup.measure(startup.BENCHMARK.parse(["--rounds", "1"]))
    assert {"imdb-s3", "scotus", "aan"} <= set(data["models"])
    for (found,) in data["starts"].values():
        assert found["core_seconds"] > 0
        assert found["seconds"] > 0
        assert min(found["mib"]) > 0
