"""User data: tables, JSON Lines, Parquet, or a folder with one subfolder of text files per class."""

import csv
import difflib
import gzip
import hashlib
import json
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from artifact.manifest import is_text
from model.errors import UserError

LINES = (".jsonl", ".ndjson")
TABLES = (".csv", ".tsv")
PARQUET = ".parquet"
PACKED: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
SHOWN_COLUMNS = 8
"""Maximum number of columns that an error lists; of more columns it lists the ones with the most similar names."""
SEPARATORS = {
    ";": ("semicolons", "save the table with commas"),
    "\t": ("tabs", "give the file a name that ends in .tsv"),
    "|": ("vertical bars", "save the table with commas"),
    ",": ("commas", "give the file a name that ends in .csv"),
}
"""Separator of columns -> its name, and what makes the file readable."""
SPLIT_COLUMN = "split"
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    "test": "test",
}
"""Values of a split column -> split."""
ORDER = ("train", "validation", "test")
"""Splits, earlier to later; of copies, the one in the latest split is kept."""


class Row(NamedTuple):
    """One labelled document or pair."""

    place: str
    """File and line (for Parquet: number of the row), or the file of a document in a folder."""
    texts: tuple[bytes, ...]
    label: str
    """Empty if missing."""
    split: str = ""
    """Value of the split column; empty if missing."""
    group: str = ""
    """Value of the group column; empty if missing."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns of user data."""

    texts: tuple[str, ...]
    label: str = ""
    split: str = ""
    """Column that assigns rows to splits. An empty name stands for no column."""
    group: str = ""
    """Column with the group of each row."""

    @property
    def required(self) -> tuple[str, ...]:
        """Columns that a table must have."""
        return tuple(name for name in (*self.texts, self.label, self.group) if name)

    def without_groups(self) -> "Columns":
        """The same columns without that of the groups, which only rows need that are still to be split."""
        return replace(self, group="")


@dataclass(frozen=True)
class HeldOut:
    """Files of user data besides the training file; None if a split is taken from the training file."""

    validation: Path | None = None
    test: Path | None = None


NO_FILES = HeldOut()


def read(path: Path, columns: Columns) -> list[Row]:
    """Read all rows. Empty texts are errors, and so is an encoding other than UTF-8, except for files in folders.

    Labels must not contain control characters, because manifests, responses and logs show them.

    Raises: UserError naming file, line and column.
    """
    try:
        found = list(_rows(path, columns))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path}: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    if not found:
        raise UserError(f"{path} has no rows")
    for row in found:
        if not is_text(row.label):
            raise UserError(f"{row.place}: the label {row.label!r} contains a control character")
    return found


def read_splits(path: Path, columns: Columns, held_out: HeldOut) -> tuple[list[Row], str]:
    """Read the training file and the files of validation and test.

    Returns the rows, whose `split` is their split or empty, and the fingerprint of the training file. Rows of the
    training file have the split that their split column names; without such a column, they have none.

    Raises: UserError naming file, line and column.
    """
    rows = read(path, columns)
    file_hash = fingerprint(rows)
    if columns.split:
        rows = [row._replace(split=_split(row, columns.split)) for row in rows]
    for name, file in (("validation", held_out.validation), ("test", held_out.test)):
        if file is not None:
            rows += [row._replace(split=name) for row in read(file, columns.without_groups())]
    return rows, file_hash


def without_leaks(rows: list[Row]) -> tuple[list[Row], int]:
    """Drop rows of training and validation whose texts are also in a later split.

    Returns the other rows, and the number of dropped ones. Rows without a split count as training.
    """
    rank = {"": 0} | {name: i for i, name in enumerate(ORDER)}
    last: dict[tuple[bytes, ...], int] = {}
    for row in rows:
        last[row.texts] = max(last.get(row.texts, 0), rank[row.split])
    kept = [row for row in rows if rank[row.split] == last[row.texts]]
    return kept, len(rows) - len(kept)


def fingerprint(rows: Iterable[Row]) -> str:
    """SHA-256 of the texts and labels of all rows in any order, so that it depends on the content alone."""
    digests = []
    for row in rows:
        digest = hashlib.sha256()
        for part in (*row.texts, row.label.encode()):
            digest.update(len(part).to_bytes(8, "little") + part)
        digests.append(digest.digest())
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()


def _split(row: Row, column: str) -> str:
    """Split that a row names. Raises: UserError naming the place and the known values."""
    split = SPLITS.get(row.split.lower())
    if split is None:
        raise UserError(
            f"{row.place}: {column} must be one of {', '.join(SPLITS)}, not {row.split!r}; "
            "`--set data.split_column=` ignores the column"
        )
    return split


def _rows(path: Path, columns: Columns) -> Iterable[Row]:
    """Choose the reader by the end of the file name."""
    if path.is_dir():
        if len(columns.texts) != 1:
            raise UserError(f"{path}: pairs cannot be read from a folder; give a CSV or JSON Lines file")
        if columns.group:
            raise UserError(f"{path}: a folder has no column {columns.group!r}; give a CSV or JSON Lines file")
        return _folders(path) if columns.label else _files(path, "")
    packed = path.suffix.lower() if path.suffix.lower() in PACKED else ""
    kind = Path(path.name[: len(path.name) - len(packed)]).suffix.lower()
    if kind in LINES:
        return _lines(path, packed, columns)
    if kind in TABLES:
        return _table(path, packed, columns, "\t" if kind == ".tsv" else ",")
    if kind == PARQUET and not packed:
        return _parquet(path, columns)
    known = ", ".join((*TABLES, *LINES))
    raise UserError(
        f"{path}: expected a file that ends in {known} (also with .gz or .xz) or {PARQUET}, or a folder with one "
        "subfolder per class"
    )


def _open(path: Path, packed: str) -> IO[bytes]:
    """Open a file that may be compressed."""
    stream: IO[bytes] = PACKED[packed](path) if packed else path.open("rb")
    return stream


def _folders(path: Path) -> Iterator[Row]:
    """Yield one row per file, in any encoding; the label is the name of the subfolder."""
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    if folders and all(folder.name.lower() in SPLITS for folder in folders):
        names = ", ".join(folder.name for folder in folders)
        raise UserError(
            f"{path}: its subfolders {names} are splits, not labels; name each with --data, --validation and --test"
        )
    for folder in folders:
        yield from _files(folder, folder.name)


def _files(folder: Path, label: str) -> Iterator[Row]:
    """Yield one row per file of a folder and its subfolders. Raises: UserError naming an empty file."""
    for file in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")):
        text = file.read_bytes()
        if not text:
            raise UserError(f"{file}: the file is empty")
        yield Row(str(file), (text,), label)


def _lines(path: Path, packed: str, columns: Columns) -> Iterator[Row]:
    """Yield one row per JSON object."""
    with _open(path, packed) as lines:
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
            yield _row(row, columns, place)


def _table(path: Path, packed: str, columns: Columns, separator: str) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV file; the first line names the columns."""
    csv.field_size_limit(sys.maxsize)
    with _open(path, packed) as raw:
        lines = (_decode(line, f"{path}:{i + 1}").removeprefix("" if i else "\ufeff") for i, line in enumerate(raw))
        reader = csv.DictReader(lines, delimiter=separator, strict=True)
        try:
            names = list(reader.fieldnames or [])
            for column in columns.required:
                if names.count(column) != 1:
                    raise UserError(f"{path}:1: {_missing(column, names, columns)}{_other_separator(names, separator)}")
            for row in reader:  # line_num is the last line of a row; texts may contain line breaks
                place = f"{path}:{reader.reader.line_num - sum(str(value).count(chr(10)) for value in row.values())}"
                if None in row or None in row.values():
                    raise UserError(f"{place}: expected {len(names)} columns, not {_width(row)}")
                yield _row(row, columns, place)
        except csv.Error as error:
            raise UserError(f"{path}:{reader.reader.line_num}: {error}") from None


def _parquet(path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a Parquet file."""
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        raise UserError(f"{path}: reading {PARQUET} needs the package pyarrow: `pip install pyarrow`") from None
    try:
        with path.open("rb") as stream:
            file = parquet.ParquetFile(stream)
            names = file.schema_arrow.names
            for column in columns.required:
                if names.count(column) != 1:
                    raise UserError(f"{path}: {_missing(column, names, columns)}")
            wanted = [name for name in names if name in (*columns.required, columns.split)]
            number = 0
            for batch in file.iter_batches(columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield _row(row, columns, f"{path}:{number}")
    except ArrowException as error:
        raise UserError(f"{path}: {str(error).splitlines()[0]}") from None


def _row(row: dict[str, Any], columns: Columns, place: str) -> Row:
    """Check the values of one row. Raises: UserError naming the place."""
    label, split, group = (
        _label(row, column, place) if column else "" for column in (columns.label, columns.split, columns.group)
    )
    if columns.group and not group:
        raise UserError(f"{place}: {columns.group} must be a non-empty string or an integer, as the group")
    return Row(place, _texts(row, columns, place), label, split, group)


def _missing(column: str, names: list[str], columns: Columns) -> str:
    """Error for a column that does not occur exactly once, with the option that names another one."""
    options = {columns.label: "--label-column", columns.group: "--group-column"}
    option = options.get(column, "--text-column")
    if column in names:
        return f"two columns {column!r}; columns: {_listed(column, names)}"
    return f"no column {column!r}; columns: {_listed(column, names)}; {option} names another one"


def _listed(column: str, names: list[str]) -> str:
    """Names of columns for an error; of many, those nearest to the missing one."""
    if len(names) <= SHOWN_COLUMNS:
        return ", ".join(names) or "none"
    nearest = difflib.get_close_matches(column, names, SHOWN_COLUMNS, cutoff=0.0)
    return f"{', '.join(nearest)} and {len(names) - len(nearest)} more"


def _other_separator(names: list[str], separator: str) -> str:
    """Hint for a header with a single column that contains another separator."""
    if len(names) != 1:
        return ""
    for sign, (word, remedy) in SEPARATORS.items():
        if sign != separator and sign in names[0]:
            return f"; the columns seem to be separated by {word}: {remedy}"
    return ""


def _width(row: dict[Any, Any]) -> int:
    """Number of cells in a row that has more or fewer than the header."""
    return sum(value is not None for key, value in row.items() if key is not None) + len(row.get(None) or ())


def _decode(line: bytes, place: str) -> str:
    """Decode a line. Raises: UserError if it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place}: byte {error.start + 1} of the line is not UTF-8; convert the file first, as in "
            "`iconv -f latin1 -t utf-8`"
        ) from None


def _texts(row: dict[str, Any], columns: Columns, place: str) -> tuple[bytes, ...]:
    """Texts of a row. Raises: UserError if one is missing, empty or not valid Unicode."""
    texts = []
    for column in columns.texts:
        text = row.get(column)
        if column not in row:
            raise UserError(
                f"{place}: no {column!r}; columns: {_listed(column, list(map(str, row)))}; --text-column names another "
                "one"
            )
        if not isinstance(text, str) or not text:
            raise UserError(f"{place}: {column} must be a non-empty string")
        try:
            texts.append(text.encode())
        except UnicodeEncodeError as error:
            raise UserError(f"{place}: {column} is not valid Unicode: {error.reason}") from None
    return tuple(texts)


def _label(row: dict[str, Any], column: str, place: str) -> str:
    """Label of a row as a string; empty if missing."""
    label = row.get(column)
    if label is None or label == "":
        return ""
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise UserError(f"{place}: {column} must be a string or an integer, not {type(label).__name__}")
    try:
        str(label).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: {column} is not valid Unicode: {error.reason}") from None
    return str(label).strip()
