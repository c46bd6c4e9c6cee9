"""Chooses the reader of a file by its name, and reads the columns that a task needs."""

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from artifact.errors import InputError
from artifact.tables.columnar import Parquet
from artifact.tables.containers import HEAD, container_of, json_of
from artifact.tables.delimited import Delimited
from artifact.tables.lines import JsonLines
from artifact.tables.streams import LINES, TABLES, kind_of, name_of, opened, remedy_of, text_of
from artifact.tables.table import Absent, BadRow, Table
from artifact.tables.values import LABELS, Kind, read_value

T = TypeVar("T")
PARQUET = ".parquet"
EXTENSIONS = (*TABLES, *LINES, PARQUET)
"""Extensions of the files of many inputs; all but the last may be followed by .gz or .xz."""
KNOWN = f"{', '.join((*TABLES, *LINES))} (also with .gz or .xz) or {PARQUET}"
SHOWN_COLUMNS = 8
"""Maximum number of columns that an error lists; of more columns it lists the ones with the most similar names."""
SHOWN_CELLS, SHOWN_LENGTH = 3, 30
"""Maximum number and length of the columns that an error lists if one is longer: the first line may be no header."""
Values = tuple[Any, ...]
"""Values of the fields of a row, as `read_value` returns them."""
Source = tuple[str, T]
"""Location of an input, such as `pairs.csv:7`, and the input."""


class Field(NamedTuple):
    """A column that a task reads."""

    name: str
    kind: Kind = "a string"
    option: str = "--text-column"
    """Option that names another column; errors name it."""
    is_required: bool = True
    """Whether the table must have the column; without it, labels are empty."""


def is_table(name: str) -> bool:
    """Whether a file of this name holds many inputs."""
    return kind_of(name) in EXTENSIONS


@contextmanager
def open_table(path: Path, encoding: str = "", kind: str | None = None) -> Iterator[Table]:
    """Open a file of many inputs.

    Args:
        path: the file.
        encoding: codec of a text without a byte order mark, or RAW; by default UTF-8, or UTF-16 and UTF-32 where their
            zero bytes tell them.
        kind: one of EXTENSIONS; by default that of the file's name.

    Raises: InputError naming the file if it cannot be read, also inside the context.

    """
    with opened(path) as raw:
        yield table_of(raw, name_of(path), encoding, kind)


def table_of(raw: Any, name: str, encoding: str = "", kind: str | None = None) -> Table:
    """The reader of an open file of many inputs, as `open_table`. Raises: InputError naming the file."""
    kind = kind or kind_of(name)
    if kind == PARQUET:
        _check_parquet(raw, name)
        return Parquet(raw, name, encoding)
    if kind not in (*LINES, *TABLES):
        raise InputError(f"{name}: expected a file that ends in {KNOWN}{_format(name, raw.read(HEAD))}")
    stream = text_of(raw, name, encoding)
    if kind in LINES:
        return JsonLines(stream, raw, name)
    return Delimited(stream, raw, name, is_tsv=kind == ".tsv")


def read_fields(table: Table, fields: Sequence[Field]) -> Iterator[Source[Values | BadRow]]:
    """Location and values of each row that is not blank.

    Raises: InputError if the table has no such columns, or the rest of the file cannot be read; at the end, if no row
        of JSON Lines has a column of labels that is needed.
    """
    columns = table.columns
    if columns is not None:  # readers of tables drop the spaces around names
        fields = [one if one.name in columns else one._replace(name=one.name.strip()) for one in fields]
        _check_columns(table, columns, fields)
    present = [field for field in fields if columns is None or field.name in columns]
    unseen: dict[Field, Absent | None] = {field: None for field in fields if columns is None and _needs_label(field)}
    for place, cells in table.rows([field.name for field in present]):
        if isinstance(cells, BadRow):
            yield place, cells
        else:
            row = dict(zip(present, cells, strict=True))
            unseen = {field: seen or row[field] for field, seen in unseen.items() if isinstance(row[field], Absent)}
            yield place, _values(row, fields, table.encoding)
    for field, cell in unseen.items():
        if cell is not None:
            raise InputError(f"{table.place}: {missing(field, cell.columns)}")


def _needs_label(field: Field) -> bool:
    return field.kind in LABELS and field.kind != "labels" and field.is_required


def _values(cells: dict[Field, Any], fields: Sequence[Field], encoding: str) -> Values | BadRow:
    """Values of the fields of a row."""
    values = []
    for field in fields:
        cell = cells.get(field)
        if isinstance(cell, Absent):
            if field.kind not in LABELS:
                return BadRow(missing(field, cell.columns))
            cell = None
        try:
            values.append(read_value(cell, field.kind, encoding))
        except ValueError as error:
            return BadRow(f"{field.name} {error}")
    return tuple(values)


def _check_columns(table: Table, columns: Sequence[str], fields: Sequence[Field]) -> None:
    """Check that a table has each field once. Raises: InputError naming the option that names another column."""
    for field in fields:
        if (count := columns.count(field.name)) > 1:
            raise InputError(f"{table.place}: two columns {field.name!r}; columns: {listed(field.name, columns)}")
        if field.is_required and not count:
            raise InputError(f"{table.place}: {missing(field, columns)}{table.hint}")


def missing(field: Field, columns: Sequence[str]) -> str:
    """Error for a column that there is not."""
    return f"no column {field.name!r}; columns: {listed(field.name, columns)}; {field.option} names another one"


def listed(column: str, names: Sequence[str]) -> str:
    """Names of columns for an error; of many, those nearest to the missing one."""
    shown = list(names)
    if any(len(name) > SHOWN_LENGTH for name in names):
        shown = [name if len(name) <= SHOWN_LENGTH else f"{name[:SHOWN_LENGTH]}..." for name in names[:SHOWN_CELLS]]
    elif len(names) > SHOWN_COLUMNS:
        shown = difflib.get_close_matches(column, names, SHOWN_COLUMNS, cutoff=0.0)
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"{', '.join(shown) or 'none'}{more}"


def found_in(path: Path) -> str:
    """What a file of another format is, for an error; empty if unknown. Raises: InputError if it cannot be read."""
    with opened(path) as raw:
        return _format(name_of(path), raw.read(HEAD))


def _format(name: str, head: bytes) -> str:
    if container := container_of(head):
        return f"; it is {container}{remedy_of(container)}"
    guess = "a JSON array" if head.lstrip()[:1] == b"[" else "JSON"
    if (found := json_of(head)) or kind_of(name) == ".json":
        return f"; it is {found or guess}: write one object a line and end its name in .jsonl"
    return ""


def _check_parquet(raw: Any, name: str) -> None:
    """Check the first bytes of a Parquet file. Raises: InputError."""
    head = raw.read(HEAD)
    raw.seek(0)
    if head[:3] != b"PAR":
        found = container_of(head)
        raise InputError(f"{name}: expected Parquet{f', but it is {found}' if found else ''}")
