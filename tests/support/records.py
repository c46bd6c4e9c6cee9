"""Made-up records of benchmarks, and a check of the report that is rendered from one."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record

MEASURED = Record(
    name="made_up",
    program="benchmarks.papers.made_up",
    command="python -m benchmarks.papers.made_up --rounds 2",
    date="2026-01-31",
    revision="0123456789ab",
    hardware={"cpu": "abacus", "cores": 2, "load_before": 0.0},
    versions={"python": "3.11.7"},
    settings={"rounds": 2},
    data={"runs": [{"name": "β", "values": [0.1, 1e-20, 3]}, {"name": "δ", "values": []}], "none": None},
)


def made_up(data: Data, **settings: Any) -> Record:
    """Return a record of these data."""
    return Record("made_up", "", "", "2026-01-31", "", {"cpu": "abacus"}, {}, settings, data)


def expect_in_report(benchmark: Benchmark, measured: Record, expected: Sequence[str], folder: Path) -> None:
    """Render a record and check that its report has these lines, and a chart if the benchmark draws one."""
    benchmark.render(measured, folder)
    report = re.sub(" +", " ", (folder / "report.md").read_text())
    for part in expected:
        assert part in report
    assert (folder / "chart.webp").exists() == (benchmark.chart is not None)
