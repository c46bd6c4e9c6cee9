"""What the readers of all formats have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

Cells = tuple[Any, ...]
"""Values of some columns of a row: strings in CSV and TSV, values of JSON or Parquet, Absent for a missing key."""


class Absent(NamedTuple):
    """Stands for a column that a row of JSON Lines does not have."""

    columns: tuple[str, ...]
    """Columns that the row has."""


class BadRow(NamedTuple):
    """A row that cannot be read, and why."""

    reason: str


class Table(ABC):
    """A file of rows that is open for reading."""

    columns: tuple[str, ...] | None
    """Names of the columns; None if each row has its own."""

    encoding = ""
    """Codec of binary cells, or RAW; see `artifact.encodings.decode`."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Name of the file in locations and errors."""
        self.place = name
        """Location of the names of the columns."""
        self.hint = ""
        """What an error about missing columns adds."""

    @abstractmethod
    def rows(self, columns: Sequence[str]) -> Iterator[tuple[str, Cells | BadRow]]:
        """Location and cells of each row that is not blank, once. Locations are file:line, for Parquet file:row.

        Raises: InputError if the rest of the file cannot be read.
        """

    @abstractmethod
    def position(self) -> int:
        """Bytes of the file read so far, compressed ones if it is compressed."""
