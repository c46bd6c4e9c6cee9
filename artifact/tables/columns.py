"""Which columns of a table of series hold the time, the channels, or neither."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from typing import Any

from artifact.errors import InputError
from artifact.series import Layout
from artifact.tables.series import Sheet, number_of
from artifact.tables.steps import REGULAR
from artifact.tables.times import NUMBER, is_year_last, numeric_reader, parse_time, text_of
from artifact.tables.values import is_missing

TIME_NAMES = re.compile(
    r"(?:date|time|year|month|quarter|week|day|epoch|unix)s?|date_?times?|time_?stamps?|ts|ds|dt|t|period|unix_?time|"
    r"time_?idx|time_?index|year_?month|yyyymm|observation_date|datum|zeit|fecha|when|at"
)
"""Names of time columns, in lower case."""
COUNTER_NAMES = frozenset(("index", "idx", "id", "row", "row_id", "rowid", "rownames", "row_number", "no", "nr", "#"))
"""Names of columns that number the rows, in lower case."""
FEW_STAMPS = 0.8
"""Maximum share of different time stamps in what may be a long table."""
MOST_IDS = 8
"""Maximum number of columns that are tried as names of series."""
UNNAMED = re.compile(r"|Unnamed: ?\d+(?:_level_\d+)?|level_\d+|__index_level_\d+__")
"""Names that pandas gives to an index without a name."""
SAMPLE = 100
"""Number of cells by which text is told from times."""
SPREAD = 500
"""Number of cells by which text is told from numbers."""
DATE_LIKE = re.compile(r".*\d[-/.: ]\d.*", re.ASCII | re.DOTALL)
NUMBER_LIKE = re.compile(
    r"[^\w\s]*\s*[+-]?\d[\d.,'_ \u00a0\u202f]*(?:e[+-]?\d+)?\s*[^\w\s]*|[+-]?inf(?:inity)?", re.IGNORECASE
)
"""A number in another notation, such as 1,234.5 or 12 %: an error, not a text."""


@dataclass(frozen=True)
class Columns:
    """What the columns of a table hold."""

    time: str | None
    """Column of the time stamps; None if there is none."""
    values: tuple[str, ...]
    """Columns of numbers: the channels, or the target of a long table."""
    notes: tuple[str, ...]
    """Which columns are left out, and why."""


def find_columns(sheet: Sheet, layout: Layout) -> Columns:
    """Find the time column and the channels.

    Without `time_column`, the time column is the one whose cells are times; a first or well-named column of numbers
    that rise steadily is one, too. Without `channels`, columns of text and of row numbers are left out with a note.

    Raises: InputError for a name that no column has, several columns of times, or no channel.
    """
    is_long = bool(layout.id_column)
    asked = [layout.time_column, layout.id_column, layout.target_column]
    columns = layout.ignore if is_long or not layout.channels else layout.channels
    for name in [*filter(None, asked), *columns]:
        if name not in sheet.columns:
            raise InputError(f"{sheet.place}: no column {name!r}; columns: {', '.join(sheet.columns)[:200]}")
    taken = {*layout.ignore, layout.id_column, layout.target_column} if is_long else {*layout.ignore, *layout.channels}
    time = layout.time_column or _find_time(sheet, [name for name in sheet.columns if name not in taken], layout)
    if is_long:
        rest = [name for name in sheet.columns if name not in {*taken, time}]
        notes = (f"left out the columns {', '.join(rest)} of the long table",) if rest else ()
        return Columns(time, (layout.target_column,), notes)
    if layout.channels:
        return Columns(time, layout.channels, ())
    return _choose(sheet, layout, time)


def _choose(sheet: Sheet, layout: Layout, time: str | None) -> Columns:
    """The channels: all columns of numbers."""
    channels, indices, texts = list[str](), list[str](), list[str]()
    for position, name in enumerate(sheet.columns):
        if name == time or name in layout.ignore:
            continue
        cells = sheet.column(name)
        if _is_index(name, cells, is_first=position == 0, is_timed=time is not None):
            indices.append(repr(name))
        elif holds_text(cells, has_commas=sheet.has_decimal_commas):
            texts.append(repr(name))
        else:
            channels.append(name)
    notes = []
    if indices:
        notes.append(f"left out {', '.join(indices)}: row numbers")
    if texts:
        notes.append(f"left out {', '.join(texts)}: text, not numbers")
    if not channels:
        found = "; ".join([f"columns: {', '.join(sheet.columns)[:200]}", *notes])
        raise InputError(f"{sheet.place}: expected at least one channel besides the time column; {found}")
    return Columns(time, tuple(channels), tuple(notes))


def _find_time(sheet: Sheet, names: Sequence[str], layout: Layout) -> str | None:
    """The time column among these columns; of a long table, by the rows of its first series."""
    rows = sheet.cells
    if layout.id_column:
        index = sheet.columns.index(layout.id_column)
        rows = tuple(row for row in rows if row[index] == rows[0][index])
    cells = {name: [row[sheet.columns.index(name)] for row in rows] for name in names}
    stamped = [name for name in names if _share(_texts(cells[name], SAMPLE), layout) > 0.5]
    if stamped:
        named = [name for name in stamped if is_time_name(name)]
        if len(stamped) == 1 or stamped[0] == sheet.columns[0]:
            return stamped[0]
        if len(named) == 1:
            return named[0]
        raise InputError(
            f"{sheet.place}: the columns {', '.join(named or stamped)} hold times; --time-column names the time column"
        )
    texts = {name: _texts(column) for name, column in cells.items()}
    found = _numbered_time(sheet, texts)
    return _unreadable_time(sheet, texts) if found is None else found


def _numbered_time(sheet: Sheet, texts: Mapping[str, Sequence[str]]) -> str | None:
    """The column whose numbers are times, or count the steps."""
    numbered = [name for name in texts if _mostly(NUMBER, texts[name])]
    first = next((name for name in sheet.columns if name not in texts or not _is_counter(texts[name])), None)
    for name in numbered:
        if numeric_reader(texts[name]) and (is_time_name(name) or (name == first and _is_steady(texts[name]))):
            return name
    for name in numbered:
        is_first = name == sheet.columns[0]
        if _is_steady(texts[name], rising=True) if is_first else is_time_name(name) and _is_steady(texts[name]):
            return name
    return None


def _unreadable_time(sheet: Sheet, texts: Mapping[str, Sequence[str]]) -> str | None:
    """The column with text in the place of times, so that an error names its cells."""
    for name, cells in texts.items():
        is_date = is_time_name(name) or (name == sheet.columns[0] and _mostly(DATE_LIKE, cells))
        if is_date and cells and not _mostly(NUMBER_LIKE, cells):
            return name
    return None


def _texts(cells: Sequence[Any], most: int | None = None) -> list[str]:
    """The cells that are not missing, up to a number of them, as texts."""
    return list(islice((text_of(cell) for cell in cells if not is_missing(cell)), most))


def _share(texts: Sequence[str], layout: Layout) -> float:
    """Share of the cells that are times."""
    found = sum(parse_time(text, day_first=layout.day_first) is not None or is_year_last(text) for text in texts)
    return found / max(1, len(texts))


def _mostly(pattern: re.Pattern[str], texts: Sequence[str]) -> bool:
    """Whether more than half of the texts have a pattern."""
    return 2 * sum(pattern.fullmatch(text) is not None for text in texts) > len(texts)


def is_time_name(name: str) -> bool:
    """Whether a name, in any notation, is one of `TIME_NAMES`."""
    return TIME_NAMES.fullmatch(name.strip().lower().replace(" ", "_").replace("-", "_")) is not None


def _is_steady(texts: Sequence[str], *, rising: bool = False) -> bool:
    """Whether nearly all numbers rise or fall, most often by the same step."""
    whole = [text.partition(".")[0] for text in texts if NUMBER.fullmatch(text)]
    steps = Counter(later - earlier for earlier, later in pairwise(map(int, whole)))
    if not steps or 2 * len(whole) <= len(texts):
        return False
    step, count = steps.most_common(1)[0]
    alike = sum(number for other, number in steps.items() if other * step > 0)
    needed = REGULAR if rising else 0.5
    return (step > 0 or not rising) and alike >= REGULAR * steps.total() and count >= needed * steps.total()


def _is_counter(texts: Sequence[str]) -> bool:
    """Whether numbers count the rows from 0 or 1."""
    whole = [text.partition(".")[0] for text in texts if NUMBER.fullmatch(text)]
    return len(whole) > 1 and any(whole == [str(first + i) for i in range(len(texts))] for first in (0, 1))


def _is_index(name: str, cells: Sequence[Any], *, is_first: bool, is_timed: bool) -> bool:
    """Whether a column numbers the rows, as the index that pandas writes."""
    if UNNAMED.fullmatch(name):
        return True
    return is_timed and (is_first or name.strip().lower() in COUNTER_NAMES) and _is_counter(_texts(cells))


def holds_text(cells: Sequence[Any], *, has_commas: bool) -> bool:
    """Whether most cells, of SPREAD over the column, are neither numbers nor meant as numbers."""
    known = [cell for cell in cells if not is_missing(cell)]
    known = known[:: max(1, len(known) // SPREAD)]
    numbers = sum(
        number_of(cell, has_commas=has_commas) is not None
        or (not isinstance(cell, bool) and NUMBER_LIKE.fullmatch(text_of(cell)) is not None)
        for cell in known
    )
    dates = sum(is_year_last(text_of(cell)) or parse_time(text_of(cell)) is not None for cell in known)
    return bool(known) and (2 * numbers < len(known) or 2 * dates > len(known))


def find_id_columns(sheet: Sheet, time: str) -> tuple[str, ...]:
    """The column that seems to name the series of each row of a long table: each has a time stamp once.

    Returns two columns if it takes both to name a series, and none if no table of this kind is seen.
    """
    stamps = [text_of(cell) for cell in sheet.column(time)]
    if len(set(stamps)) > FEW_STAMPS * len(stamps):
        return ()
    texts = {name: [text_of(cell) for cell in sheet.column(name)] for name in sheet.columns}
    candidates = list[tuple[bool, int, str]]()
    for name, cells in texts.items():
        count = len(set(cells))
        if name == time or is_time_name(name) or not 2 <= count <= len(cells) / 2:
            continue
        is_text = not _mostly(NUMBER, cells)
        if not is_text or holds_text(sheet.column(name), has_commas=sheet.has_decimal_commas):
            candidates.append((not is_text, count, name))
    names = [name for _, _, name in sorted(candidates)][:MOST_IDS]
    for found in [*((name,) for name in names), *combinations(names, 2)]:
        if len(set(zip(stamps, *(texts[name] for name in found), strict=True))) == len(stamps):
            return found
    return ()
