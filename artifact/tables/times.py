"""Time stamps: cells -> times."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

TIME_FORMATS = (
    "ISO 8601, year/month/day with or without a time, YYYY-MM, YYYYMM, YYYYMMDD, YYYY-Q1, years, or seconds or "
    "milliseconds since 1970"
)
FIRST_YEAR, LAST_YEAR = 1500, 2200
"""Years of numbers that are times; other numbers count steps."""
_CLOCK = (
    r"(?:[T ,]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?)?"
    r" ?(?P<zone>Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?"
)
_YEAR_FIRST = re.compile(
    r"(?P<year>\d{4})(?:[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})|[-/](?P<only_month>\d{1,2}))" + _CLOCK, re.ASCII
)
_YEAR_LAST = re.compile(r"(?P<day>\d{1,2})[-/.](?P<month>\d{1,2})[-/.](?P<year>\d{4}|\d{2})" + _CLOCK, re.ASCII)
_QUARTER = re.compile(r"(?P<year>\d{4})[- ]?Q(?P<part>[1-4])", re.ASCII | re.IGNORECASE)
_QUARTER_FIRST = re.compile(r"Q(?P<part>[1-4])[-/ ]?(?P<year>\d{4})", re.ASCII | re.IGNORECASE)
_MONTH = re.compile(r"(\d{4})[- ]?M(\d{1,2})", re.ASCII | re.IGNORECASE)
_NAMED = ("%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b-%Y", "%b %Y", "%B %Y", "%b %d, %Y", "%B %d, %Y")
"""Dates with the name of the month."""
NUMBER = re.compile(r"\d{1,19}(?:\.0+)?|\d{9,13}\.\d+", re.ASCII)
_DIGITS = {6: "%Y%m", 8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
"""Formats of numbers whose digits are those of a date."""
_EPOCH = datetime(1970, 1, 1)
_SINCE = [(frozenset((9 + 3 * power, 10 + 3 * power)), 1e6 / 1000**power) for power in range(4)]
"""Numbers of digits of a time since 1970, and its unit in microseconds."""
_YEAR = re.compile(r"(\d{4})(?:\.0+)?", re.ASCII)
MOST = 0.95
"""Minimum share of the numbers of a column that tell times in the same way."""
Reader = Callable[[str], datetime | None]


def parse_time(text: str, *, day_first: bool = False) -> datetime | None:
    """Parse a time stamp that is more than a number; None if it has no known format."""
    text = text.strip()
    if text.isdecimal():
        return None
    try:
        return datetime.fromisoformat(text) if text[4:5] == "-" or "T" in text else _parse_other(text, day_first)
    except ValueError:
        return _parse_other(text, day_first)


def _parse_other(text: str, day_first: bool) -> datetime | None:
    found = _YEAR_FIRST.fullmatch(text) or (_YEAR_LAST.fullmatch(text) if day_first else None)
    try:
        if found is not None:
            return _from_parts(found.groupdict())
        if found := _QUARTER.fullmatch(text) or _QUARTER_FIRST.fullmatch(text):
            return datetime(int(found["year"]), 3 * int(found["part"]) - 2, 1)
        if found := _MONTH.fullmatch(text):
            return datetime(int(found[1]), int(found[2]), 1)
    except ValueError:
        return None
    for form in _NAMED if any(sign.isalpha() for sign in text) else ():
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return None


def _from_parts(parts: dict[str, str | None]) -> datetime:
    """A time from the parts of a match. Raises: ValueError for a day that there is not."""
    year = int(parts["year"] or 0) + (2000 if len(parts["year"] or "") == 2 else 0)
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    micros = int((parts["fraction"] or "0").ljust(6, "0")[:6])
    month = parts["month"] or parts.get("only_month") or 1
    return datetime(year, int(month), int(parts["day"] or 1), hour, minute, second, micros, _zone(parts["zone"]))


def _zone(text: str | None) -> timezone | None:
    if not text or text[0] not in "+-":
        return UTC if text else None
    digits = text[1:].replace(":", "").ljust(4, "0")
    return timezone((-1 if text[0] == "-" else 1) * timedelta(hours=int(digits[:2]), minutes=int(digits[2:])))


def text_of(cell: Any) -> str:
    """A cell of a time column as text."""
    if isinstance(cell, date):
        return cell.isoformat()
    return "" if cell is None else str(cell).strip()


def is_year_last(text: str) -> bool:
    """Whether a date ends in its year, so that either the day or the month may be first."""
    return _YEAR_LAST.fullmatch(text.strip()) is not None


def numeric_reader(texts: Sequence[str]) -> Reader | None:
    """How numbers tell times: years, the digits of dates, or a time since 1970. None if they count steps.

    Args:
        texts: all cells that are not missing; nearly all numbers among them must be such times.

    """
    numbers = [text for text in texts if NUMBER.fullmatch(text)]
    lengths = {len(text.partition(".")[0]) for text in numbers}
    if not lengths:
        return None
    readers = (_read_year, _read_digits, *(_since_1970(units, size) for units, size in _SINCE if lengths <= units))
    return next((read for read in readers if sum(map(_is_read, map(read, numbers))) >= MOST * len(numbers)), None)


def _is_read(time: datetime | None) -> bool:
    return time is not None


def _read_year(text: str) -> datetime | None:
    found = _YEAR.fullmatch(text)
    return datetime(int(found[1]), 1, 1) if found and FIRST_YEAR <= int(found[1]) <= LAST_YEAR else None


def _read_digits(text: str) -> datetime | None:
    digits = text.partition(".")[0] if NUMBER.fullmatch(text) else ""
    try:
        time = datetime.strptime(digits, _DIGITS[len(digits)])
    except (KeyError, ValueError):
        return None
    return time if FIRST_YEAR <= time.year <= LAST_YEAR and (len(digits) != 10 or time.year >= 1900) else None


def _since_1970(lengths: frozenset[int], micros: float) -> Reader:
    """Reader of numbers of this many digits that count units of this many microseconds."""

    def read(text: str) -> datetime | None:
        if NUMBER.fullmatch(text) is None or len(text.partition(".")[0]) not in lengths:
            return None
        return _EPOCH + timedelta(microseconds=round(float(text) * micros))

    return read
