"""The class `Benchmark`: a command that measures, and the report of its record."""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from artifact.provenance import git_revision
from benchmarks.lib import provenance, record
from benchmarks.lib.processes import terminating_descendants
from benchmarks.lib.record import RESULTS, Data, Record

FOLDER_OPTIONS = ("out", "data_dir", "runs", "exports", "other")
"""Options that only name folders and do not affect the results; left out of the record."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark."""

    program: str
    """Module name, as in `python -m <program>`."""
    title: str
    description: str
    """Description of the command: the docstring of the module."""
    measure: Callable[[argparse.Namespace], Iterator[Data]]
    """Yields all results so far after each measured part; the record is written each time. Yields nothing if the
    existing record is complete."""
    report: Callable[[Record], str]
    """Body of the report, in Markdown."""
    chart: Callable[[Record, Path], None] | None = None
    options: Callable[[argparse.ArgumentParser], None] | None = None
    """Adds the benchmark's options to a parser."""
    packages: tuple[str, ...] = ("numpy",)
    """Packages whose versions are recorded."""
    missing: Callable[[argparse.Namespace], Sequence[str]] | None = None
    """Names of the parts that the existing record lacks, if the benchmark continues it."""

    @classmethod
    def of(cls, title: str, measure: Callable[[argparse.Namespace], Iterator[Data]], *others: Any, **more: Any) -> Self:
        """The benchmark of the module that defines `measure`: program and description are its name and docstring."""
        module = sys.modules[measure.__module__]
        assert module.__spec__ is not None
        return cls(
            module.__spec__.name.removesuffix(".__main__"), title, module.__doc__ or "", measure, *others, **more
        )

    @property
    def name(self) -> str:
        """Name of the record and its folder."""
        return self.program.rpartition(".")[2]

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Measure and write the record after each part; at the end, render report and chart and print the report.

        SIGTERM ends the benchmark and all processes that it has started; a benchmark that continues its record goes on
        the next time.
        """
        with terminating_descendants():
            self._main(arguments)

    def _main(self, arguments: Sequence[str] | None) -> None:
        given = sys.argv[1:] if arguments is None else list(arguments)
        args = self.parse(given)
        facts: dict[str, Any] = {
            "name": self.name,
            "program": self.program,
            "command": shlex.join(["python", "-m", self.program, *_without_folders(given)]),
            "date": provenance.today(),
            "revision": git_revision(),
            "hardware": provenance.hardware(),  # before the benchmark adds its own load
            "versions": provenance.versions(self.packages),
            "settings": {key: _plain(value) for key, value in vars(args).items() if key not in FOLDER_OPTIONS},
        }
        measured: Record | None = None
        try:
            for data in self.measure(args):
                latest = Record(**facts, data=data)
                record.write(latest, args.out)
                measured = latest  # only after writing, so that the report matches the record
        finally:  # also report the results of an interrupted benchmark
            if measured:
                self.render(measured, args.out / self.name)
                print(self.markdown(measured))
        if not measured:  # the existing record is complete; it keeps its date and revision
            print(f"{args.out / self.name}: the record is complete; nothing was measured")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the command line."""
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
        """Render report and chart of a record."""
        with record.replacing(folder / "report.md") as path:
            path.write_text(self.markdown(measured))
        if self.chart:
            with record.replacing(folder / "chart.webp") as path:
                self.chart(measured, path)

    def markdown(self, measured: Record) -> str:
        """The report in Markdown: title, body, provenance."""
        return f"# {self.title}\n\n{self.report(measured).strip()}\n\n{_provenance(measured)}"


def _provenance(measured: Record) -> str:
    hardware = measured.hardware
    machine = [str(hardware["cpu"])]
    if "cores" in hardware:
        machine.append(f"{hardware['cores']} cores")
    if "load_before" in hardware:
        machine.append(f"load before the run: {hardware['load_before']:.1f}")
    lines = [f"measured on {measured.date} at revision {measured.revision}", ", ".join(machine)]
    if measured.versions:
        lines.append(", ".join(f"{name} {version}" for name, version in measured.versions.items()))
    lines.append(f"command: `{measured.command}`")
    return "".join(f"- {line}\n" for line in lines)


def _without_folders(arguments: Sequence[str]) -> list[str]:
    """Drop the arguments that only name folders."""
    kept, skips_value = list[str](), False
    for argument in arguments:
        name, has_value, _ = argument.removeprefix("--").partition("=")
        is_folder = argument.startswith("--") and name.replace("-", "_") in FOLDER_OPTIONS
        if not skips_value and not is_folder:
            kept.append(argument)
        skips_value = is_folder and not has_value
    return kept


def _plain(value: Any) -> Any:
    """Convert a command-line value to JSON."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Add the option --data-dir."""
    parser.add_argument(
        "--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path, help="folder of the data sets"
    )
