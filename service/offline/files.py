"""Read documents, pairs and series from files, each with its location for errors."""

import csv
import gzip
import json
import lzma
import math
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

csv.field_size_limit(2**31 - 1)

T = TypeVar("T")
STDIN = Path("-")
"""Path that stands for standard input."""
LINES, TABLES = (".jsonl", ".ndjson"), (".csv", ".tsv")
PACKED: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
UNREADABLE = (UnicodeDecodeError, EOFError, zlib.error, lzma.LZMAError, csv.Error)
SHOWN = 200
"""Maximum characters of a header in an error: a file that is not a table may be one long line."""
HINT = "use --text-column for other names"
Source = tuple[str, T]
"""Location of an input, such as `pairs.csv:7`, and the input."""


class InputError(Exception):
    """A file or row that cannot be read; the message is one line that names its location."""


def rows(jsonl: Path | None, table: Path | None, fields: tuple[str, ...]) -> Iterator[Source[tuple[bytes, ...]]]:
    """Location and texts of each line of a JSONL file, or of each row of a CSV file. Raises: InputError."""
    if jsonl is not None:
        return _jsonl(jsonl, fields)
    assert table is not None
    return _csv(table, fields)


def texts(paths: Sequence[Path], fields: tuple[str, ...]) -> Iterator[Source[tuple[bytes, ...]]]:
    """Location and texts of all inputs in files: lines of JSON Lines, rows of CSV and TSV; any other file is one text.

    Raises: InputError, also for a file of one text where several fields are needed.
    """
    for path in paths:
        kind = _kind(path)
        if kind in LINES:
            yield from _jsonl(path, fields)
        elif kind in TABLES:
            yield from _csv(path, fields)
        elif len(fields) == 1:
            yield _name(path), (read(path),)
        else:
            known = ", ".join((*LINES, *TABLES))
            raise InputError(f"{path}: pairs are read from files that end in {known}, also with .gz or .xz")


def read(path: Path) -> bytes:
    """The content of a file or of standard input. Raises: InputError."""
    try:
        return sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; give its files, --jsonl or --csv") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _kind(path: Path) -> str:
    """Extension of a file name, without that of its compression."""
    return (Path(path.stem) if path.suffix.lower() in PACKED else path).suffix.lower()


def _name(path: Path) -> str:
    """Name of a file in a location."""
    return "stdin" if path == STDIN else str(path)


def _open(path: Path) -> Any:
    """Open a file, which may be compressed, or standard input. Returns a context manager of a binary stream."""
    if path == STDIN:
        return nullcontext(sys.stdin.buffer)
    packed = PACKED.get(path.suffix.lower())
    return path.open("rb") if packed is None else packed(path)


def _jsonl(path: Path, fields: tuple[str, ...]) -> Iterator[Source[tuple[bytes, ...]]]:
    try:
        with _open(path) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{_name(path)}:{number}", _texts(line, f"{_name(path)}:{number}", fields)
    except OSError as error:
        raise InputError(f"{_name(path)}: {error.strerror or error}") from None
    except UNREADABLE as error:
        raise InputError(f"{_name(path)}: {error}") from None


def _texts(line: bytes, place: str, fields: tuple[str, ...]) -> tuple[bytes, ...]:
    try:
        row = json.loads(line)
        return tuple(row[field].encode() for field in fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        known = " and ".join(f"`{field}`" for field in fields)
        raise InputError(f"{place}: expected a JSON object with a string {known}; {HINT}") from None


def _csv(path: Path, fields: tuple[str, ...]) -> Iterator[Source[tuple[bytes, ...]]]:
    for place, row in _table(path, fields, f"; {HINT}"):
        yield place, tuple(row[field].encode() for field in fields)


def columns(path: Path, names: tuple[str, ...]) -> dict[str, list[float | None]]:
    """Columns of a CSV file by name; empty cells are None. Raises: InputError."""
    found: dict[str, list[float | None]] = {name: [] for name in names}
    for place, row in _table(path, names):
        for name in names:
            cell = row[name].strip()
            found[name].append(_number(cell, f"{place}: column {name}") if cell else None)
    return found


def _number(cell: str, place: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise InputError(f"{place}: not a number: {cell[:40]!r}") from None
    if not math.isfinite(value):
        raise InputError(f"{place}: not a finite number: {cell[:40]!r}; leave the cell of a missing value empty")
    return value


def _table(path: Path, fields: tuple[str, ...], hint: str = "") -> Iterator[Source[dict[str, str]]]:
    """Location and cells of each row of a CSV file that has certain columns; separated by tabs if it ends in .tsv."""
    name = _name(path)
    try:
        with _open(path) as raw:
            lines = (line.decode("utf-8" if number else "utf-8-sig") for number, line in enumerate(raw))
            reader = csv.reader(lines, delimiter="\t" if _kind(path) == ".tsv" else ",")
            header = next(reader, [])
            for field in fields:
                if header.count(field) != 1:
                    found = "two columns" if field in header else "no column"
                    names = ", ".join(header)[:SHOWN] or "none"
                    raise InputError(f"{name}:1: {found} `{field}`; there are: {names}{hint}")
            for row in filter(None, reader):
                place = f"{name}:{reader.line_num}"
                if len(row) != len(header):
                    raise InputError(f"{place}: {len(row)} cells under {len(header)} columns")
                yield place, dict(zip(header, row, strict=True))
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    except UNREADABLE as error:
        raise InputError(f"{name}: {error}") from None
