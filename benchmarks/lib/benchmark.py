"""What a benchmark is: a program that measures, and how its record is told."""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifact.provenance import git_revision
from benchmarks.lib import provenance, record
from benchmarks.lib.record import RESULTS, Data, Record

NOT_SETTINGS = ("out", "data_dir", "runs")
"""Options that say where things lie; they change no figure."""


@dataclass(frozen=True)
class Benchmark:
    """One program of the project that measures."""

    program: str
    """Module, as in `python -m <program>`."""
    title: str
    description: str
    """Of the command; the docstring of the module."""
    measure: Callable[[argparse.Namespace], Iterator[Data]]
    """Yields what is known so far, after each part that it measured; each time the record is written."""
    report: Callable[[Record], str]
    """Body of the report in Markdown."""
    chart: Callable[[Record, Path], None] | None = None
    options: Callable[[argparse.ArgumentParser], None] | None = None
    """Adds the options of the program."""
    packages: tuple[str, ...] = ("numpy",)
    """Whose versions are noted."""

    @property
    def name(self) -> str:
        """Of the record and its folder."""
        return self.program.rpartition(".")[2]

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Measure; write the record after each part, report and chart at the end; print the report."""
        given = sys.argv[1:] if arguments is None else list(arguments)
        args = self.parse(given)
        facts: dict[str, Any] = {
            "name": self.name,
            "program": self.program,
            "command": shlex.join(["python", "-m", self.program, *_without_places(given)]),
            "date": provenance.today(),
            "revision": git_revision(),
            "hardware": provenance.hardware(),  # before the run, whose own load is not of interest
            "versions": provenance.versions(self.packages),
            "settings": {key: _plain(value) for key, value in vars(args).items() if key not in NOT_SETTINGS},
        }
        measured: Record | None = None
        try:
            for data in self.measure(args):
                known = Record(**facts, data=data)
                record.write(known, args.out)
                measured = known  # once it is written: a report never tells more than its record
        finally:  # what an interrupted program knows is told, too
            if measured:
                self.render(measured, args.out / self.name)
                print(self.markdown(measured))
        if not measured:  # the record, with the date and the revision of its figures, stays as it is
            print(f"{args.out / self.name}: nothing is missing")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Read the command line."""
        parser = argparse.ArgumentParser(
            prog=f"python -m {self.program}",
            description=self.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if self.options:
            self.options(parser)
        parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results (default: %(default)s)")
        return parser.parse_args(arguments)

    def render(self, measured: Record, folder: Path) -> None:
        """Make report and chart from a record."""
        (folder / "report.md").write_text(self.markdown(measured))
        if self.chart:
            self.chart(measured, folder / "chart.png")

    def markdown(self, measured: Record) -> str:
        """The report: title, body, provenance."""
        return f"# {self.title}\n\n{self.report(measured).strip()}\n\n{_provenance(measured)}"


def _provenance(measured: Record) -> str:
    known = measured.hardware
    machine = [str(known["cpu"])]
    if "cores" in known:
        machine.append(f"{known['cores']} cores")
    if "load_before" in known:
        machine.append(f"load before the run: {known['load_before']:.1f}")
    lines = [f"measured on {measured.date} at revision {measured.revision}", ", ".join(machine)]
    if measured.versions:
        lines.append(", ".join(f"{name} {version}" for name, version in measured.versions.items()))
    lines.append(f"command: `{measured.command}`")
    return "".join(f"- {line}\n" for line in lines)


def _without_places(arguments: Sequence[str]) -> list[str]:
    """The arguments without those that say where things lie."""
    kept, skips = list[str](), False
    for argument in arguments:
        name, has_value, _ = argument.removeprefix("--").partition("=")
        is_place = argument.startswith("--") and name.replace("-", "_") in NOT_SETTINGS
        if not skips and not is_place:
            kept.append(argument)
        skips = is_place and not has_value
    return kept


def _plain(value: Any) -> Any:
    """A value of the command line as JSON."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """The option that says where the data sets lie."""
    parser.add_argument(
        "--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path, help="folder of the data sets"
    )
