"""Labelled recordings: how files hold them, and what is read of them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from artifact.arrays import Doubles
from artifact.errors import InputError
from artifact.tables.series import number_of
from artifact.tables.values import is_missing

VALUE = "value"
"""Channel of recordings that have only one, without a name."""
MOST_VALUES = 100_000_000
"""Maximum number of values of all recordings of a file or folder; they take 8 bytes each."""


@dataclass(frozen=True)
class RecordingLayout:
    """How files hold recordings."""

    id_column: str = ""
    """Column with the recording of each row; default: one of `ID_NAMES`."""
    time_column: str = ""
    """Default: the column that holds times."""
    usual_id: str = ""
    usual_time: str = ""
    """Columns that training read as these; the default of a file that has them."""
    label_column: str = "label"
    group_column: str = ""
    """Column with the group of each recording. An empty name stands for no column."""
    needs_groups: bool = True
    """Whether a file without the column of the groups is an error."""
    split_column: str = ""
    """Column that assigns recordings to splits; a file may lack it."""
    channels: tuple[str, ...] = ()
    """Columns that are channels; default: all columns of numbers that nothing else names."""
    ignore: tuple[str, ...] = ()
    """Columns that are left out."""
    rate: float | None = None
    """Steps per second of recordings without times."""
    encoding: str = ""
    """Encoding of a text without a byte order mark."""
    day_first: bool = False
    """Whether dates such as 31/12/2024 begin with the day."""
    needs_labels: bool = True
    """Whether recordings without labels are an error."""


PLAIN = RecordingLayout()
"""All columns are found by their names and cells."""


@dataclass(frozen=True)
class LabelledRecording:
    """A recording of a file."""

    place: str
    """File and line, or the file."""
    name: str
    """Id of the recording, its number in the file, or its file in a folder."""
    values: Doubles
    """(steps, channels), NaN where a value is missing."""
    label: str = ""
    """Without the spaces around it; empty if missing. The same holds for group and split."""
    group: str = ""
    split: str = ""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the values."""
        steps = len(self.values).to_bytes(8, "little")
        values = np.where(np.isnan(self.values), np.nan, self.values) + 0.0  # one NaN, and one zero
        return hashlib.sha256(steps + values.tobytes()).digest()


@dataclass(frozen=True)
class Contents:
    """Recordings as they are in a file."""

    channels: tuple[str, ...]
    recordings: Sequence[LabelledRecording]
    times: Sequence[Doubles] | None = None
    """Seconds of the steps of each recording, which rise; None if there are no times."""
    notes: tuple[str, ...] = ()
    """What was left out."""
    counts_steps: bool = False
    """Whether the times count the steps, instead of seconds."""


def parse_values(cells: Sequence[str], place: str) -> Doubles:
    """Numbers of cells, NaN where one is `?` or missing.

    Raises: InputError naming the place and the first cell that is not a finite number.
    """
    text = "".join(cells)
    if text.isascii() and "_" not in text:  # Python reads 1_000, too
        try:
            values = np.array([float(cell) for cell in cells])
        except ValueError:
            pass
        else:
            if not np.isinf(values).any():
                return values
    return np.array([_value(cell, number, place) for number, cell in enumerate(cells, 1)], np.float64)


def _value(cell: str, number: int, place: str) -> float:
    if cell.strip() == "?" or is_missing(cell):
        return np.nan
    value = number_of(cell, has_commas=False)
    if value is None:
        raise InputError(
            f"{place}, value {number}: expected a finite number, or ? for a missing one, not {cell[:40]!r}"
        )
    return value
