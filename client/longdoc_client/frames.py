"""Data frames in and out, for both clients. narwhals reads those of pandas, polars and other libraries."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from math import isinf
from typing import Any, NamedTuple

import narwhals as nw

from longdoc_client import operations
from longdoc_client.errors import LongdocError
from longdoc_client.exchange import Call, calls, encode

FRIDAY = 4
UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "min": 60, "s": 1}
"""Units of time steps in seconds, the longest first."""
SHORTEST_DAY = timedelta(hours=23)


@dataclass(frozen=True)
class Job:
    """Requests for the rows or series of a frame, and the frame of their answers."""

    calls: Iterable[Call]
    total: int
    """Number of answers."""
    finish: Callable[[list[Any]], Any]
    """Answers, or errors in their places, in order -> a frame of the same library."""


def classify(texts: Any, options: Mapping[str, Any]) -> Job:
    """Texts of a column; missing ones are not sent. Raises: TypeError for anything but a column."""
    column = nw.from_native(texts, series_only=True)
    values = column.to_list()
    rows = [row for row, value in enumerate(values) if isinstance(value, str | bytes)]

    def finish(answers: list[Any]) -> Any:
        found = _by_row(answers, rows, len(values), "the text is missing")
        return _beside(
            column.to_frame(),
            label=[one.get("label") for one in found],
            score=[one.get("score") for one in found],
            **({"labels": [one.get("labels") for one in found]} if any("labels" in one for one in found) else {}),
            known=[one["coverage"].get("known") if "coverage" in one else None for one in found],
            error=[one.get("error") for one in found],
        )

    return Job(operations.classify_each([values[row] for row in rows], options), len(rows), finish)


def score(pairs: Any, options: Mapping[str, Any]) -> Job:
    """Pairs of texts in two columns; those without a text are not sent. Raises: ValueError for another number."""
    frame = nw.from_native(pairs, eager_only=True)
    if len(frame.columns) != 2:
        raise ValueError(
            f"expected two columns of texts, got {len(frame.columns)}: {', '.join(map(str, frame.columns))}"
        )
    values = list(zip(*(frame.get_column(name).to_list() for name in frame.columns), strict=True))
    rows = [row for row, pair in enumerate(values) if all(isinstance(text, str) for text in pair)]

    def finish(answers: list[Any]) -> Any:
        found = _by_row(answers, rows, len(values), "a text is missing")
        return _beside(frame, score=[one.get("score") for one in found], error=[one.get("error") for one in found])

    return Job(operations.score_each([values[row] for row in rows], options), len(rows), finish)


class Times(NamedTuple):
    """The times of a series: when it begins, how they are told, and its step."""

    values: list[datetime]
    sample: Any
    """A time as the frame has it."""
    zone: tzinfo | None
    step: str

    def told(self, stamps: Iterable[str]) -> list[Any]:
        """Time stamps of the service in the form of the frame: times, dates or texts."""
        found = [datetime.fromisoformat(stamp) for stamp in stamps]
        if self.zone:
            found = [
                stamp.astimezone(self.zone) if stamp.tzinfo else stamp.replace(tzinfo=self.zone) for stamp in found
            ]
        if isinstance(self.sample, datetime):
            return found
        if not isinstance(self.sample, str):
            return [stamp.date() for stamp in found]
        is_date = len(self.sample) == len("2024-01-31")
        return [stamp.date().isoformat() if is_date else stamp.isoformat() for stamp in found]


def forecast(
    frame: Any, time_column: str | None, id_column: str | None, target_column: str | None, options: Mapping[str, Any]
) -> Job:
    """The series of a wide frame, or with `id_column` and `target_column` those of a long one.

    Raises: ValueError for a frame without series, or with times that are missing or not regular.
    """
    if id_column is None and target_column is None:
        return _wide(frame, time_column, options)
    if id_column is None or target_column is None:
        raise ValueError("a long frame needs both id_column and target_column")
    return _long(nw.from_native(frame, eager_only=True), time_column, id_column, target_column, options)


def _wide(frame: Any, time_column: str | None, options: Mapping[str, Any]) -> Job:
    """One request for all columns of numbers; a frame with an index of times gets one with such an index."""
    table = nw.from_native(frame, eager_only=True)
    index: Any = nw.maybe_get_index(table)
    periods = index if hasattr(index, "to_timestamp") else None
    if periods is not None:
        index = periods.to_timestamp()
    has_index = time_column is None and index is not None and len(index) > 0 and isinstance(index[0], datetime)
    times = None
    if has_index or time_column is not None:
        stamps = list(index) if has_index else table.get_column(str(time_column)).to_list()
        times = _times(stamps, time_column or "index", options)
    else:
        _check_no_times(table)
    order = range(len(table)) if times is None else sorted(range(len(table)), key=times.values.__getitem__)
    names = [name for name, kind in table.schema.items() if name != time_column and kind.is_numeric()]
    if not names:
        raise ValueError(f"no column holds numbers; columns: {', '.join(map(str, table.columns))}")
    columns = {str(name): _numbers(table.get_column(name)) for name in names}
    series = {name: [values[row] for row in order] for name, values in columns.items()}
    line = _series_line(series, times, options)

    def finish(answers: list[Any]) -> Any:
        (answer,) = answers
        if isinstance(answer, LongdocError):
            raise answer
        ahead = [] if times is None else times.told(answer["timestamps"])
        known = {} if times is None or has_index else {str(time_column): ahead}
        found = nw.from_dict({**known, **_columns(answer, series)}, backend=table.implementation).to_native()
        if not has_index:
            return found
        found = found.set_axis(ahead, axis=0).rename_axis(index.name)
        return found if periods is None else found.to_period(periods.freq)

    return Job(calls(operations.FORECAST, [line]), 1, finish)


def _long(
    table: "nw.DataFrame[Any]", time_column: str | None, id_column: str, target: str, options: Mapping[str, Any]
) -> Job:
    """A request line for each series, in the order of their first rows."""
    owners, values = table.get_column(id_column), _numbers(table.get_column(target))
    target = str(target)  # pandas allows numbers, JSON does not
    if (missing := next((row for row, is_missing in enumerate(owners.is_null()) if is_missing), None)) is not None:
        raise ValueError(f"{id_column}: row {missing} names no series")
    rows = dict[Any, list[int]]()
    for row, owner in enumerate(owners.to_list()):
        rows.setdefault(owner, []).append(row)
    if time_column is None:
        _check_no_times(table.drop(id_column))
    stamps = None if time_column is None else table.get_column(time_column).to_list()
    times = dict[Any, Times]()
    if stamps is not None:
        for owner, own in rows.items():
            found = _times([stamps[row] for row in own], f"{time_column} of {owner}", options)
            times[owner] = found
            rows[owner] = [own[place] for place in sorted(range(len(own)), key=found.values.__getitem__)]
    lines = (
        _series_line({target: [values[row] for row in own]}, times.get(owner), options) for owner, own in rows.items()
    )

    def finish(answers: list[Any]) -> Any:
        parts = [{} if isinstance(answer, LongdocError) else _columns(answer, [target]) for answer in answers]
        names = next((list(part) for part in parts if part), [target])
        found = {name: list[Any]() for name in (id_column, *([time_column] if time_column else ()), *names, "error")}
        for owner, answer, part in zip(rows, answers, parts, strict=True):
            steps = len(part[target]) if part else 1
            found[id_column] += [owner] * steps
            if time_column:
                found[time_column] += times[owner].told(answer["timestamps"]) if part else [None]
            for name in names:
                found[name] += part.get(name, [None])
            found["error"] += [None if part else answer.reason] * steps
        return nw.from_dict(found, backend=table.implementation).to_native()

    return Job(calls(operations.FORECAST, lines), len(rows), finish)


def _check_no_times(table: "nw.DataFrame[Any]") -> None:
    """Raises: ValueError for a column of times."""
    for name, kind in table.schema.items():
        if kind.is_temporal():
            raise ValueError(f"{name} holds times; name it with time_column, or leave it out")


def _series_line(series: Mapping[str, Any], times: Times | None, options: Mapping[str, Any]) -> bytes:
    """A request for series; the times give its start and frequency."""
    known = {} if times is None else {"start": min(times.values).isoformat(), "frequency": times.step}
    return encode({"series": operations.without_nan(series), **known, **options})


def _numbers(column: "nw.Series[Any]") -> list[Any]:
    """Values of a column; None for those that are missing. Raises: ValueError for one that is infinite."""
    if column.dtype.is_numeric():
        column = column.cast(nw.Float64())
    missing = column.is_null().to_list()
    found = [None if is_missing else value for value, is_missing in zip(column.to_list(), missing, strict=True)]
    for row, value in enumerate(found):
        if isinstance(value, float) and isinf(value):
            raise ValueError(f"{column.name}: row {row} is {value}; expected a number, or a missing value")
    return found


def _columns(answer: Mapping[str, Any], names: Iterable[str]) -> dict[str, list[float]]:
    """Forecasts and quantiles of series by the names of their columns."""
    tables = {"": answer["forecast"], **{f" {level}": table for level, table in answer["quantiles"].items()}}
    return {f"{name}{suffix}": table[name] for name in names for suffix, table in tables.items()}


def _times(stamps: Sequence[Any], name: str, options: Mapping[str, Any]) -> Times:
    """Times of a column, with the given frequency or their step.

    Raises: ValueError for one that is missing, no time, or not a step after the one before.
    """
    found = list[datetime]()
    for row, stamp in enumerate(stamps):
        try:
            time = datetime.fromisoformat(stamp) if isinstance(stamp, str) else stamp
            found.append(time if isinstance(time, datetime) else datetime.combine(time, datetime.min.time()))
            if stamp != stamp:  # NaT of pandas
                raise ValueError
        except (TypeError, ValueError):
            raise ValueError(f"{name}: row {row} has no time in ISO 8601, but {stamp!r}") from None
    if not found:
        raise ValueError(f"{name}: no rows")
    zone = found[0].tzinfo
    if any((time.tzinfo is None) != (zone is None) for time in found):
        raise ValueError(f"{name}: some times have an offset from UTC, and others none")
    if zone:
        # Days may have 23 or 25 hours: steps of a day or more are those of the clock on the wall, shorter ones are not.
        instants = [time.astimezone(UTC) for time in found]
        is_short = any(later - earlier < SHORTEST_DAY for earlier, later in pairwise(sorted(instants)))
        found = instants if is_short else [time.replace(tzinfo=None) for time in found]
    frequency = options.get("frequency")
    step = _step(sorted(found), name) if frequency is None or len(found) > 1 else frequency
    return Times(found, stamps[0], zone, frequency or step)


def _step(times: Sequence[datetime], name: str) -> str:
    """Step of ascending times, such as 15min or 1mo. Raises: ValueError if they have none."""
    pairs = list(pairwise(times))
    steps = Counter(later - earlier for earlier, later in pairs)
    if not pairs:
        raise ValueError(f"{name}: one row has no step; give a frequency, such as frequency='1d'")
    if twice := next((later for earlier, later in pairs if earlier == later), None):
        raise ValueError(f"{name}: {twice} occurs twice")
    months = {(later.year - earlier.year) * 12 + later.month - earlier.month for earlier, later in pairs}
    if len(months) == 1 and months != {0} and (len({time.day for time in times}) == 1 or all(map(_ends_month, times))):
        return f"{months.pop()}mo"
    if len(steps) == 1 and (seconds := next(iter(steps)).total_seconds()) >= 1 and seconds.is_integer():
        unit = next(unit for unit, size in UNITS.items() if seconds % size == 0)
        return f"{int(seconds) // UNITS[unit]}{unit}"
    if all(later - earlier == timedelta(days=3 if earlier.weekday() == FRIDAY else 1) for earlier, later in pairs):
        return "1b"
    usual, _ = steps.most_common(1)[0]
    earlier, later = next(pair for pair in pairs if pair[1] - pair[0] != usual)
    raise ValueError(
        f"{name}: after {earlier} comes {later}, but most steps are {usual}; fill gaps with missing values"
    )


def _ends_month(time: datetime) -> bool:
    return (time + timedelta(days=1)).month != time.month


def _by_row(answers: Sequence[Any], rows: Sequence[int], count: int, missing: str) -> list[dict[str, Any]]:
    """The answer or `error` of each row; of those that were not sent, that they are missing."""
    found = [dict[str, Any](error=missing) for _ in range(count)]
    for row, answer in zip(rows, answers, strict=True):
        found[row] = {"error": answer.reason} if isinstance(answer, LongdocError) else answer
    return found


def _beside(frame: "nw.DataFrame[Any]", **columns: list[Any]) -> Any:
    """A native frame of these columns with the index of another one."""
    kinds: dict[str, Any] = {"score": nw.Float64(), "known": nw.Float64(), "labels": nw.List(nw.String())}
    native = frame.implementation
    typed = native.is_polars() or native.is_pyarrow()
    added = [
        nw.new_series(
            name,
            values,
            dtype=kinds.get(name, nw.String()) if typed or name in ("score", "known") else None,
            backend=native,
        )
        for name, values in columns.items()
    ]
    return frame.with_columns(*added).select(*columns).to_native()
