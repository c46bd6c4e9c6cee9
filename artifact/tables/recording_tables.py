"""Recordings in tables: a row for each step (long), or a row for each recording (wide)."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from artifact.errors import InputError
from artifact.manifest import is_text
from artifact.tables.columns import UNNAMED, holds_text, is_time_name
from artifact.tables.labelled import VALUE, Contents, LabelledRecording, RecordingLayout
from artifact.tables.reading import Field, listed, missing
from artifact.tables.series import NUMBER, Sheet, listed_places, number_of, numbers, read_sheet
from artifact.tables.streams import PACKED
from artifact.tables.timeline import name_of_series
from artifact.tables.times import is_year_last, parse_time, text_of
from artifact.tables.values import is_missing, read_value

ID_NAMES = ("id", "recording", "recording_id", "series_id", "case_id")
"""Names of columns with the recording of each row, in lower case."""
STEP_NAMES = ("step", "frame", "sample", "index", "idx", "timepoint")
"""Names of columns that count the steps of a recording, in lower case."""
NUMBERED = re.compile(r"(.*?)[_.]?([0-9]+)")
"""Name of a column of a wide table: its channel and the number of the step."""
SINCE_1970 = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))
"""Numbers from this on count smaller parts of a second since 1970."""
_EPOCH = datetime(1970, 1, 1)


class Roles(NamedTuple):
    """What the columns of a table hold. An empty name stands for no column."""

    id: str
    time: str
    label: str
    group: str
    split: str
    rest: tuple[str, ...]
    """All other columns that are not left out: those of the values."""
    notes: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, str, str]:
        """Columns of the label, group and split."""
        return self.label, self.group, self.split


def read_table(path: Path, layout: RecordingLayout) -> Contents:
    """Read the recordings of a table.

    A row is a step if a column names the recording of each row and most recordings have several rows. Without such a
    column, the table holds one recording if it has a time column or the channels of the layout. Otherwise, each row is
    a recording.

    Raises: InputError naming line and column.
    """
    sheet = sheet_of(path, layout)
    roles = find_roles(sheet, layout)
    if layout.needs_labels and not roles.label:
        raise InputError(
            f"{sheet.place}: {missing(Field(layout.label_column, option='--label-column'), sheet.columns)}"
        )
    if not roles.id:
        if roles.time or (layout.channels and {*layout.channels} <= {*sheet.columns}):
            return read_steps(sheet, roles, layout, [stem_of(sheet.name)] * len(sheet.cells))
        return _wide(sheet, roles, layout, [str(row) for row in range(1, len(sheet.cells) + 1)])
    names, count = _names(sheet, roles.id), len(sheet.cells)
    if (different := len(set(names))) == count:
        return _wide(sheet, roles, layout, names)
    if 2 * different > count and not roles.time:
        raise InputError(
            f"{sheet.name}: {different:,} of {count:,} rows have different values of {roles.id}; a table with a row a "
            "recording has each value once, and one with a row a step has most of them several times"
        )
    return read_steps(sheet, roles, layout, names)


def stem_of(name: str) -> str:
    """Name of the recording in a table of this name."""
    path = Path(name)
    return Path(path.stem).stem if path.suffix.lower() in PACKED else path.stem


def sheet_of(path: Path, layout: RecordingLayout) -> Sheet:
    """All cells of a table. Raises: InputError."""
    named = {layout.id_column, layout.time_column, layout.label_column, *layout.channels, *layout.ignore}
    return read_sheet(path, layout.encoding, named)


def find_roles(sheet: Sheet, layout: RecordingLayout) -> Roles:
    """Find what the columns hold. Raises: InputError for a name that no column has, or several columns of times."""
    layout = replace(
        layout,
        id_column=layout.id_column or _present(sheet, layout.usual_id),
        time_column=layout.time_column or _present(sheet, layout.usual_time),
    )
    options = {
        "--id-column": layout.id_column,
        "--time-column": layout.time_column,
        "--group-column": layout.group_column if layout.needs_groups else "",
    }
    for option, name in [*options.items(), *(("--ignore", name) for name in layout.ignore)]:
        if name and name not in sheet.columns:
            raise InputError(f"{sheet.place}: {missing(Field(name, option=option), sheet.columns)}")
    optional = {*sheet.columns} - {*layout.channels}
    label, split = (name if name in optional else "" for name in (layout.label_column, layout.split_column))
    group = layout.group_column if layout.group_column in sheet.columns else ""
    taken = {layout.id_column, layout.time_column, label, group, split, *layout.ignore, *layout.channels}
    free = [name for name in sheet.columns if name not in taken]
    unnamed = [name for name in free if UNNAMED.fullmatch(name)]
    free = [name for name in free if name not in unnamed]
    id_column = layout.id_column or next((name for name in free if name.strip().lower() in ID_NAMES), "")
    free = [name for name in free if name != id_column]
    time = layout.time_column or _find_time(sheet, free)
    rest = tuple(name for name in sheet.columns if name in layout.channels or (name in free and name != time))
    notes = [f"left out {', '.join(map(repr, unnamed))}: row numbers"] if unnamed else []
    if sheet.empty:
        notes.append(f"left out rows of empty cells: {len(sheet.empty)}, the first {sheet.empty[0]}")
    return Roles(id_column, time, label, group, split, rest, tuple(notes))


def _present(sheet: Sheet, name: str) -> str:
    return name if name in sheet.columns else ""


def _find_time(sheet: Sheet, names: Sequence[str]) -> str:
    """The column of times or counts among these: by its name, or a time stamp in its first cell. Raises: InputError."""
    found = [name for name in names if _is_step_name(name) or is_time_name(name) or _has_stamps(sheet, name)]
    if len(found) > 1:
        raise InputError(
            f"{sheet.place}: the columns {', '.join(found)} may hold times; --time-column names one, --ignore leaves "
            "out the others"
        )
    return found[0] if found else ""


def _is_step_name(name: str) -> bool:
    return name.strip().lower() in STEP_NAMES


def _has_stamps(sheet: Sheet, name: str) -> bool:
    index = sheet.columns.index(name)
    first = next((text_of(row[index]) for row in sheet.cells if not is_missing(row[index])), "")
    return NUMBER.fullmatch(first) is None and (parse_time(first) is not None or is_year_last(first))


def _names(sheet: Sheet, column: str) -> list[str]:
    """Recording of each row. Raises: InputError."""
    cells = sheet.column(column)
    if bad := [f"line {line}" for line, cell in zip(sheet.lines, cells, strict=True) if is_missing(cell)]:
        raise InputError(f"{sheet.name}: {listed_places(f'rows without a value of {column}', bad)}")
    return list(map(name_of_series, cells))


def read_steps(sheet: Sheet, roles: Roles, layout: RecordingLayout, names: Sequence[str]) -> Contents:
    """The recordings of a table with a row for each step, in the order of their first rows.

    Args:
        sheet: the table.
        roles: what its columns hold.
        layout: which channels are read.
        names: name of the recording of each row.

    Raises: InputError naming line and column.

    """
    channels = layout.channels or roles.rest
    for name in channels:
        if name not in sheet.columns:
            raise InputError(f"{sheet.place}: no channel {name!r}; columns: {listed(name, sheet.columns)}")
    if not channels:
        raise InputError(f"{sheet.place}: expected at least one channel; columns: {listed('', sheet.columns)}")
    index = {name: number for number, name in enumerate(dict.fromkeys(names))}
    owners = np.array([index[name] for name in names])
    values = _numbers(sheet, channels)
    seconds = seconds_of(sheet, roles.time, day_first=layout.day_first) if roles.time else np.zeros(len(owners))
    order = np.lexsort((seconds, owners))  # stable: without times, the rows keep their order
    if roles.time:
        _check_times(sheet, roles, order, owners, seconds)
    bounds = np.cumsum(np.bincount(owners))[:-1]
    firsts = np.unique(owners, return_index=True)[1]
    texts = zip(*(_constant(sheet, column, names) for column in roles.texts), strict=True)
    recordings = [
        LabelledRecording(f"{sheet.name}:{sheet.lines[first]}", name, part, *labels)
        for name, first, part, labels in zip(index, firsts, np.split(values[order], bounds), texts, strict=True)
    ]
    times = np.split(seconds[order], bounds) if roles.time else None
    notes = (*roles.notes, *_left_out(channels, roles.rest))
    return Contents(channels, recordings, times, notes, counts_steps=_is_step_name(roles.time))


def _left_out(channels: Sequence[str], rest: Sequence[str]) -> list[str]:
    """A note on the columns that are no channels; none if there are none."""
    names = [name for name in rest if name not in channels]
    return [f"left out {', '.join(map(repr, names))}: not among the channels that are read"] if names else []


def _numbers(sheet: Sheet, columns: Sequence[str]) -> Doubles:
    """Values (rows, columns). Raises: InputError, which tells a column of text how it is left out."""
    try:
        return numbers(sheet, columns)
    except InputError:
        for name in columns:
            if holds_text(sheet.column(name), has_commas=sheet.has_decimal_commas):
                raise InputError(
                    f"{sheet.place}: the column {name!r} holds text, not numbers; --ignore {name} leaves it out"
                ) from None
        raise


def _check_times(sheet: Sheet, roles: Roles, order: NDArray[Any], owners: NDArray[Any], seconds: Doubles) -> None:
    """Check that the times of each recording differ. Raises: InputError naming the rows that have the same."""
    same = np.flatnonzero((np.diff(owners[order]) == 0) & (np.diff(seconds[order]) == 0))
    cells = sheet.column(roles.time) if len(same) else []
    if bad := [
        f"line {sheet.lines[order[place + 1]]} {text_of(cells[order[place]])!r} as in line {sheet.lines[order[place]]}"
        for place in same
    ]:
        hint = "" if roles.id else "; --id-column names the column with the recording of each row"
        raise InputError(f"{sheet.name}: {listed_places(f'repeated values of {roles.time} in a recording', bad)}{hint}")


def seconds_of(sheet: Sheet, column: str, *, day_first: bool) -> Doubles:
    """Seconds (rows,) of the cells of a time column, which holds numbers of seconds or time stamps.

    Numbers of 12 and more digits count milliseconds, microseconds or nanoseconds since 1970.

    Raises: InputError naming the cells that hold no time.
    """
    cells = sheet.column(column)
    counted = [number_of(cell, has_commas=sheet.has_decimal_commas) for cell in cells]
    known = [value for value in counted if value is not None]
    if len(known) == len(cells):
        seconds = np.array(known)
        unit = next((unit for least, unit in SINCE_1970 if np.abs(seconds).min() >= least), 1.0)
        since_first: Doubles = (seconds - seconds.min()) * unit
        return since_first
    stamps = [parse_time(text_of(cell), day_first=day_first) for cell in cells]
    times = [time for time in stamps if time is not None]
    if len(times) < len(cells):
        bad = [row for row, time in enumerate(counted if len(known) > len(times) else stamps) if time is None]
        places = [f"line {sheet.lines[row]} {text_of(cells[row])[:40]!r}" for row in bad]
        hint = "; --day-first reads dates that begin with the day" if is_year_last(text_of(cells[bad[0]])) else ""
        raise InputError(
            f"{sheet.name}: {listed_places(f'cells of {column} that are no times', places)}; expected seconds, or time "
            f"stamps in ISO 8601{hint}"
        )
    if len({time.tzinfo is None for time in times}) > 1:
        raise InputError(f"{sheet.name}: {column} holds times with and without a time zone")
    epoch = _EPOCH.replace(tzinfo=times[0].tzinfo)
    return np.array([(time - epoch) / timedelta(seconds=1) for time in times])


def _constant(sheet: Sheet, column: str, names: Sequence[str]) -> list[str]:
    """Label, group or split of each recording; empty without a column. Raises: InputError if its rows have several."""
    found = dict.fromkeys(names, "")
    for name, text, line in zip(names, texts_of(sheet, column), sheet.lines, strict=True):
        if text and found[name] and text != found[name]:
            raise InputError(
                f"{sheet.name}:{line}: {column} is {text!r}, but {found[name]!r} in an earlier row of the recording "
                f"{name!r}; --id-column names the column with the recording of each row"
            )
        found[name] = text or found[name]
    return list(found.values())


def texts_of(sheet: Sheet, column: str) -> list[str]:
    """Labels of the rows, without the spaces around them; empty where one or the column is missing.

    Raises: InputError naming the line of a cell that is no label.
    """
    if not column:
        return [""] * len(sheet.cells)
    texts = list[str]()
    for line, cell in zip(sheet.lines, sheet.column(column), strict=True):
        try:
            text = "" if is_missing(cell) else read_value(cell, "a label").strip()
        except ValueError as error:
            raise InputError(f"{sheet.name}:{line}: {column} {error}") from None
        if text and not is_text(text):
            raise InputError(f"{sheet.name}:{line}: {column} {text[:40]!r} contains a control character")
        texts.append(text)
    return texts


def _wide(sheet: Sheet, roles: Roles, layout: RecordingLayout, names: Sequence[str]) -> Contents:
    """The recordings of a table with a row for each. Raises: InputError naming line and column."""
    columns = [*roles.rest, roles.time] if roles.time else roles.rest  # a time is refused: it has no number of a step
    found = _channels(sheet, columns)
    if unknown := [name for name in layout.channels if name not in found]:
        raise InputError(f"{sheet.place}: no channel {unknown[0]!r}; channels: {listed(unknown[0], list(found))}")
    channels = layout.channels or tuple(found)
    values = _numbers(sheet, [column for channel in channels for column in found[channel]])
    values = values.reshape(len(sheet.cells), len(channels), -1).transpose(0, 2, 1)
    texts = zip(*(texts_of(sheet, column) for column in roles.texts), strict=True)
    recordings = [
        LabelledRecording(f"{sheet.name}:{line}", name, np.ascontiguousarray(part), *labels)
        for line, name, part, labels in zip(sheet.lines, names, values, texts, strict=True)
    ]
    return Contents(channels, recordings, notes=(*roles.notes, *_left_out(channels, list(found))))


def _channels(sheet: Sheet, columns: Sequence[str]) -> dict[str, list[str]]:
    """Channels of a wide table, and their columns in the order of time.

    The name of a column is that of its channel, a `_`, a point or nothing, and the number of the step, such as `x_0`.
    Columns whose names are numbers are the steps of one channel, in the order of the file.

    Raises: InputError naming the column that has no number, or the channel that lacks a step.
    """
    if columns and all(NUMBER.fullmatch(name.strip()) for name in columns):
        return {VALUE: list(columns)}
    steps = dict[str, dict[int, str]]()
    for name in columns:
        match = NUMBERED.fullmatch(name.strip())
        if match is None:
            raise InputError(
                f"{sheet.place}: the column {name!r} has no number of a step, such as x_0; --ignore {name} leaves it "
                "out; a table with a row a step needs a column that names the recording of each row, --id-column"
            )
        if (other := steps.setdefault(match[1] or VALUE, {}).setdefault(int(match[2]), name)) != name:
            raise InputError(f"{sheet.place}: the columns {other!r} and {name!r} are the same step of a channel")
    if not steps:
        raise InputError(f"{sheet.place}: expected columns of values, such as x_0; columns: {', '.join(sheet.columns)}")
    every = sorted(set().union(*steps.values()))
    for channel, found in steps.items():
        if lacking := [number for number in every if number not in found]:
            raise InputError(f"{sheet.place}: the channel {channel!r} has no column for step {lacking[0]}")
    return {channel: [found[number] for number in every] for channel, found in steps.items()}
