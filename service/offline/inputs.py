"""Find the files of a batch, and read them in parts of consecutive rows. Needs pyarrow.

Files are on this machine or in an object store. Where a part ends depends on the file only, so that a part can be
computed again after a failure. A part is small, whatever the size of the file.
"""

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from artifact.errors import InputError
from artifact.tables.reading import KNOWN, Field, Source, Values, is_table, read_fields, table_of
from artifact.tables.streams import readable
from artifact.tables.table import BadRow, Table

PART_ROWS = 2000
"""Maximum rows of a part."""
PART_BYTES = 8 * 2**20
"""Size of the values of a part beyond which it ends; a single row may be larger."""
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
        if not is_table(_without_options(path)):
            raise InputError(f"{path}: expected a file that ends in {KNOWN}")
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


def read_parts(path: str, fields: tuple[Field, ...], encoding: str = "") -> Iterator[Part]:
    """The parts of a file in order. Raises: InputError if the file cannot be read, or has no such columns."""
    with readable(path):
        system, name = filesystem(path)
        with system.open_input_file(name) as raw:
            yield from _split(table_of(raw, _without_options(path), encoding), fields)


def _split(table: Table, fields: tuple[Field, ...]) -> Iterator[Part]:
    number = first = size = read = 0
    rows: list[Source[Values | BadRow]] = []
    for row in read_fields(table, fields):
        rows.append(row)
        size += _size(row[1])
        if len(rows) == PART_ROWS or size >= PART_BYTES:
            position = table.position()
            yield Part(number, first, rows, position - read)
            number, first, size, read, rows = number + 1, first + len(rows), 0, position, []
    if rows:
        yield Part(number, first, rows, table.position() - read)


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
