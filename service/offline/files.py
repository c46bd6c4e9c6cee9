"""Files of documents, pairs and series -> inputs, each with its place."""

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

csv.field_size_limit(2**31 - 1)

T = TypeVar("T")
Source = tuple[str, T]
"""Where an input stands, and the input."""


class InputError(Exception):
    """A file or row that cannot be read; one line that names its place."""


def rows(jsonl: Path | None, table: Path | None, fields: tuple[str, ...]) -> Iterator[Source[tuple[bytes, ...]]]:
    """Place and texts of each line of a JSONL file, or of each row of a CSV file. Raises: InputError."""
    if jsonl is not None:
        return _jsonl(jsonl, fields)
    assert table is not None
    return _csv(table, fields)


def read(path: Path) -> bytes:
    """The content of a file. Raises: InputError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _jsonl(path: Path, fields: tuple[str, ...]) -> Iterator[Source[tuple[bytes, ...]]]:
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{path}:{number}", _texts(line, f"{path}:{number}", fields)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _texts(line: bytes, place: str, fields: tuple[str, ...]) -> tuple[bytes, ...]:
    try:
        row = json.loads(line)
        return tuple(row[field].encode() for field in fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        known = " and ".join(f"`{field}`" for field in fields)
        raise InputError(f"{place}: expected a JSON object with a string {known}") from None


def _csv(path: Path, fields: tuple[str, ...]) -> Iterator[Source[tuple[bytes, ...]]]:
    for place, row in _table(path, fields):
        yield place, tuple(row[field].encode() for field in fields)


def columns(path: Path, names: tuple[str, ...]) -> dict[str, list[float | None]]:
    """The named columns of a CSV file, empty cells as None. Raises: InputError."""
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


def _table(path: Path, fields: tuple[str, ...]) -> Iterator[Source[dict[str, str]]]:
    """Place and cells of each row of a CSV file that has certain columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            header = next(reader, [])
            for field in fields:
                if header.count(field) != 1:
                    raise InputError(f"{path}:1: {'two columns' if field in header else 'no column'} `{field}`")
            for row in filter(None, reader):
                place = f"{path}:{reader.line_num}"
                if len(row) != len(header):
                    raise InputError(f"{place}: {len(row)} cells under {len(header)} columns")
                yield place, dict(zip(header, row, strict=True))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from None
