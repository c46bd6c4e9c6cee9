"""Read documents, pairs and series from files, each with its location for errors."""

import csv
import gzip
import json
import lzma
import math
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

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


class Field(NamedTuple):
    """A field of a row that a task reads."""

    name: str
    kind: Literal["a string", "a list of strings", "a series"] = "a string"


class BadRow(NamedTuple):
    """A row that cannot be read, and why."""

    reason: str


Values = tuple[Any, ...]
"""Values of the fields of a row: bytes of a string, list of bytes of a list of strings, or a series as it is given."""


class InputError(Exception):
    """A file or row that cannot be read; the message is one line that names its location."""


def rows(jsonl: Path | None, table: Path | None, fields: tuple[Field, ...]) -> Iterator[Source[Values]]:
    """Location and values of each line of a JSONL file, or of each row of a CSV file. Raises: InputError."""
    path = jsonl if jsonl is not None else table
    assert path is not None
    with _open(path) as stream:
        if jsonl is not None:
            yield from _readable(json_rows(stream, _name(path), fields))
        else:
            yield from _readable(table_rows(stream, _name(path), fields))


def texts(paths: Sequence[Path], fields: tuple[Field, ...]) -> Iterator[Source[Values]]:
    """Location and values of all inputs in files: lines of JSON Lines, rows of CSV and TSV; any other file is one text.

    Raises: InputError, also for a file of one text where several fields are needed.
    """
    for path in paths:
        kind = kind_of(path.name)
        if kind in LINES:
            yield from rows(path, None, fields)
        elif kind in TABLES:
            yield from rows(None, path, fields)
        elif len(fields) == 1:
            yield _name(path), (read(path),)
        else:
            known = ", ".join((*LINES, *TABLES))
            raise InputError(f"{path}: pairs are read from files that end in {known}, also with .gz or .xz")


def _readable(found: Iterable[Source[Values | BadRow]]) -> Iterator[Source[Values]]:
    """Yield the rows. Raises: InputError for the first bad one."""
    for place, row in found:
        if isinstance(row, BadRow):
            raise InputError(f"{place}: {row.reason}")
        yield place, row


def read(path: Path) -> bytes:
    """The content of a file or of standard input. Raises: InputError."""
    try:
        return sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; give its files, --jsonl or --csv") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def kind_of(name: str) -> str:
    """Extension of a file name in lower case, without that of its compression."""
    path = Path(name)
    return (Path(path.stem) if path.suffix.lower() in PACKED else path).suffix.lower()


def _name(path: Path) -> str:
    """Name of a file in a location."""
    return "stdin" if path == STDIN else str(path)


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Open a file, which may be compressed, or standard input, as a binary stream. Raises: InputError, also inside."""
    name = _name(path)
    with readable(name), ExitStack() as stack:
        raw = sys.stdin.buffer if path == STDIN else stack.enter_context(path.open("rb"))
        stream = stack.enter_context(unpacked(raw, name))
        yield stream


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn errors of reading a file into InputError with its name."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    except UNREADABLE as error:
        raise InputError(f"{name}: {error}") from None


def unpacked(raw: Any, name: str) -> Any:
    """Decompress a binary stream by the extension of its name. Returns a context manager of a binary stream."""
    unpack = PACKED.get(Path(name).suffix.lower())
    return nullcontext(raw) if unpack is None else unpack(raw)


def json_rows(
    stream: Any, name: str, fields: tuple[Field, ...], longest: int = -1
) -> Iterator[Source[Values | BadRow]]:
    """Location and values of each line that is not blank; lines of more than `longest` bytes are bad (-1: no limit)."""
    number = 0
    while line := stream.readline(longest):
        number += 1
        place = f"{name}:{number}"
        if _is_cut(line, longest):
            while _is_cut(stream.readline(longest), longest):
                pass
            yield place, BadRow(f"the line is longer than {longest} bytes")
        elif line.strip():
            yield place, _parse(line, fields)


def _is_cut(line: bytes, longest: int) -> bool:
    """Whether `readline(longest)` has returned only a part of a line."""
    return len(line) == longest and not line.endswith(b"\n")


def _parse(line: bytes, fields: tuple[Field, ...]) -> Values | BadRow:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    return values(row, fields, "JSON object")


def values(row: Mapping[str, Any] | None, fields: tuple[Field, ...], container: str) -> Values | BadRow:
    """Values of the fields of a row; `container` says in an error what a row is."""
    try:
        if row is not None:
            return tuple(_value(row[field.name], field) for field in fields)
    except (ValueError, TypeError, KeyError):
        pass
    kinds = dict.fromkeys(field.kind for field in fields)
    named = {kind: " and ".join(f"`{field.name}`" for field in fields if field.kind == kind) for kind in kinds}
    wanted = " and ".join(f"{kind} {names}" for kind, names in named.items())
    return BadRow(f"expected a {container} with {wanted}; {HINT}")


def _value(value: Any, field: Field) -> Any:
    """The value of a field. Raises: TypeError, ValueError if it has another type, or text that UTF-8 cannot encode."""
    match field.kind:
        case "a string":
            return _text(value)
        case "a list of strings":
            if not isinstance(value, list):
                raise TypeError
            return [_text(part) for part in value]
        case "a series":
            if not isinstance(value, list | dict):
                raise TypeError
            if not all(map(_is_finite, value.values() if isinstance(value, dict) else value)):
                raise ValueError
            return value


def _is_finite(channel: Any) -> bool:
    """Whether a channel contains neither NaN nor infinity, which Python reads in JSON; models check everything else."""
    return not isinstance(channel, list) or all(map(math.isfinite, (x for x in channel if isinstance(x, float))))


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):  # in Parquet
        return value
    if not isinstance(value, str):
        raise TypeError
    return value.encode()


def table_rows(
    stream: Any, name: str, fields: tuple[Field, ...], longest: int = -1
) -> Iterator[Source[Values | BadRow]]:
    """Location and values of each row of a CSV file, or of a TSV file by its name.

    Cells of lists and series contain JSON. Raises: InputError for a header without the fields, or a line of more than
    `longest` bytes (-1: no limit).
    """
    for place, row in _table(stream, name, tuple(field.name for field in fields), f"; {HINT}", longest):
        yield place, row if isinstance(row, BadRow) else _from_cells(row, fields)


def _from_cells(row: dict[str, str], fields: tuple[Field, ...]) -> Values | BadRow:
    texts = [row[field.name] for field in fields if field.kind == "a string"]
    if not all(map(_is_utf8, texts)):
        return BadRow("the text is not valid UTF-8")
    try:
        parsed = {
            field.name: row[field.name] if field.kind == "a string" else json.loads(row[field.name]) for field in fields
        }
    except (ValueError, RecursionError):
        return values(None, fields, "row")
    return values(parsed, fields, "row")


def _is_utf8(text: str) -> bool:
    """Whether a text contains no bytes that could not be decoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def columns(path: Path, names: tuple[str, ...]) -> dict[str, list[float | None]]:
    """Columns of a CSV file by name; empty cells are None. Raises: InputError."""
    found: dict[str, list[float | None]] = {name: [] for name in names}
    with _open(path) as stream:
        for place, row in _table(stream, _name(path), names):
            if isinstance(row, BadRow):
                raise InputError(f"{place}: {row.reason}")
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


def _table(
    stream: Any, name: str, fields: tuple[str, ...], hint: str = "", longest: int = -1
) -> Iterator[Source[dict[str, str] | BadRow]]:
    """Location and cells of each row of a table with certain columns; separated by tabs if its name ends in .tsv.

    Bytes that are not UTF-8 become lone surrogates. Raises: InputError for a wrong header or a line that is too long.
    """
    reader = csv.reader(_decoded(stream, name, longest), delimiter="\t" if kind_of(name) == ".tsv" else ",")
    header = next(reader, [])
    for field in fields:
        if header.count(field) != 1:
            found = "two columns" if field in header else "no column"
            names = ", ".join(header)[:SHOWN] or "none"
            raise InputError(f"{name}:1: {found} `{field}`; there are: {names}{hint}")
    for row in filter(None, reader):
        # line_num is the last line of a row, whose cells may contain line breaks.
        place = f"{name}:{reader.line_num - sum(cell.count(chr(10)) for cell in row)}"
        if len(row) == len(header):
            yield place, dict(zip(header, row, strict=True))
        else:
            yield place, BadRow(f"{len(row)} cells under {len(header)} columns")


def _decoded(stream: Any, name: str, longest: int) -> Iterator[str]:
    """Lines of a table as text. Raises: InputError if one is longer than `longest` bytes (-1: no limit)."""
    number = 0
    while line := stream.readline(longest):
        if _is_cut(line, longest):
            raise InputError(f"{name}:{number + 1}: the line is longer than {longest} bytes")
        yield line.decode("utf-8" if number else "utf-8-sig", "surrogateescape")
        number += 1
