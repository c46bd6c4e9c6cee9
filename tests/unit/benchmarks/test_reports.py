"""Reports of benchmarks whose data are timings: ratios, goals and rows, of figures that are made up."""

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib.record import Data, Record
from benchmarks.models import classifier_speed, inference_paths
from benchmarks.papers import attention_speed
from benchmarks.serving import batch_rows, fairness, front_end, overload, restarts

PERCENTILES = [float(q) for q in range(101)]
OVERLOAD: Data = {
    "bytes": 4096,
    "times": 2,
    "capacity": [90.0, 110.0],
    "offered": 180.0,
    "in_time": 950,
    "late": 3,
    "statuses": {"200": 953, "429": 800, "500": 1},
    "other": 4,
    "refused_with_retry_after": 1.0,
    "memory_mb": [100.4, 120.6],
    "latency_ms": PERCENTILES,
}
COSTS = {str(n): dict.fromkeys(attention_speed.NAMES, 0.5 * n / 256) for n in (256, 512)}


def made_up(data: Data, **settings: Any) -> Record:
    return Record("made_up", "", "", "2026-01-31", "", {"cpu": "abacus"}, {}, settings, data)


CASES = [
    (
        front_end.BENCHMARK,
        made_up(
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
        ),
        [
            "| ours, JSON | 2500 (2000 to 3000) | 0.50 |",
            "Goal 2500: reached.",
            "| served | 90 (80 to 95) | 0.90 |",
        ],
    ),
    (
        batch_rows.BENCHMARK,
        made_up({"documents_per_second": {"1": [10.0, 20.0], "4": [15.0, 50.0]}}, rows=[1, 4], rounds=2, seconds=4.0),
        ["| 1 | 15 (10 to 20) | 1.00 |", "| 4 | 32 (15 to 50) | 2.00 |"],
    ),
    (
        overload.BENCHMARK,
        made_up(
            {"cases": [OVERLOAD, {**OVERLOAD, "latency_ms": [], "refused_with_retry_after": None}]},
            seconds=10.0,
            deadline_ms=2000,
        ),
        ["| 100 | 180 | 95 | 0.95 | 3 | 800 | 0 | 0 | 4 | 100% | 50 | 99 |"],
    ),
    (
        fairness.BENCHMARK,
        made_up(
            {
                "latency_ms": {"alone": [PERCENTILES], "beside the bulk job": [[3 * q for q in PERCENTILES]]},
                "bulk_documents_per_second": [400.0],
            },
            rate=20.0,
            seconds=20.0,
            rounds=1,
        ),
        ["| beside the bulk job | 150.0 | 270.0 | 297.0 | 400 |", "times: not reached."],
    ),
    (
        restarts.BENCHMARK,
        made_up(
            {
                "cases": [
                    {"case": "one process", "requests": {"200": 90, "503": 4, "ReadError": 1}, "exit_codes": {"0": 2}}
                ]
            },
            restarts=2,
            clients=8,
        ),
        ["| one process | 95 | 5 | 503 4, ReadError 1 | 2 x 0 |"],
    ),
    (
        inference_paths.BENCHMARK,
        made_up(
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
        ),
        ["| fast | 80.0 | 50.0 | 50.0 | 2.00 | 2e-06 |", "broken: no compiler"],
    ),
    (
        classifier_speed.BENCHMARK,
        made_up(
            {
                "serving_s": {"512": [0.001], "4096": [0.008], "paper": [0.04]},
                "training": {
                    name: {"step_s": [seconds], "memory_bytes": 2**20, "flops": 36_000_000}
                    for name, seconds in ((classifier_speed.OURS, 0.1), (classifier_speed.PAPER, 3.2))
                },
            },
            rounds=1,
        ),
        ["costs 8.0 times less", "| ours | 320.0 | 32.0 |"],
    ),
    (
        attention_speed.BENCHMARK,
        made_up({"device": "cpu", "training_s": COSTS, "inference_s": COSTS, "memory_bytes": COSTS}, batch=4, rounds=5),
        ["| s3 | 2.00 (1.0x) | 1.00 (1.0x) | 1.00 |"],
    ),
]


@pytest.mark.parametrize(("benchmark", "measured", "expected"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_reports(benchmark: Any, measured: Record, expected: list[str], tmp_path: Path) -> None:
    benchmark.render(measured, tmp_path)
    report = re.sub(" +", " ", (tmp_path / "report.md").read_text())
    for part in expected:
        assert part in report
    assert (tmp_path / "chart.png").exists() == (benchmark.chart is not None)
