"""Tables of series: one row per time step, one column per channel."""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from artifact.arrays import Doubles
from artifact.errors import InputError
from artifact.manifest import is_text
from artifact.tables.delimited import Delimited
from artifact.tables.lines import JsonLines, known_value, names_of
from artifact.tables.reading import is_table, listed, open_table
from artifact.tables.streams import kind_of
from artifact.tables.table import BadRow, Cells, Table
from artifact.tables.times import is_year_last, parse_time
from artifact.tables.values import is_missing

LISTED = 10
"""Maximum number of places that an error names."""
MOST_CELLS = 50_000_000
"""Maximum number of cells of a table, each of which takes about 100 bytes."""
NUMBER = re.compile(r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?", re.ASCII)
"""A number, with a decimal point or a decimal comma."""


@dataclass(frozen=True)
class Sheet:
    """All cells of a table."""

    name: str
    """Name of the file."""
    place: str
    """Location of the names of the columns."""
    columns: tuple[str, ...]
    lines: tuple[int, ...]
    """Line of each row, in Parquet its number."""
    cells: tuple[Cells, ...]
    """Cells of each row."""
    has_decimal_commas: bool
    """Whether a comma may be the decimal sign: it does not separate the cells."""
    empty: tuple[str, ...] = ()
    """Locations of the rows that were left out because all of their cells are empty."""

    def column(self, name: str) -> list[Any]:
        """Cells of a column."""
        index = self.columns.index(name)
        return [row[index] for row in self.cells]


def read_sheet(path: Path, encoding: str = "", named: Collection[str] = ()) -> Sheet:
    """Read all rows of a file, which is CSV unless its name says otherwise.

    Args:
        path: the file.
        encoding: codec of a text without a byte order mark.
        named: columns that the file should have: if it has one, numbers in its first line are names.

    Raises: InputError naming the line of a bad row or after MOST_CELLS, or a name of a column that is not allowed.

    """
    with open_table(path, encoding, kind_of(path.name) if is_table(path.name) else ".csv") as table:
        columns, rows = _json_rows(table) if isinstance(table, JsonLines) else _rows(table)
        _check_names(table, columns, named)
        lines, cells = list[int](), list[Cells]()
        for place, row in rows:
            if isinstance(row, BadRow):
                raise InputError(f"{place}: {row.reason}")
            lines.append(int(place.rpartition(":")[2]))
            cells.append(row)
            if len(cells) * len(columns) > MOST_CELLS:
                raise InputError(f"{place}: more than {MOST_CELLS:,} cells")
    if not cells:
        raise InputError(f"{table.name} has no rows")
    has_commas = isinstance(table, Delimited) and table.separator != ","
    empty = tuple(table.empty) if isinstance(table, Delimited) else ()
    return Sheet(table.name, table.place, tuple(columns), tuple(lines), tuple(cells), has_commas, empty)


CellRows = Iterable[tuple[str, Cells | BadRow]]


def _rows(table: Table) -> tuple[Sequence[str], CellRows]:
    """Columns and rows of a table whose columns have names."""
    columns = table.columns or ()
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise InputError(f"{table.place}: two columns {twice!r}")
    return columns, table.rows(columns)


def _json_rows(table: JsonLines) -> tuple[Sequence[str], CellRows]:
    """Columns of all objects, in the order in which they occur, and their values; null where one is missing."""
    found = list(table.objects())
    columns = dict.fromkeys(name for _, row in found if not isinstance(row, BadRow) for name in names_of(row))
    return list(columns), (
        (place, row if isinstance(row, BadRow) else tuple(known_value(row, name) for name in columns))
        for place, row in found
    )


def _check_names(table: Table, columns: Sequence[str], named: Collection[str]) -> None:
    """Check the names of columns. Raises: InputError, also if the first line seems to hold values."""
    if unsound := [name for name in columns if not is_text(name)]:
        raise InputError(f"{table.place}: the name {unsound[0]!r} contains a control character")
    is_numbered = any(list(columns) == [str(first + i) for i in range(len(columns))] for first in (0, 1))
    if isinstance(table, Delimited) and all(map(is_value, columns)) and not (is_numbered or set(named) & set(columns)):
        hint = "; if these are names, --channels lists them" if all(map(str.isdecimal, columns)) else ""
        raise InputError(
            f"{table.place}: expected a line with the names of the columns, not {listed('', columns)}{hint}"
        )


def is_value(cell: str) -> bool:
    """Whether a cell holds a number or a time."""
    return NUMBER.fullmatch(cell.strip()) is not None or parse_time(cell) is not None or is_year_last(cell)


def numbers(sheet: Sheet, columns: Sequence[str]) -> Doubles:
    """Values (rows, columns) of columns; NaN where one is missing.

    A comma is the decimal sign if it does not separate the cells, and no number has a point.

    Raises: InputError naming the cells that are not finite numbers.
    """
    indices = [sheet.columns.index(column) for column in columns]
    values, bad, signs = np.full((len(sheet.cells), len(indices)), np.nan), list[str](), dict[str, str]()
    for number, row in enumerate(sheet.cells):
        for column, index in enumerate(indices):
            cell = row[index]
            if is_missing(cell):
                continue
            value = number_of(cell, has_commas=sheet.has_decimal_commas)
            place = f"line {sheet.lines[number]} column {sheet.columns[index]} {str(cell)[:40]!r}"
            if value is None:
                bad.append(place)
                continue
            values[number, column] = value
            for sign in ".,":
                if isinstance(cell, str) and sign in cell:
                    signs.setdefault(sign, place)
    if bad:
        raise InputError(f"{sheet.name}: {listed_places('cells that are not finite numbers', bad)}")
    if len(signs) > 1:
        raise InputError(f"{sheet.name}: decimal points and decimal commas: {signs['.']}, {signs[',']}")
    return values


def number_of(cell: Any, *, has_commas: bool) -> float | None:
    """The finite number in a cell; None if there is none."""
    if isinstance(cell, str):
        text = cell.strip()
        if NUMBER.fullmatch(text) is None or ("," in text and not has_commas):
            return None
        cell = text.replace(",", ".")
    elif isinstance(cell, bool) or not isinstance(cell, int | float | Decimal):
        return None
    try:
        value = float(cell)
    except OverflowError:  # an integer of over 308 digits
        return None
    return value if math.isfinite(value) else None


def listed_places(what: str, places: Sequence[str]) -> str:
    """A kind of fault with its number and the first places."""
    more = f", and {len(places) - LISTED} more" if len(places) > LISTED else ""
    return f"{what} ({len(places)}): {', '.join(places[:LISTED])}{more}"
