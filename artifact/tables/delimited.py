"""Rows of CSV (RFC 4180) and TSV (without quoting)."""

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any

from typing_extensions import override

from artifact.errors import InputError
from artifact.tables import streams
from artifact.tables.streams import TextStream
from artifact.tables.table import BadRow, Cells, Table

csv.field_size_limit(streams.LONGEST_ROW)

SEPARATORS = {",": "commas", ";": "semicolons", "|": "vertical bars", "\t": "tabs"}
LONGEST_NAME = 30
"""Longer names of columns may be values of a file without a header."""
SEP_LINE = re.compile(r"sep=([,;|])\s*")
"""First line by which Excel tells the separator."""


class Delimited(Table):
    """A CSV or TSV file whose first line names the columns.

    Cells of a CSV file are separated by commas, or by semicolons or vertical bars if the first line has no comma.

    Args:
        stream: the text.
        raw: the file that the text is read from.
        name: name of the file.
        is_tsv: whether the file is TSV.

    Raises: InputError for a first line that cannot be read.

    """

    columns: tuple[str, ...]

    def __init__(self, stream: TextStream, raw: Any, name: str, *, is_tsv: bool) -> None:
        super().__init__(name)
        self._raw = raw
        self._lines = _Lines(stream, name)
        first = self._first_line()
        if "\r" in first.rstrip("\r\n"):
            raise InputError(f"{self._lines.place}: the lines end in carriage returns; save the file with line feeds")
        self.separator = "\t" if is_tsv else self._find_separator(first)
        """Character between two cells."""
        self.empty = list[str]()
        """Locations of the rows that have been left out because all of their cells are empty."""
        self._rows = self._tsv() if is_tsv else self._csv()
        place, header = next(self._rows, (f"{name}:1", [""]))
        if isinstance(header, BadRow):
            raise InputError(f"{place}: {header.reason}")
        self.columns = tuple(cell.strip() for cell in header)
        self.place, self.hint = place, self._other_format()

    def _other_format(self) -> str:
        """Hint for columns that seem to be separated by another character, quoted in TSV, or values."""
        if any(len(name) > LONGEST_NAME for name in self.columns) and len(self.columns) > 1:
            return "; if these are values, add a first line with the names of the columns"
        found = next((sign for sign in SEPARATORS if sign != self.separator and sign in self.columns[0]), None)
        if found is None or len(self.columns) > 2:
            quoted = self.separator == "\t" and all(re.fullmatch('".*"', name) for name in self.columns)
            return "; TSV has no quotes: save the table as CSV" if quoted else ""
        end = {",": "end its name in .csv", "\t": "end its name in .tsv"}.get(found, "save it with commas")
        return f"; the columns seem to be separated by {SEPARATORS[found]}: {end}"

    @override
    def rows(self, columns: Sequence[str]) -> Iterator[tuple[str, Cells | BadRow]]:
        indices, width = [self.columns.index(column) for column in columns], len(self.columns)
        for place, cells in self._rows:
            if isinstance(cells, BadRow):
                yield place, cells
            elif len(cells) == width:
                yield place, tuple(cells[index] for index in indices)
            else:
                hint = f"; cells with {SEPARATORS[self.separator]} need quotes" if self.separator != "\t" else ""
                yield place, BadRow(f"expected {width} columns, not {len(cells)}{hint if len(cells) > width else ''}")

    @override
    def position(self) -> int:
        return int(self._raw.tell())

    def _first_line(self) -> str:
        """The first line that is not blank, which is then read once more; empty if there is none."""
        for line in self._lines:
            if not line.isspace():
                self._lines.go_back(self._lines.number - 1)
                return line
            self._lines.start_row()
        return ""

    def _find_separator(self, line: str) -> str:
        """The separator of a CSV file, by its first line. A line that only tells it, as Excel writes it, is skipped."""
        if told := SEP_LINE.fullmatch(line):
            next(self._lines)
            return told[1]
        return next((sign for sign in ",;|" if len(next(csv.reader([line], delimiter=sign))) > 1), ",")

    def _tsv(self) -> Iterator[tuple[str, list[str] | BadRow]]:
        """Location and cells of each row of a TSV file that is not blank."""
        for line in self._lines:
            cells = line.removesuffix("\n").removesuffix("\r").split("\t")
            if not self._is_blank(cells):
                yield self._lines.place, BadRow(self._lines.fault) if self._lines.fault else cells
            self._lines.start_row()

    def _csv(self) -> Iterator[tuple[str, list[str] | BadRow]]:
        """Location and cells of each row of a CSV file that is not blank."""
        lines = self._lines
        reader = csv.reader(lines, delimiter=self.separator, strict=True)
        while True:
            lines.start_row()
            try:
                cells = next(reader, None)
            except csv.Error as error:
                yield lines.place, self._bad(str(error))  # the reader goes on with the next line
                continue
            if cells is None:
                return
            if not self._is_blank(cells):
                yield lines.place, BadRow(lines.fault) if lines.fault else cells

    def _is_blank(self, cells: Sequence[str]) -> bool:
        """Whether all cells are empty; the row is noted unless it is a blank line."""
        if not all(not cell or cell.isspace() for cell in cells):
            return False
        if len(cells) > 1:
            self.empty.append(self._lines.place)
        return True

    def _bad(self, message: str) -> BadRow:
        """Why the csv module cannot read the lines since the start of a row. Raises: InputError for a long cell."""
        lines = self._lines
        if message.startswith("field larger"):
            raise InputError(f"{lines.place}: a cell is longer than {csv.field_size_limit()} characters")
        if message.startswith("unexpected end"):
            lines.go_back(lines.first)
            return BadRow("a quote opens a cell and is never closed")
        if message.startswith("new-line"):
            return BadRow("a carriage return in a cell without quotes")
        span = f" (lines {lines.first} to {lines.number})" if lines.number > lines.first else ""
        escaped = r", not as \"" if any(r"\"" in line for line in lines.row) else ""
        return BadRow(f'a quote in a quoted cell must be written twice (""){escaped}{span}')


class _Lines:
    """Lines of a text, and which of them belong to the current row."""

    def __init__(self, stream: TextStream, name: str) -> None:
        self._stream = stream
        self._name = name
        self.number = 0
        """Number of the last line."""
        self.first = 1
        """Number of the first line of the row."""
        self.row = list[str]()
        """Lines of the row."""
        self.fault = ""
        """Why a line of the row could not be decoded."""
        self._again = list[str]()
        """Lines to be read once more, the next one last."""

    @property
    def place(self) -> str:
        """Location of the row."""
        return f"{self._name}:{self.first}"

    def start_row(self) -> None:
        """Let a row start with the next line."""
        self.first, self.row, self.fault = self.number + 1, [], ""

    def go_back(self, number: int) -> None:
        """Read the lines after line `number`, which belongs to the row, once more."""
        count = self.number - number
        self._again += self.row[len(self.row) - count :][::-1]
        del self.row[len(self.row) - count :]
        self.number = number

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else self._read()
        self.number += 1
        self.row.append(line)
        if not line.isascii() and not self.fault:
            self.fault = self._fault(line)
        return line

    def _fault(self, line: str) -> str:
        try:
            line.encode()
        except UnicodeEncodeError as error:
            return self._stream.not_decoded(self.number, len(line[: error.start].encode()))
        return ""

    def _read(self) -> str:
        """The next line of the stream; bytes that are not UTF-8 become lone surrogates. Raises: StopIteration."""
        longest = streams.LONGEST_ROW
        line = self._stream.readline(longest)
        if not line:
            raise StopIteration
        if len(line) == longest and not line.endswith(b"\n"):
            raise InputError(f"{self._name}:{self.number + 1}: the line is longer than {longest} bytes")
        return line.decode("utf-8", "surrogateescape")
