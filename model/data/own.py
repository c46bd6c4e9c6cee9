"""User data: tables, JSON Lines, Parquet, or a folder with one subfolder of text files per class."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from artifact.encodings import RAW, is_utf8, not_utf8
from artifact.errors import InputError
from artifact.manifest import is_text
from artifact.tables.documents import read_document
from artifact.tables.reading import KNOWN, Field, found_in, is_table, open_table, read_fields
from artifact.tables.table import BadRow
from artifact.tables.values import Kind, is_missing
from model.errors import UserError, reading

SPLIT_COLUMN = "split"
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    "test": "test",
}
"""Values of a split column -> split."""
ORDER = ("train", "validation", "test")
"""Splits, earlier to later; of copies, the one in the latest split is kept."""


class Example(NamedTuple):
    """One labelled document or pair."""

    place: str
    """File and line (for Parquet: number of the row), or the file of a document in a folder."""
    texts: tuple[bytes, ...]
    label: str
    """Without the spaces around it; empty if missing. Of any number of labels, their list as JSON."""
    written: str = ""
    """The label as it is written, also a word for a missing value."""
    split: str = ""
    """Value of the split column; empty if missing."""
    group: str = ""
    """Value of the group column; empty if missing."""
    several: tuple[str, ...] | None = None
    """Distinct labels of a row with a list of them, ascending; None for one label."""
    dropped: tuple[str, ...] = ()
    """Words for a missing value among the labels of such a row."""

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels of a row that is not missing its label."""
        return (self.label,) if self.several is None else self.several


@dataclass(frozen=True)
class TextColumns:
    """Names of the columns of user data."""

    texts: tuple[str, ...]
    label: str = ""
    split: str = ""
    """Column that assigns rows to splits. An empty name stands for no column."""
    group: str = ""
    """Column with the group of each row."""
    takes_lists: bool = False
    """Whether a label may be a list of any number of labels."""
    takes_numbers: bool = False
    """Whether a label may be a number with a fraction."""
    separator: str = ""
    """What separates the labels of a row, if they are not in a list."""
    needs_groups: bool = True
    """Whether a file without the column of the groups is an error."""
    encoding: str = ""
    """Encoding of texts without a byte order mark; see `artifact.encodings.decode`."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """What is read of each row: the texts, then label, split and group, where there are columns of them."""
        kind: Kind = "labels" if self.takes_lists else "a label or number" if self.takes_numbers else "a label"
        labels = (
            Field(self.label, kind, "--label-column"),
            Field(self.split, "a label", "--set data.split_column", is_required=False),
            Field(self.group, "a label", "--group-column", is_required=self.needs_groups),
        )
        return (*map(Field, self.texts), *(field for field in labels if field.name))

    def check_distinct(self) -> None:
        """Check that no column is named twice. Raises: UserError."""
        options: dict[str, list[str]] = {}
        for field in self.fields:
            options.setdefault(field.name, []).append(field.option)
        for name, found in options.items():
            if len(found) > 1:
                raise UserError(f"{' and '.join(dict.fromkeys(found))} must name different columns, not {name!r} twice")

    def check_groups(self, rows: Sequence[Example]) -> None:
        """Check that rows that are still to be split have a group, if there are any. Raises: UserError."""
        for row in rows if self.group else ():
            if not row.group:
                raise UserError(f"{row.place}: {self.group} must be a non-empty string or an integer, as the group")


@dataclass(frozen=True)
class DataFiles:
    """The files that a command reads."""

    data_dir: Path = Path("data")
    """Folder of the data sets."""
    data: Path | None = None
    """File or folder of user data, instead of a data set."""
    validation: Path | None = None
    test: Path | None = None
    """Files of user data besides `data`; None if a split is taken from it."""
    unlabelled: Path | None = None
    """File or folder of unlabelled documents of the user."""
    series: tuple[Path, ...] = ()
    """Files of the user's series that are added to generated ones."""
    encoding: str = ""
    """Encoding of texts in `data` without a byte order mark, if it is not that of the recipe."""

    @property
    def place(self) -> Path:
        """What errors name."""
        return self.data or self.data_dir


@dataclass(frozen=True)
class ReadFile:
    """The rows of a file or folder of user data."""

    path: Path
    rows: tuple[Example, ...]
    """All rows that have texts."""
    notes: tuple[str, ...]
    """Notes about rows that were left out, and about texts that are not UTF-8."""


@dataclass(frozen=True)
class OwnTexts:
    """User texts as a command has read them, each file once."""

    data: ReadFile
    validation: ReadFile | None = None
    test: ReadFile | None = None
    unlabelled: ReadFile | None = None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the texts and labels of the training file in any order: it depends on the content alone."""
        digests = []
        for row in self.data.rows:
            digest = hashlib.sha256()
            for part in (*row.texts, row.label.encode()):
                digest.update(len(part).to_bytes(8, "little") + part)
            digests.append(digest.digest())
        return hashlib.sha256(b"".join(sorted(digests))).hexdigest()

    def with_held_out(self, other: "OwnTexts") -> "OwnTexts":
        """These texts with the files of validation and test of others."""
        return replace(self, validation=other.validation, test=other.test)

    def split_rows(self, split_column: str) -> tuple[list[Example], tuple[str, ...]]:
        """Rows of all labelled files with their splits, and notes.

        Rows of the training file have the split that their split column names; without such a column, they have none.

        Raises: UserError naming file and line.
        """
        rows, notes = list(self.data.rows), self.data.notes
        rows = [row._replace(split=split_column and split_of(row.place, row.split, split_column)) for row in rows]
        for name, file in (("validation", self.validation), ("test", self.test)):
            if file is not None:
                rows += [row._replace(split=name) for row in file.rows]
                notes += file.notes
        return rows, notes


def read_own(files: DataFiles, columns: TextColumns) -> OwnTexts:
    """Read the files of a user. Raises: UserError naming file, line and column."""
    assert files.data is not None
    if files.encoding and columns.encoding != RAW:
        columns = replace(columns, encoding=files.encoding)
    others = (
        (files.validation, replace(columns, group="")),  # only rows need a group that are still to be split
        (files.test, replace(columns, group="")),
        (files.unlabelled, TextColumns(columns.texts, encoding=columns.encoding)),
    )
    read_others = [None if path is None else read(path, wanted) for path, wanted in others]
    return OwnTexts(read(files.data, columns), *read_others)


def read(path: Path, columns: TextColumns) -> ReadFile:
    """Read all rows that have texts. Labels must not contain control characters, because responses and logs show them.

    Raises: UserError naming file, line and column.
    """
    with reading():
        found = list(_rows(path, columns))
    if not found:
        raise UserError(f"{path} has no rows")
    for row in found:
        if bad := [label for label in row.labels if not is_text(label)]:
            raise UserError(f"{row.place}: the label {bad[0]!r} contains a control character")
    empty = [row.place for row in found if not row.texts]
    if len(empty) == len(found):
        raise UserError(f"{path} has no texts, the first is missing at {empty[0]}")
    notes = []
    if empty:
        notes.append(f"{len(empty)} rows without a text are left out, the first at {empty[0]}")
    if columns.encoding != RAW and (other := [row.place for row in found if not all(map(is_utf8, row.texts))]):
        notes.append(not_utf8(len(other), other[0]))
    return ReadFile(path, tuple(row for row in found if row.texts), tuple(notes))


def without_leaks(rows: list[Example]) -> tuple[list[Example], int]:
    """Drop rows of training and validation whose texts are also in a later split.

    Returns the other rows, and the number of dropped ones. Rows without a split count as training.
    """
    rank = {"": 0} | {name: i for i, name in enumerate(ORDER)}
    last: dict[tuple[bytes, ...], int] = {}
    for row in rows:
        last[row.texts] = max(last.get(row.texts, 0), rank[row.split])
    kept = [row for row in rows if rank[row.split] == last[row.texts]]
    return kept, len(rows) - len(kept)


def check_training(path: Path, training: Sequence[Example], leaks: int) -> None:
    """Check that rows are left for training, when `leaks` rows are left out. Raises: UserError."""
    if not training:
        out = f"; {leaks} are left out because they are also in validation or test" if leaks else ""
        raise UserError(f"{path} has no labelled row for training{out}")


def splits_digest(*splits: Iterable[tuple[bytes, ...]]) -> str:
    """SHA-256 of the texts of the examples of each split, in any order."""
    found = hashlib.sha256()
    for split in splits:
        for texts in sorted(split):
            for text in texts:
                found.update(len(text).to_bytes(8, "little") + text)
        found.update(b"\xff" * 8)
    return found.hexdigest()


def missing_labels(rows: Sequence[Example]) -> tuple[str, ...]:
    """A note about the rows without a label and the words that they have instead; none if all rows have one."""
    missing = [row for row in rows if not row.label]
    if not missing:
        return ()
    words = Counter(word for row in missing if (word := row.written.strip()))
    listed = ", ".join(f"{word!r} {count}" for word, count in sorted(words.items()))
    return (
        f"{len(missing)} rows without a label are left out, the first at {missing[0].place}"
        f"{f'; read as missing: {listed}' if words else ''}",
    )


def split_of(place: str, written: str, column: str) -> str:
    """Split that a value of a column stands for. Raises: UserError naming place and known values."""
    split = SPLITS.get(written.lower())
    if split is None:
        raise UserError(
            f"{place}: {column} must be one of {', '.join(SPLITS)}, not {written!r}; "
            "`--set data.split_column=` ignores the column"
        )
    return split


def _rows(path: Path, columns: TextColumns) -> Iterator[Example]:
    """Rows of a file or folder; those without a text have no texts. Raises: UserError, InputError."""
    if path.is_dir():
        if len(columns.texts) != 1:
            raise UserError(f"{path}: pairs cannot be read from a folder; give a CSV or JSON Lines file")
        if columns.group:
            raise UserError(f"{path}: a folder has no column {columns.group!r}; give a CSV or JSON Lines file")
        return _folders(path, columns.encoding) if columns.label else _files(path, "", columns.encoding)
    if path.exists() and not is_table(path.name):
        known = f"a file that ends in {KNOWN}, or a folder with one subfolder per class"
        raise UserError(f"{path}: expected {known}{found_in(path)}")
    return _table(path, columns)


def _folders(path: Path, encoding: str) -> Iterator[Example]:
    """Yield one row per file; the label is the name of the subfolder."""
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    if folders and all(folder.name.lower() in SPLITS for folder in folders):
        names = ", ".join(folder.name for folder in folders)
        raise UserError(
            f"{path}: its subfolders {names} are splits, not labels; name each with --data, --validation and --test"
        )
    for folder in folders:
        if not is_utf8(name := os.fsencode(folder.name)):
            raise UserError(f"{path}: the name of its subfolder {name!r} is not UTF-8; rename it")
        yield from _files(folder, folder.name, encoding)


def _files(folder: Path, label: str, encoding: str) -> Iterator[Example]:
    """Yield one row per file of a folder and its subfolders."""
    for file in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")):
        text = read_document(file, encoding)
        yield Example(str(file), (text,) if text.strip() else (), label, label)


def _table(path: Path, columns: TextColumns) -> Iterator[Example]:
    """Yield the rows of a table. Raises: InputError, also for a bad row."""
    fields = columns.fields
    names = [field.name for field in fields]
    with open_table(path, columns.encoding) as table:
        for place, values in read_fields(table, fields):
            if isinstance(values, BadRow):
                raise InputError(f"{place}: {values.reason}")
            yield _row(place, dict(zip(names, values, strict=True)), columns)


def _row(place: str, values: dict[str, Any], columns: TextColumns) -> Example:
    """A row of the values of its columns."""
    written = values.get(columns.label, "")
    parts = _parts(written, columns.separator)
    several = None if parts is None else tuple(sorted({part.strip() for part in parts if not is_missing(part)}))
    dropped = tuple(word for part in parts or () if is_missing(part) and (word := part.strip()))
    label, split, group = (
        "" if is_missing(value) else value.strip()
        for value in (
            written if several is None else json.dumps(several, ensure_ascii=False),
            values.get(columns.split, ""),
            values.get(columns.group, ""),
        )
    )
    texts = tuple(values[name] for name in columns.texts)
    return Example(place, () if None in texts else texts, label, str(written), split, group, several, dropped)


def _parts(written: str | tuple[str, ...], separator: str) -> tuple[str, ...] | None:
    """The labels of a row with any number of them, as they are written; None for one label."""
    if isinstance(written, tuple):
        return written
    if not separator:
        return None
    return (written,) if is_missing(written) else tuple(written.split(separator))
