"""Stored results of the programs in this revision: a record names its program, and the report is rendered from it."""

from pathlib import Path

import pytest

from benchmarks.lib import record
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import RESULTS
from benchmarks.lib.render import benchmark_of, is_kept
from tests.support.paths import ROOT

FOLDERS = sorted(path for path in RESULTS.iterdir() if path.is_dir() and is_kept(record.read(path.name).program))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_folder_has_a_record_and_its_rendered_files(folder: Path) -> None:
    measured = record.read(folder.name)
    benchmark = benchmark_of(measured.program)
    assert (measured.name, benchmark.name, benchmark.program) == (folder.name, folder.name, measured.program)
    assert measured.command.startswith(f"python -m {measured.program}")
    expected = {"data.json", "report.md"} | ({"chart.webp"} if benchmark.chart else set())
    assert {path.name for path in folder.iterdir()} == expected
    assert (folder / "report.md").read_text() == benchmark.markdown(measured)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_chart_is_drawn_from_the_record_only(folder: Path, tmp_path: Path) -> None:
    measured = record.read(folder.name)
    benchmark = benchmark_of(measured.program)
    benchmark.render(measured, tmp_path)
    assert (tmp_path / "chart.webp").exists() == (benchmark.chart is not None)


PROGRAMS = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    for path in (ROOT / "benchmarks").rglob("*.py")
    if "\nBENCHMARK = " in path.read_text()
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_is_named_by_its_module_path(program: str) -> None:
    name = program.removesuffix(".__main__")
    benchmark = benchmark_of(name)
    assert isinstance(benchmark, Benchmark)
    assert benchmark.program == name
    assert benchmark.title
    assert benchmark.parse([]).out == RESULTS
