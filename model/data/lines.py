"""Compressed JSON Lines, the file format of the public text data sets, and their labelled documents."""

import json
import lzma
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.errors import UserError

TRAIN_TEST = {"train": "train", "test": "test"}
TRAIN_VALIDATION_TEST = {"train": "train", "val": "validation", "test": "test"}
"""Split in a file -> name of the split here."""


@dataclass(frozen=True)
class LabelledLines:
    """A data set of labelled documents, whose file holds all splits."""

    file: str
    labels: list[str]
    terms: str
    splits: Mapping[str, str]
    split_key: str = "split"
    """Field with the split of a document."""
    group_key: str = ""
    """Field with the group of a document, if there are groups: those of a group are in one split and in one fold."""
    group_of: Callable[[Any, str], str] | None = None
    """Group of a value of that field, and the place that errors name; by default the value itself."""
    non_commercial: bool = False

    def read(self, data_dir: Path, split: str) -> list[tuple[bytes, int, str]]:
        """Read one split as (UTF-8 bytes, label, group). Raises: UserError naming file and line of a bad row."""
        path = data_dir / self.file
        rows = [row[1:] for place, raw in read_lines(path) if (row := self._parse(raw, place))[0] == split]
        if not rows:
            raise UserError(f"{path} has no rows of split {split!r}")
        return rows

    def _parse(self, row: dict[str, Any], place: str) -> tuple[str, bytes, int, str]:
        """Validate one row; returns (split, text, label, group)."""
        split, label, group = row.get(self.split_key), row.get("label"), row.get(self.group_key)
        if not isinstance(split, str) or split not in self.splits:
            raise UserError(f"{place}: {self.split_key} must be one of {', '.join(self.splits)}, not {split!r}")
        text = text_of(row, place)
        if type(label) is not int or not 0 <= label < len(self.labels):
            raise UserError(f"{place}: label must be in 0..{len(self.labels) - 1}, not {label!r}")
        if self.group_of is not None:
            group = self.group_of(group, place)
        elif self.group_key and group is None:
            raise UserError(f"{place}: {self.group_key} must not be missing")
        return self.splits[split], text, label, "" if group is None else str(group)


def text_of(row: dict[str, Any], place: str) -> bytes:
    """The text of a row as UTF-8. Raises: UserError naming the place."""
    if not isinstance(text := row.get("text"), str) or not text:
        raise UserError(f"{place}: text must be a non-empty string, not {type(text).__name__}")
    return encode(text, place)


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield "file:line" and the object of each line of an `.xz` file. Raises: UserError naming file and line."""
    try:
        with lzma.open(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                place = f"{path}:{number}"
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise UserError(f"{place}: not JSON: {error}") from None
                if not isinstance(row, dict):
                    raise UserError(f"{place}: expected an object, not {type(row).__name__}")
                yield place, row
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist; --data-dir or LONGDOC_DATA must name the folder of the data sets"
        ) from None
    except (lzma.LZMAError, EOFError, OSError) as error:
        raise UserError(f"{path}: {error}") from None


def encode(text: str, place: str) -> bytes:
    """Encode a text as UTF-8. Raises: UserError naming the place."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: text is not valid Unicode: {error.reason}") from None
