"""Rows of JSON Lines."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from typing_extensions import override

from artifact.errors import InputError
from artifact.tables import streams
from artifact.tables.streams import TextStream
from artifact.tables.table import Absent, BadRow, Cells, Table

KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}
"""Types of JSON."""
ABSENT = object()
"""Stands for a value that an object does not have."""


class JsonLines(Table):
    """A file of one JSON object a line. The value `b` of an object `a` is the column `a.b`.

    Raises: InputError for JSON that spans several lines.
    """

    columns = None

    def __init__(self, stream: TextStream, raw: Any, name: str) -> None:
        super().__init__(name)
        self._stream = stream
        self._raw = raw

    @override
    def rows(self, columns: Sequence[str]) -> Iterator[tuple[str, Cells | BadRow]]:
        for place, row in self.objects():
            yield place, row if isinstance(row, BadRow) else _cells(row, columns)

    @override
    def position(self) -> int:
        return int(self._raw.tell())

    def objects(self) -> Iterator[tuple[str, dict[str, Any] | BadRow]]:
        """Location and object of each line that is not blank. Raises: InputError."""
        number, longest, is_first = 0, streams.LONGEST_ROW, True
        while line := self._stream.readline(longest):
            number += 1
            place = f"{self.name}:{number}"
            if _is_cut(line, longest):
                while _is_cut(self._stream.readline(longest), longest):
                    pass
                yield place, BadRow(f"the line is longer than {longest} bytes")
            elif text := line.strip():
                row = self._parse(text, number)
                if is_first and isinstance(row, BadRow) and (text[:1] == b"[" or text == b"{"):
                    raise InputError(f"{place}: {row.reason}; JSON Lines have one object a line")
                is_first = False
                yield place, row

    def _parse(self, line: bytes, number: int) -> dict[str, Any] | BadRow:
        """The object of a line."""
        try:
            row = json.loads(line.decode().removeprefix("\ufeff"))
        except UnicodeDecodeError as error:
            return BadRow(self._stream.not_decoded(number, error.start))
        except (ValueError, RecursionError) as error:
            return BadRow(f"not JSON: {error}")
        if not isinstance(row, dict):
            return BadRow(f"expected an object, not {KINDS[type(row)]}")
        return row


def _is_cut(line: bytes, longest: int) -> bool:
    """Whether `readline(longest)` has returned only a part of a line."""
    return len(line) == longest and not line.endswith(b"\n")


def _cells(row: dict[str, Any], columns: Sequence[str]) -> Cells:
    cells = tuple(value_of(row, column) for column in columns)
    if ABSENT not in cells:
        return cells
    absent = Absent(tuple(names_of(row)))
    return tuple(absent if cell is ABSENT else cell for cell in cells)


def value_of(row: dict[str, Any], column: str) -> Any:
    """Value of a column, which may be a dotted name; None if it is in an object that is null, ABSENT if missing."""
    if column in row:
        return row[column]
    head, dot, rest = column.partition(".")
    while dot:
        inner = row.get(head, ABSENT)
        if inner is None:
            return None
        if isinstance(inner, dict) and (found := value_of(inner, rest)) is not ABSENT:
            return found
        more, dot, rest = rest.partition(".")
        head += f".{more}"
    return ABSENT


def known_value(row: dict[str, Any], column: str) -> Any:
    """Value of a column, as `value_of`; None if it is missing."""
    value = value_of(row, column)
    return None if value is ABSENT else value


def names_of(row: dict[str, Any]) -> list[str]:
    """Names of the columns of a row; those of an object in it are dotted."""
    names = []
    for name, value in row.items():
        names += [f"{name}.{inner}" for inner in names_of(value)] if isinstance(value, dict) and value else [name]
    return names
