"""Forecasts of the series of a table, as a table of the same layout: one column per series, or one row per value."""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from artifact.errors import InputError, InvalidInput
from artifact.local import Json, Model
from artifact.series import IRREGULAR, Layout, parse_frequency
from artifact.tables.timeline import Rows, Time, Timeline, align, read_series, times_of
from service.offline.compute import PredictOptions

DATES = ("%Y", "%Y-%m", "%Y%m", "%Y-%m-%d", "%Y%m%d", "%Y/%m/%d", "%d/%m/%Y", "%d.%m.%Y")
FORMS = (*DATES, *(f"%Y-%m-%d {clock}" for clock in ("%H:%M", "%H:%M:%S")))
"""Formats of time stamps that the forecast keeps; others become ISO 8601."""


class ForecastTable(NamedTuple):
    """The next steps of the series of a file."""

    rows: Iterator[list[object]]
    """The header, and the rows. Each quantile is a further column, such as `sales 0.9`."""
    notes: tuple[str, ...]
    """What the user should know."""


def forecast_table(model: Model, path: Path, layout: Layout, options: PredictOptions) -> ForecastTable:
    """Forecast all series of a file with a forecaster of any series.

    Raises: InputError for a file that cannot be read, or a series that cannot be forecast.

    """
    rows = read_series(path, layout, finds_long=True)
    is_long, times = rows.owners is not None, None if rows.stamps is None else times_of(rows, layout)
    try:
        timeline = align(rows, layout, fill=True)
        answer = model.forecast(
            _columns(timeline, is_long=is_long),
            horizon=options.horizon,
            quantiles=options.quantiles,
            season=options.season,
            frequency=None if timeline.frequency == IRREGULAR else timeline.frequency,
            non_negative=options.non_negative,
        )
    except InvalidInput as error:
        raise InputError(f"{path}: {error}") from None
    write = _long if is_long else _wide
    note = f"season {_told(answer['season'])}, from the {answer['season_from']}"
    return ForecastTable(write(rows, times, timeline.frequency, answer), (*timeline.notes, note))


def _columns(timeline: Timeline, *, is_long: bool) -> dict[str, list[float | None]]:
    """Values of each series; those of a long table end with their last known value."""
    found = dict[str, list[float | None]]()
    for name, column in zip(timeline.channels, timeline.values.T, strict=True):
        known = np.flatnonzero(~np.isnan(column)).tolist()
        end = known[-1] + 1 if is_long and known else len(column)
        found[name] = [None if math.isnan(value) else value for value in column[:end].tolist()]
    return found


def _told(season: Any) -> str:
    """A season, or the number of steps of each series."""
    return ", ".join(f"{name}: {one}" for name, one in season.items()) if isinstance(season, dict) else str(season)


def _wide(rows: Rows, times: Sequence[Time] | None, frequency: str, answer: Json) -> Iterator[list[object]]:
    """The header, and a row for each step."""
    tables = {"": answer["forecast"], **{f" {level}": table for level, table in answer["quantiles"].items()}}
    columns = {f"{name}{suffix}": table[name] for name in rows.channels for suffix, table in tables.items()}
    steps = len(answer["forecast"][rows.channels[0]])
    if times is not None:
        columns = {rows.layout.time_column: _next(rows, times, range(len(times)), frequency, steps), **columns}
    yield list(columns)
    yield from map(list, zip(*columns.values(), strict=True))


def _long(rows: Rows, times: Sequence[Time] | None, frequency: str, answer: Json) -> Iterator[list[object]]:
    """The header, and for each series a row for each step after its last value."""
    layout, owners = rows.layout, np.array(rows.owners)
    assert times is not None  # a long table has a time column
    target = [layout.target_column, *(f"{layout.target_column} {level}" for level in answer["quantiles"])]
    yield [layout.id_column, layout.time_column, *target]
    for index, name in enumerate(rows.channels):
        own = np.flatnonzero((owners == index) & ~np.isnan(rows.values[:, 0])).tolist()
        tables = [answer["forecast"][name], *(table[name] for table in answer["quantiles"].values())]
        stamps = _next(rows, times, own, frequency, len(tables[0]))
        for stamp, *values in zip(stamps, *tables, strict=True):
            yield [name, stamp, *values]


def _next(rows: Rows, times: Sequence[Time], own: Sequence[int], frequency: str, count: int) -> list[str]:
    """Time stamps after the last of some rows, in its format; empty if the steps are irregular."""
    place = max(own, key=lambda row: times[row])
    last, text = times[place], (rows.stamps or ())[place].strip()
    if isinstance(last, int):
        counts = np.unique([time for time in times if isinstance(time, int)])
        step = int(np.median(np.diff(counts))) if len(counts) > 1 else 1
        return [str(last + step * (number + 1)) for number in range(count)]
    if frequency == IRREGULAR:
        return [""] * count
    try:
        following = [parse_frequency(frequency).add(last, number + 1) for number in range(count)]
    except OverflowError:
        raise InputError(f"{rows.name}: the forecast would end after the year 9999") from None
    form = _form(last, text)
    return [time.isoformat() if form is None else time.strftime(form) for time in following]


def _form(time: datetime, text: str) -> str | None:
    """The format of a time stamp among FORMS; None if it has another one."""
    return next((form for form in FORMS if time.strftime(form) == text), None)
