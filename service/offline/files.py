"""Read documents and pairs from files, each with its location for errors."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from artifact.errors import InputError
from artifact.tables.documents import read_document
from artifact.tables.reading import KNOWN, PARQUET, Field, Source, Values, is_table, open_table, read_fields
from artifact.tables.streams import TABLES, kind_of, name_of
from artifact.tables.table import BadRow


def read_rows(
    path: Path, fields: Sequence[Field], encoding: str = "", kind: str | None = None
) -> Iterator[Source[Values | BadRow]]:
    """Location and values of each row of a file of many inputs.

    Args:
        path: the file, or standard input.
        fields: what is read of each row.
        encoding: that of a text without a byte order mark, or RAW.
        kind: extension that tells the format; default: that of the file.

    Raises: InputError for a file that cannot be read, or has no such columns.

    """
    with open_table(path, encoding, kind) as table:
        yield from read_fields(table, fields)


def read_inputs(
    paths: Sequence[Path], fields: Sequence[Field], encoding: str = ""
) -> Iterator[Source[Values | BadRow]]:
    """Location and values of all inputs in files; a file that is no table is one text.

    Raises: InputError, also for a file of one text where several fields are needed.
    """
    for path in paths:
        if is_table(path.name):
            yield from read_rows(path, fields, encoding)
        elif len(fields) == 1:
            yield name_of(path), (read_document(path, encoding),)
        else:
            raise InputError(f"{path}: pairs are read from files that end in {KNOWN}")


def table_kind(path: Path) -> str:
    """Format of a file that is given as a table of columns: that of its name, or CSV."""
    return kind if (kind := kind_of(path.name)) in (*TABLES, PARQUET) else ".csv"
