"""The files that a benchmark run writes: record, report, chart."""

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.lib import record
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record
from tests.support.records import MEASURED


def counting(*, chart: bool = False) -> Benchmark:
    """Return a benchmark that measures its own option, in two parts."""

    def measure(args: argparse.Namespace) -> Iterator[Data]:
        for part in (1, 2):
            yield {"values": list(range(part * args.rounds))}

    def draw(measured: Record, path: Path) -> None:
        path.write_text(str(measured.data))

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rounds", type=int, default=2)
        parser.add_argument("--data-dir", type=Path)

    return Benchmark(
        program="benchmarks.papers.made_up",
        title="Made up",
        description="",
        measure=measure,
        report=lambda measured: f"Values: {measured.data['values']}.",
        chart=draw if chart else None,
        options=options,
    )


def test_benchmark_writes_record_report_and_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counting(chart=True).main(["--rounds", "3", "--data-dir", "/secret", f"--out={tmp_path}"])
    measured = record.read("made_up", tmp_path)
    assert measured.command == "python -m benchmarks.papers.made_up --rounds 3"
    assert measured.settings == {"rounds": 3}
    assert measured.data == {"values": [0, 1, 2, 3, 4, 5]}
    report = (tmp_path / "made_up" / "report.md").read_text()
    assert report.startswith("# Made up\n\nValues: [0, 1, 2, 3, 4, 5].\n\n- measured on ")
    assert report.endswith("- command: `python -m benchmarks.papers.made_up --rounds 3`\n")
    assert (tmp_path / "made_up" / "chart.webp").read_text() == str(measured.data)
    assert capsys.readouterr().out == f"{report}\n"
    assert "/secret" not in (tmp_path / "made_up" / "data.json").read_text()


def test_each_part_is_written_as_soon_as_it_is_measured(tmp_path: Path) -> None:
    def measure(args: argparse.Namespace) -> Iterator[Data]:
        assert args
        yield {"values": [1]}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(counting(), measure=measure).main(["--out", str(tmp_path)])
    assert record.read("made_up", tmp_path).data == {"values": [1]}
    assert "[1]" in (tmp_path / "made_up" / "report.md").read_text()


def test_invalid_record_does_not_replace_the_report(tmp_path: Path) -> None:
    def measure(args: argparse.Namespace) -> Iterator[Data]:
        assert args
        yield {"values": [1]}
        yield {"values": [math.nan]}

    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(counting(), measure=measure).main(["--out", str(tmp_path)])
    assert record.read("made_up", tmp_path).data == {"values": [1]}
    assert "Values: [1]." in (tmp_path / "made_up" / "report.md").read_text()


def test_rendering_needs_only_the_record(tmp_path: Path) -> None:
    folder = record.write(replace(MEASURED, data={"values": [7]}), tmp_path)
    counting().render(record.read("made_up", tmp_path), folder)
    assert (folder / "report.md").read_text() == (
        "# Made up\n\nValues: [7].\n\n"
        "- measured on 2026-01-31 at revision 0123456789ab\n"
        "- abacus, 2 cores, load before the run: 0.0\n"
        "- python 3.11.7\n"
        "- command: `python -m benchmarks.papers.made_up --rounds 2`\n"
    )
    assert not (folder / "chart.webp").exists()
