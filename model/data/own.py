"""Documents of one's own: a CSV or JSON Lines file, or a folder with a folder of files for each class."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from artifact.manifest import is_text
from model.errors import UserError

LINES = (".jsonl", ".ndjson")
TABLES = (".csv", ".tsv")

Row = tuple[str, tuple[bytes, ...], str]
"""Place, texts, label; the label is empty where there is none."""


def read(path: Path, text_columns: tuple[str, ...], label_column: str) -> list[Row]:
    """Read every row; texts that are empty and encodings that are not UTF-8 are errors, but for files in folders.

    Labels hold no control characters: they stand in manifests, answers and logs.

    Raises: UserError naming file, line and column.
    """
    if path.is_dir():
        if len(text_columns) != 1:
            raise UserError(f"{path}: a folder holds no pairs; give a CSV or JSON Lines file")
        rows: Iterable[Row] = _folders(path)
    elif path.suffix.lower() in LINES:
        rows = _lines(path, text_columns, label_column)
    elif path.suffix.lower() in TABLES:
        rows = _table(path, text_columns, label_column)
    else:
        known = ", ".join((*TABLES, *LINES))
        raise UserError(f"{path}: expected a file that ends in {known}, or a folder with a folder for each class")
    try:
        found = list(rows)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if not found:
        raise UserError(f"{path} holds no row")
    for place, _, label in found:
        if not is_text(label):
            raise UserError(f"{place}: the label {label!r} holds a control character")
    return found


def _folders(path: Path) -> Iterator[Row]:
    """One document a file, in any encoding; the name of its folder is the label."""
    for folder in sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")):
        for file in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")):
            text = file.read_bytes()
            if not text:
                raise UserError(f"{file}: the file is empty")
            yield str(file), (text,), folder.name


def _lines(path: Path, text_columns: tuple[str, ...], label_column: str) -> Iterator[Row]:
    """One JSON object a line."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            place = f"{path}:{number}"
            if not line.strip():
                continue
            _decode(line, place)
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{place}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise UserError(f"{place}: expected an object, not {type(row).__name__}")
            yield place, _texts(row, text_columns, place), _label(row, label_column, place)


def _table(path: Path, text_columns: tuple[str, ...], label_column: str) -> Iterator[Row]:
    """Rows of a CSV or TSV file whose first line names the columns."""
    csv.field_size_limit(sys.maxsize)
    with path.open("rb") as raw:
        lines = (_decode(line, f"{path}:{i + 1}").removeprefix("" if i else "\ufeff") for i, line in enumerate(raw))
        reader = csv.DictReader(lines, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
        try:
            names = list(reader.fieldnames or [])
            for column in (*text_columns, label_column):
                if names.count(column) != 1:
                    found = "two columns" if column in names else "no column"
                    raise UserError(f"{path}:1: {found} {column!r}; there are: {', '.join(names) or 'none'}")
            for row in reader:  # begins before the lines within its texts
                place = f"{path}:{reader.reader.line_num - sum(str(value).count(chr(10)) for value in row.values())}"
                if None in row or None in row.values():
                    raise UserError(f"{place}: expected {len(names)} columns, not {_width(row)}")
                yield place, _texts(row, text_columns, place), _label(row, label_column, place)
        except csv.Error as error:
            raise UserError(f"{path}:{reader.reader.line_num}: {error}") from None


def _width(row: dict[Any, Any]) -> int:
    """Columns of a row that has more or fewer than the header."""
    return sum(value is not None for key, value in row.items() if key is not None) + len(row.get(None) or ())


def _decode(line: bytes, place: str) -> str:
    """Text of a line. Raises: UserError if it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place}: byte {error.start + 1} of the line is not UTF-8; convert the file first, as in "
            "`iconv -f latin1 -t utf-8`"
        ) from None


def _texts(row: dict[str, Any], columns: tuple[str, ...], place: str) -> tuple[bytes, ...]:
    """Texts of a row."""
    texts = []
    for column in columns:
        text = row.get(column)
        if column not in row:
            raise UserError(f"{place}: no {column!r}; there are: {', '.join(map(str, row)) or 'none'}")
        if not isinstance(text, str) or not text:
            raise UserError(f"{place}: {column} must be a text that is not empty")
        try:
            texts.append(text.encode())
        except UnicodeEncodeError as error:
            raise UserError(f"{place}: {column} is not valid Unicode: {error.reason}") from None
    return tuple(texts)


def _label(row: dict[str, Any], column: str, place: str) -> str:
    """Label of a row as text, empty if it has none."""
    label = row.get(column)
    if label is None or label == "":
        return ""
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise UserError(f"{place}: {column} must be a text or an integer, not {type(label).__name__}")
    try:
        str(label).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: {column} is not valid Unicode: {error.reason}") from None
    return str(label).strip()
