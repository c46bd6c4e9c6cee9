"""`python -m model runs`: list the runs in a folder, and how they differ."""

import argparse
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from model.cli.arguments import path_argument
from model.runs.listing import Run, best_of, difference, differing, find_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `runs`."""
    parser.add_argument(
        "folder", nargs="?", type=path_argument, default=Path("runs"), help="folder of the runs (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> None:
    """Print the runs of each task, and the settings in which they differ. Raises: UserError."""
    for task, group in groupby(find_runs(args.folder), lambda one: one.task):
        runs = list(group)
        print(f"{task}:" if task else "no recipe can be read:")
        best = best_of(runs)
        heads = ["run", "data", "validation", "test", "n", "baseline", "to the best", "status"]
        print_aligned([heads, *([*_row(one), difference(one, best), one.status] for one in runs)])
        for data, alike in groupby(runs, lambda one: one.data):
            _print_settings(data, list(alike))
        print()


def _print_settings(data: str, runs: Sequence[Run]) -> None:
    """Print the settings in which runs on the same data differ."""
    if settings := differing(runs):
        print(f"{data}, settings that differ:")
        print_aligned([["", *(one.name for one in runs)], *([key, *found] for key, found in settings.items())])


def _row(one: Run) -> list[str]:
    """Name, data and results."""
    if one.result is None:
        return [one.name, one.data, one.validation, "", "", ""]
    baseline = f"{one.result.baselines[0].value:.4f}" if one.result.baselines else ""
    test = f"{one.result.metric} {one.result.value:.4f}"
    return [one.name, one.data, one.validation, test, str(one.result.examples), baseline]


def print_aligned(rows: Sequence[Sequence[str]]) -> None:
    """Print rows with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
