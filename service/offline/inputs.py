"""Find the files of a batch, and read them in parts of consecutive rows. Needs pyarrow.

Files are on this machine or in an object store. Where a part ends depends on the file only, so that a part can be
computed again after a failure. A part is small, whatever the size of the file.
"""

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

import pyarrow
from pyarrow import parquet
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from service.offline.files import (
    HINT,
    LINES,
    SHOWN,
    TABLES,
    BadRow,
    Field,
    InputError,
    Source,
    Values,
    json_rows,
    kind_of,
    readable,
    table_rows,
    unpacked,
    values,
)

PART_ROWS = 2000
"""Maximum rows of a part."""
PART_BYTES = 8 * 2**20
"""Size of the values of a part beyond which it ends; a single row may be larger."""
LONGEST_ROW = 64 * 2**20
"""Maximum bytes of a line or of a cell."""
PARQUET = ".parquet"
PARQUET_ROWS = 64
"""Rows of a Parquet file that are decoded together."""
BUFFER = 2**20
URI = re.compile(r"([a-z][a-z0-9+.-]*://[^/?]*)/?([^?]*)(\?.*)?")
"""File system, path and options, as in s3://bucket/folder/*.parquet?region=eu-west-1."""


class InputFile(NamedTuple):
    """A file of rows."""

    path: str
    """Path or URI."""
    name: str
    """Path below the folder that contains all inputs; names the folder of its results."""
    size: int
    """Bytes."""
    modified_ns: int


class Part(NamedTuple):
    """Consecutive rows of a file."""

    number: int
    first: int
    """Number of the first row, from 0."""
    rows: list[Source[Values | BadRow]]
    read: int
    """Bytes of the file read since the part before, compressed ones if it is compressed."""


def absolute(path: str) -> str:
    """A path from the root, which processes in other folders can use; a URI as it is."""
    return os.path.abspath(path) if URI.fullmatch(path) is None else path


def filesystem(uri: str) -> tuple[FileSystem, str]:
    """File system of a path or URI, and the path in it, without a slash at its end. Raises: InputError."""
    match = URI.fullmatch(uri)
    if match is None:
        return LocalFileSystem(), os.path.abspath(uri)
    base, path, options = match.groups("")
    system, root = _connected(base, options)
    return system, f"{root.rstrip('/')}/{path}".rstrip("/")


@cache
def _connected(base: str, options: str) -> tuple[FileSystem, str]:
    try:
        found: tuple[FileSystem, str] = FileSystem.from_uri(f"{base}/{options}")
    except (OSError, ValueError) as error:  # pyarrow's errors are subclasses
        raise InputError(f"{base}: {_first_line(error)}") from None
    return found


def find_inputs(patterns: Sequence[str]) -> list[InputFile]:
    """Files that paths, URIs or patterns name, in order of their paths; each of them once.

    Raises: InputError if one names no file, a folder or a file of another format.
    """
    found: dict[str, FileInfo] = {}
    for pattern in patterns:
        matches = _find(pattern)
        if not matches:
            raise InputError(f"{pattern}: there is no such file")
        found |= matches
    for path, info in found.items():
        if info.type == FileType.Directory:
            raise InputError(f"{path} is a folder; give its files, such as {path}/*.parquet")
        if kind_of(_without_options(path)) not in (*LINES, *TABLES, PARQUET):
            known = ", ".join((*LINES, *TABLES))
            raise InputError(f"{path}: inputs end in {PARQUET}, or in {known}, also with .gz or .xz")
    paths = sorted(found)
    folder = os.path.commonpath([os.path.dirname(_without_options(path)) for path in paths])
    return [
        InputFile(path, os.path.relpath(_without_options(path), folder), found[path].size, found[path].mtime_ns or 0)
        for path in paths
    ]


def _without_options(path: str) -> str:
    match = URI.fullmatch(path)
    return path if match is None else f"{match[1]}/{match[2]}"


def _find(pattern: str) -> dict[str, FileInfo]:
    """Files by path or URI. *, ? and [...] match within a name; in a URI, ? begins its options. Raises: InputError."""
    system, path = filesystem(pattern)
    parts = path.split("/")
    fixed = next((index for index, part in enumerate(parts) if re.search(r"[*?[]", part)), None)
    try:
        if fixed is None:
            infos = [system.get_file_info(path)]
        else:
            selector = FileSelector("/".join(parts[:fixed]) or "/", recursive=fixed < len(parts) - 1)
            infos = [info for info in system.get_file_info(selector) if _matches(info.path.split("/"), parts)]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"{pattern}: {_first_line(error)}") from None
    match = URI.fullmatch(pattern)
    if match is None:
        return {info.path: info for info in infos if info.type != FileType.NotFound}
    base, _, options = match.groups("")
    root = len(path) - len(match[2].rstrip("/"))
    return {f"{base}/{info.path[root:]}{options}": info for info in infos if info.type != FileType.NotFound}


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether each name matches; as in a shell, a wildcard does not match a name that begins with a dot."""
    return len(path) == len(pattern) and all(
        fnmatchcase(name, wanted) and (wanted.startswith(".") or not name.startswith("."))
        for name, wanted in zip(path, pattern, strict=True)
    )


def read_parts(path: str, fields: tuple[Field, ...]) -> Iterator[Part]:
    """The parts of a file in order. Raises: InputError if the file cannot be read, or has no such columns."""
    csv.field_size_limit(LONGEST_ROW)
    with readable(path):
        try:
            system, name = filesystem(path)
            with system.open_input_file(name) as raw:
                source = _Parquet(raw, path, fields) if kind_of(name) == PARQUET else _Text(raw, path, fields)
                yield from _split(source)
        except pyarrow.ArrowException as error:
            raise InputError(f"{path}: {_first_line(error)}") from None


def _split(source: "_Parquet | _Text") -> Iterator[Part]:
    number = first = size = read = 0
    rows: list[Source[Values | BadRow]] = []
    for row in source.rows():
        rows.append(row)
        size += _size(row[1])
        if len(rows) == PART_ROWS or size >= PART_BYTES:
            position = source.position()
            yield Part(number, first, rows, position - read)
            number, first, size, read, rows = number + 1, first + len(rows), 0, position, []
    if rows:
        yield Part(number, first, rows, source.position() - read)


class _Text:
    """A file of lines, maybe compressed."""

    def __init__(self, raw: Any, path: str, fields: tuple[Field, ...]) -> None:
        self._raw = raw
        self._buffered = io.BufferedReader(raw, BUFFER)
        self._name = _without_options(path)
        self._fields = fields

    def rows(self) -> Iterator[Source[Values | BadRow]]:
        """Location and values of each row. Raises: InputError."""
        read = json_rows if kind_of(self._name) in LINES else table_rows
        with unpacked(self._buffered, self._name) as stream:
            yield from read(stream, self._name, self._fields, LONGEST_ROW)

    def position(self) -> int:
        """Bytes read so far."""
        return int(self._raw.tell())


class _Parquet:
    """A Parquet file; of its columns only the fields are read, in pages and not in whole row groups."""

    def __init__(self, raw: Any, path: str, fields: tuple[Field, ...]) -> None:
        self._file = parquet.ParquetFile(raw, pre_buffer=False, buffer_size=BUFFER)
        self._path = path
        self._fields = fields
        self._size = raw.size()
        self._done = 0
        names = self._file.schema_arrow.names
        for field in fields:
            if names.count(field.name) != 1:
                found = "two columns" if field.name in names else "no column"
                shown = ", ".join(names)[:SHOWN] or "none"
                raise InputError(f"{path}: {found} `{field.name}`; there are: {shown}; {HINT}")

    def rows(self) -> Iterator[Source[Values | BadRow]]:
        """Path and values of each row."""
        for batch in self._file.iter_batches(PARQUET_ROWS, columns=[field.name for field in self._fields]):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                self._done += 1
                yield _without_options(self._path), values(row, self._fields, "row")

    def position(self) -> int:
        """Share of the rows read so far, in bytes of the file."""
        position: int = self._size * self._done // max(1, self._file.metadata.num_rows)
        return position


def _size(value: Any) -> int:
    """Approximate bytes of the values of a row."""
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, dict):
        return _size(list(value.values()))
    if isinstance(value, list | tuple):
        return 8 * len(value) + sum(_size(part) for part in value if isinstance(part, bytes | list | dict))
    return 8


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
