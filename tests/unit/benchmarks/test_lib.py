"""What the benchmarks share: tables, records, turns, the revision of the code."""

import argparse
import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.lib import record, table
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.interleave import interleave
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


def test_tables_are_aligned() -> None:
    text = table.table(["name", "seeds", "value"], [["a", "3", "1.50"], ["longer", "12", "-0.25"]], left=1)
    assert text == (
        "| name   | seeds | value |\n"
        "| ------ | ----: | ----: |\n"
        "| a      |     3 |  1.50 |\n"
        "| longer |    12 | -0.25 |\n"
    )
    both = table.table(["", "b"], [["x", "y"]], left=2).splitlines()
    assert both == ["|     | b   |", "| --- | --- |", "| x   | y   |"]


@pytest.mark.parametrize("row", [["a"], ["a", "b", "c"]])
def test_rows_of_another_length_are_refused(row: list[str]) -> None:
    with pytest.raises((ValueError, IndexError)):
        table.table(["a", "b"], [row])


def test_cells_tell_the_spread() -> None:
    assert table.mean_and_deviation([1.0, 2.0, 3.0], ".1f") == "2.0 ± 1.0"
    assert table.mean_and_deviation([0.5]) == "0.500"
    assert table.median_and_range([3.0, 1.0, 8.0]) == "3 (1 to 8)"
    assert table.ratio([1.0, 6.0, 4.0], [2.0, 2.0, 2.0]) == "2.00"  # of 0.5, 3 and 2


def test_records_survive_writing(tmp_path: Path) -> None:
    assert record.earlier("made_up", tmp_path) == {}
    folder = record.write(MEASURED, tmp_path)
    assert record.read("made_up", tmp_path) == MEASURED
    assert record.earlier("made_up", tmp_path) == MEASURED.data
    assert record.names(tmp_path) == ["made_up"]
    assert [path.name for path in folder.iterdir()] == ["data.json"]


def test_each_run_has_a_line_of_its_own(tmp_path: Path) -> None:
    runs = [{"seed": seed, "accuracy": 0.5, "note": "x" * 60} for seed in range(5)]
    path = record.write(replace(MEASURED, data={"runs": runs}), tmp_path) / "data.json"
    lines = [line.strip().rstrip(",") for line in path.read_text().splitlines()]
    assert all(json.dumps(run) in lines for run in runs)


def test_what_is_no_number_is_refused_and_the_old_record_stays(tmp_path: Path) -> None:
    record.write(MEASURED, tmp_path)
    with pytest.raises(ValueError, match="JSON compliant"):
        record.write(replace(MEASURED, data={"value": float("nan")}), tmp_path)
    assert record.read("made_up", tmp_path) == MEASURED


def test_turns_begin_with_another_one_each_round() -> None:
    order: list[str] = []

    def turn(name: str) -> int:
        order.append(name)
        return len(order)

    measured = interleave({name: functools.partial(turn, name) for name in "abc"}, 3, warm_up=1)
    assert {name: len(values) for name, values in measured.items()} == {"a": 3, "b": 3, "c": 3}
    rounds = ["".join(order[i : i + 3]) for i in range(0, len(order), 3)]
    assert rounds == ["cab", "abc", "bca", "cab"]
    assert measured["a"] == [4, 9, 11]  # the one of the round before them is dropped


def counting(*, chart: bool = False) -> Benchmark:
    """A benchmark that measures its own option, in two parts."""

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


def test_a_benchmark_writes_record_report_and_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counting(chart=True).main(["--rounds", "3", "--data-dir", "/secret", f"--out={tmp_path}"])
    measured = record.read("made_up", tmp_path)
    assert measured.command == "python -m benchmarks.papers.made_up --rounds 3"
    assert measured.settings == {"rounds": 3}
    assert measured.data == {"values": [0, 1, 2, 3, 4, 5]}
    report = (tmp_path / "made_up" / "report.md").read_text()
    assert report.startswith("# Made up\n\nValues: [0, 1, 2, 3, 4, 5].\n\n- measured on ")
    assert report.endswith("- command: `python -m benchmarks.papers.made_up --rounds 3`\n")
    assert (tmp_path / "made_up" / "chart.png").read_text() == str(measured.data)
    assert capsys.readouterr().out == f"{report}\n"
    assert "/secret" not in (tmp_path / "made_up" / "data.json").read_text()


def test_each_part_is_written_as_soon_as_it_is_there(tmp_path: Path) -> None:
    def measure(args: argparse.Namespace) -> Iterator[Data]:
        assert args
        yield {"values": [1]}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(counting(), measure=measure).main(["--out", str(tmp_path)])
    assert record.read("made_up", tmp_path).data == {"values": [1]}
    assert "[1]" in (tmp_path / "made_up" / "report.md").read_text()


def test_rendering_needs_the_record_alone(tmp_path: Path) -> None:
    folder = record.write(replace(MEASURED, data={"values": [7]}), tmp_path)
    counting().render(record.read("made_up", tmp_path), folder)
    assert (folder / "report.md").read_text() == (
        "# Made up\n\nValues: [7].\n\n"
        "- measured on 2026-01-31 at revision 0123456789ab\n"
        "- abacus, 2 cores, load before the run: 0.0\n"
        "- python 3.11.7\n"
        "- command: `python -m benchmarks.papers.made_up --rounds 2`\n"
    )
    assert not (folder / "chart.png").exists()
