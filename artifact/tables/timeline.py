"""Series at equal steps: the rows of a table in the order of their time stamps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from artifact.arrays import Doubles
from artifact.errors import InputError
from artifact.manifest import is_text
from artifact.series import IRREGULAR, PLAIN, Layout, parse_frequency
from artifact.tables.columns import find_columns, find_id_columns
from artifact.tables.series import Sheet, listed_places, numbers, read_sheet
from artifact.tables.steps import Placement, infer_step, place
from artifact.tables.times import NUMBER, TIME_FORMATS, is_year_last, numeric_reader, parse_time, text_of
from artifact.tables.values import is_missing

Time = datetime | int
"""A time stamp, or a count of steps."""
LONG_STEP = 10
"""A step that is this many times the median is named where the steps are irregular."""


@dataclass(frozen=True)
class Rows:
    """Rows of a table of series, as they are in the file."""

    name: str
    """Name of the file."""
    channels: tuple[str, ...]
    lines: tuple[int, ...]
    """Line of each row in the file."""
    stamps: tuple[str, ...] | None
    """Time stamp of each row as it is written; None if there is no time column."""
    values: Doubles
    """(rows, columns), NaN where a value is missing. A long table has one column."""
    columns: tuple[str, ...]
    """Names of the columns: those of the channels, or the target of a long table."""
    owners: tuple[int, ...] | None = None
    """Channel of each row of a long table."""
    notes: tuple[str, ...] = ()
    """What the user should know about how the file was read."""
    long_hint: str = ""
    """Options that read the file as a long table, if it seems to be one."""
    layout: Layout = PLAIN
    """How the file was read, with the columns that were found."""

    def missing_values(self) -> list[str]:
        """A fault that names the missing values; none if there are none."""
        places = [f"line {self.lines[row]} column {self.columns[column]}" for row, column in self._missing()]
        return [listed_places("missing values", places)] if places else []

    def _missing(self) -> Any:
        return np.argwhere(np.isnan(self.values))


@dataclass(frozen=True)
class Timeline:
    """A series at equal steps, oldest first."""

    channels: tuple[str, ...]
    values: Doubles
    """(steps, channels), NaN where a value or a row is missing."""
    frequency: str
    """Time step, or `irregular`."""
    notes: tuple[str, ...]


def read_timeline(path: Path, layout: Layout, *, fill: bool) -> Timeline:
    """Read a series. Missing values and rows are errors, or with `fill` NaN.

    Raises: InputError naming the lines of all bad cells, or of all missing values and repeated, unsorted and missing
        time stamps.
    """
    return align(read_series(path, layout), layout, fill=fill)


def read_series(path: Path, layout: Layout, *, finds_long: bool = False) -> Rows:
    """Read the time stamps and the values of a file.

    Args:
        path: the file.
        layout: how it holds series.
        finds_long: whether to read what seems to be a long table as one, without being told so by the layout.

    Raises: InputError naming line and column of all cells that are not numbers.

    """
    named = {layout.time_column, layout.id_column, layout.target_column, *layout.channels, *layout.ignore}
    sheet = read_sheet(path, layout.encoding, named)
    if bool(layout.id_column) != bool(layout.target_column):
        given, other = ("--id-column", "--target-column")[:: 1 if layout.id_column else -1]
        raise InputError(f"{given} needs {other}: a long table has both; columns: {', '.join(sheet.columns)[:200]}")
    found = find_columns(sheet, layout)
    stamps = None if found.time is None else tuple(map(text_of, sheet.column(found.time)))
    if layout.id_column:
        return _long_rows(sheet, replace(layout, time_column=found.time or ""), stamps, found.notes)
    layout = replace(layout, time_column=found.time or "")
    hint = ""
    if stamps is not None and found.time is not None and len(set(stamps)) < len(stamps):
        ids = find_id_columns(sheet, found.time)
        targets = [name for name in found.values if name not in ids]
        if finds_long and len(ids) == len(targets) == 1:
            layout = replace(layout, id_column=ids[0], target_column=targets[0])
            return _long_rows(sheet, layout, stamps, find_columns(sheet, layout).notes)
        hint = _long_hint(ids, found.values)
    values = numbers(sheet, found.values)
    return Rows(sheet.name, found.values, sheet.lines, stamps, values, found.values, None, found.notes, hint, layout)


def _long_hint(ids: Sequence[str], values: Sequence[str]) -> str:
    """How to read what seems to be a long table."""
    if not ids:
        return ""
    target = next((name for name in values if name not in ids), "NAME")
    if len(ids) == 1:
        return f"; or is this a long table? --id-column {ids[0]} --target-column {target} reads it"
    return (
        f"; or is this a long table? Join {' and '.join(ids)} in one column for --id-column; --target-column {target}"
    )


def _long_rows(sheet: Sheet, layout: Layout, stamps: tuple[str, ...] | None, notes: tuple[str, ...]) -> Rows:
    """Rows of a long table: of the asked series, or of all of them in the order of their first rows."""
    if stamps is None:
        raise InputError(f"{sheet.place}: a long table needs a time column; --time-column names it")
    cells = sheet.column(layout.id_column)
    if bad := [f"line {line}" for line, cell in zip(sheet.lines, cells, strict=True) if is_missing(cell)]:
        raise InputError(f"{sheet.name}: {listed_places(f'rows without a value of {layout.id_column}', bad)}")
    names = [name_of_series(cell) for cell in cells]
    if unsound := [name for name in names if not is_text(name)]:
        raise InputError(f"{sheet.name}: the name {unsound[0]!r} contains a control character")
    channels = layout.channels or tuple(dict.fromkeys(names))
    if missing := [name for name in channels if name not in set(names)]:
        known = ", ".join(dict.fromkeys(names))[:200]
        raise InputError(f"{sheet.name}: no series {missing[0]!r} in the column {layout.id_column}; series: {known}")
    index = {name: number for number, name in enumerate(channels)}
    kept = [number for number, name in enumerate(names) if name in index]
    part = Sheet(
        sheet.name,
        sheet.place,
        sheet.columns,
        tuple(sheet.lines[number] for number in kept),
        tuple(sheet.cells[number] for number in kept),
        sheet.has_decimal_commas,
    )
    return Rows(
        sheet.name,
        channels,
        part.lines,
        tuple(stamps[number] for number in kept),
        numbers(part, [layout.target_column]),
        (layout.target_column,),
        tuple(index[names[number]] for number in kept),
        notes,
        layout=layout,
    )


def name_of_series(cell: Any) -> str:
    """Name of a series in a long table: a float that is a whole number is that integer."""
    text = text_of(cell)
    return text.partition(".")[0] if isinstance(cell, float) and NUMBER.fullmatch(text) else text


def times_of(rows: Rows, layout: Layout) -> list[Time]:
    """Times of all rows, or the integers that count their steps.

    Raises: InputError naming the lines of all time stamps that cannot be read.
    """
    stamps = rows.stamps or ()
    read = _reader(stamps, layout)
    times = [read(text) for text in stamps]
    places = [f"line {line} {text[:40]!r}" for line, text in zip(rows.lines, stamps, strict=True)]
    if bad := [place for place, time in zip(places, times, strict=True) if time is None]:
        unread = [text for text, time in zip(stamps, times, strict=True) if time is None]
        hint = ""
        if not layout.day_first and all(map(is_year_last, unread)):
            hint = (
                "; --day-first reads dates that begin with the day; write those that begin with the month in ISO 8601"
            )
        raise InputError(
            f"{rows.name}: {listed_places('time stamps that cannot be read', bad)}; expected {TIME_FORMATS}{hint}; "
            "--time-column names the time column"
        )
    known = [time for time in times if time is not None]
    is_zoned = [isinstance(time, datetime) and time.tzinfo is not None for time in known]
    if 0 < sum(is_zoned) < len(known):
        kind = "with" if 2 * sum(is_zoned) <= len(known) else "without"
        fewer = [place for place, zoned in zip(places, is_zoned, strict=True) if zoned == (kind == "with")]
        raise InputError(f"{rows.name}: {listed_places(f'time stamps {kind} a time zone, unlike the others', fewer)}")
    return known


def _reader(stamps: Sequence[str], layout: Layout) -> Callable[[str], Time | None]:
    """How the cells of a time column are read."""
    known = [text for text in stamps if not is_missing(text)]
    if 2 * sum(NUMBER.fullmatch(text) is not None for text in known) > len(known):
        return numeric_reader(known) or _count_of
    return lambda text: parse_time(text, day_first=layout.day_first)


def _count_of(text: str) -> int | None:
    found = NUMBER.fullmatch(text)
    return None if found is None or float(text) % 1 else int(text.partition(".")[0])


@dataclass(frozen=True)
class _Stamps:
    """Different times of a table, in order."""

    times: list[Time]
    places: dict[Time, str]
    """Line and text of the first row of each time."""
    faults: list[str] = field(default_factory=list)
    """Repeated and unsorted time stamps."""


def align(rows: Rows, layout: Layout, *, fill: bool) -> Timeline:
    """Bring rows to equal steps, as `read_timeline`. Raises: InputError."""
    notes = list(rows.notes)
    hint = "" if fill else "; --fill interpolates them"
    faults = [] if fill else [f"{fault}{hint}" for fault in rows.missing_values()]
    frequency = _given(layout)
    if rows.stamps is None:
        notes.append("no time column: rows are equally spaced")
        frequency = frequency or IRREGULAR
        indices = np.arange(len(rows.values))
    else:
        times = times_of(rows, layout)
        stamps = _sort(rows, times)
        faults += stamps.faults
        frequency, found, fits = _grid(stamps, frequency, notes)
        faults += _misplaced(stamps, frequency, found, fits, layout, fill=fill)
        first = int(found[fits].min()) if fits.any() else 0
        number = dict(zip(stamps.times, (found - first).tolist(), strict=True))
        indices = np.array([number[time] for time in times], np.int64)
    if not faults and rows.owners is not None:
        faults += _unequal(rows, indices, notes, fill=fill)
    if faults:
        raise InputError(f"{rows.name}: {'; '.join(faults)}")
    values = np.full((int(indices.max()) + 1, len(rows.channels)), np.nan)
    if rows.owners is None:
        values[indices] = rows.values
    else:
        values[indices, list(rows.owners)] = rows.values[:, 0]
    missing = np.isnan(values)
    if missing.any():
        absent = len(values) - len(set(indices.tolist()))
        added = f"{absent} row was" if absent == 1 else f"{absent} rows were"
        notes.append(f"filled {int(missing.sum())} values, {missing.mean():.1%} of all; {added} missing")
    return Timeline(rows.channels, values, frequency, tuple(notes))


def _given(layout: Layout) -> str:
    """The name of the frequency that was given; empty if it is to be found."""
    if layout.frequency in ("", IRREGULAR):
        return layout.frequency
    return parse_frequency(layout.frequency).name


def _sort(rows: Rows, times: Sequence[Time]) -> _Stamps:
    """The different times of all rows; those of one series must be different and rise."""
    places, faults = dict[Time, str](), list[str]()
    repeated, unsorted = list[str](), list[str]()
    lines, latest = dict[tuple[int, Time], int](), dict[int, Time]()
    for time, line, text, owner in zip(
        times, rows.lines, rows.stamps or (), rows.owners or (0,) * len(times), strict=True
    ):
        place = f"line {line} {text!r}"
        places.setdefault(time, place)
        if (owner, time) in lines:
            repeated.append(f"{place} as in line {lines[owner, time]}")
            continue
        lines[owner, time] = line
        if owner in latest and time < latest[owner]:  # type: ignore[operator]
            unsorted.append(place)
        else:
            latest[owner] = time
    if repeated:
        faults.append(f"{listed_places('repeated time stamps', repeated)}; keep one row of each{rows.long_hint}")
    if unsorted:
        faults.append(
            f"{listed_places('time stamps before that of an earlier line', unsorted)}; sort the rows, oldest first"
        )
    return _Stamps(sorted(places), places, faults)


def _grid(stamps: _Stamps, frequency: str, notes: list[str]) -> tuple[str, Any, Any]:
    """The frequency, the place of each time on its grid, and whether it fits; adds notes."""
    count = len(stamps.times)
    every, all_fit = np.arange(count), np.ones(count, np.bool_)
    if isinstance(stamps.times[0], int):
        notes.append("the time column counts the steps")
        counts = np.array(stamps.times, object)
        steps = sorted(np.diff(counts).tolist())
        step = steps[len(steps) // 2] if steps else 1
        if frequency == IRREGULAR or sum(one % step == 0 for one in steps) < 0.95 * len(steps):
            return frequency or IRREGULAR, every, all_fit
        return frequency or IRREGULAR, (counts - counts[0]) // step, (counts - counts[0]) % step == 0
    times = [time for time in stamps.times if isinstance(time, datetime)]
    step = infer_step(times) if not frequency else None if frequency == IRREGULAR else parse_frequency(frequency)
    if step is None:
        notes.append(_irregular(stamps, times, is_given=bool(frequency)))
        return IRREGULAR, every, all_fit
    found = place(times, step)
    if note := _rounded(stamps, found, step.name):
        notes.append(note)
    return step.name, found.places, found.fits


def _irregular(stamps: _Stamps, times: Sequence[datetime], *, is_given: bool) -> str:
    """Note that rows are read as equally spaced; it names the longest steps."""
    why = "as asked" if is_given else "the time stamps have no regular step"
    told = f"{why}: rows are read as equally spaced"
    steps = [later - earlier for earlier, later in pairwise(times)]
    if not steps:
        return told
    median = sorted(steps)[len(steps) // 2]
    gaps = [
        f"{step} after {stamps.places[time]}"
        for time, step in zip(times, steps, strict=False)
        if step > LONG_STEP * median
    ]
    return f"{told}; {listed_places(f'steps over {LONG_STEP} times the median of {median}', gaps)}" if gaps else told


def _rounded(stamps: _Stamps, found: Placement, name: str) -> str:
    """Note on the time stamps that were rounded to the grid; empty if there are none."""
    moved = found.fits & (found.distances > 0)
    if not moved.any():
        return ""
    first = stamps.places[stamps.times[int(moved.argmax())]]
    count = int(moved.sum())
    most = timedelta(microseconds=int(found.distances[moved].max()))
    kind = "time stamp was" if count == 1 else "time stamps were"
    return f"{count} {kind} rounded to the step of {name}, by up to {most}; the first in {first}"


def _misplaced(stamps: _Stamps, frequency: str, found: Any, fits: Any, layout: Layout, *, fill: bool) -> list[str]:
    """Faults of time stamps that are off the grid, share a step, or are missing."""
    places = [stamps.places[time] for time in stamps.times]
    if not fits.all():
        off = [place for place, fit in zip(places, fits, strict=True) if not fit]
        return [listed_places(f"time stamps that are not a whole number of {frequency} after the first", off)]
    faults = []
    steps = sorted(zip(found.tolist(), places, strict=True))
    if shared := [f"{place} as {before}" for (one, before), (two, place) in pairwise(steps) if one == two]:
        faults.append(listed_places(f"time stamps in the same step of {frequency}", shared))
    absent = steps[-1][0] - steps[0][0] + 1 - len({step for step, _ in steps})
    if absent and (not fill or absent > len(steps)):
        gaps = [
            f"{after - before - 1} after {place}"
            for (before, place), (after, _) in pairwise(steps)
            if after > before + 1
        ]
        hint = "--fill interpolates them" if absent <= len(steps) else "too many to interpolate"
        if absent > len(steps) and not layout.frequency:
            hint += "; --frequency irregular reads the rows as equally spaced"
        step = "" if frequency == IRREGULAR or isinstance(stamps.times[0], int) else f" at a step of {frequency}"
        faults.append(f"{listed_places(f'{absent} missing time stamps{step}, gaps', gaps)}; {hint}")
    return faults


def _unequal(rows: Rows, indices: Any, notes: list[str], *, fill: bool) -> list[str]:
    """Fault, or with `fill` note, on series of a long table without a row at some of its time steps."""
    owners, steps = np.array(rows.owners), set(indices.tolist())
    parts = []
    for number, name in enumerate(rows.channels):
        own = sorted(indices[owners == number].tolist())
        before = sum(step < own[0] for step in steps)
        after = sum(step > own[-1] for step in steps)
        inside = len(steps) - len(own) - before - after
        counts = {"at the start": before, "inside": inside, "at the end": after}
        if any(counts.values()):
            parts.append(f"{name!r} ({', '.join(f'{count} {where}' for where, count in counts.items() if count)})")
    if not parts:
        return []
    told = listed_places("series without a row at some time steps", parts)
    if fill:
        notes.append(f"{told}; the first and last values are repeated at the ends")
        return []
    return [f"{told}; --fill repeats the first and last values at the ends, and interpolates inside"]
