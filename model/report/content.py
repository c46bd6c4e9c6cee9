"""What a report consists of. The template shows it, and escapes all texts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    is_number: bool = True
    shade: float = 0.0
    """Strength of its colour, 0 to 1."""


@dataclass(frozen=True)
class Note:
    """A paragraph."""

    kind: ClassVar[str] = "note"

    text: str
    is_warning: bool = False


@dataclass(frozen=True)
class Table:
    """Rows below a head; the first cell of each row names it."""

    kind: ClassVar[str] = "table"

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Picture:
    """A picture with its description."""

    kind: ClassVar[str] = "picture"

    address: str
    """As an address that contains it (`data:`)."""
    caption: str


class Part(NamedTuple):
    """A part of a text."""

    text: str
    shade: float = 0.0
    """How much it speaks for the answer, -1 to 1; negative: against."""


@dataclass(frozen=True)
class Example:
    """A test example with its answer."""

    kind: ClassVar[str] = "example"

    title: str
    parts: Sequence[Part]
    """Parts of its text, in order; others are left out."""
    statement: str = ""
    """What was left out."""


@dataclass(frozen=True)
class Section:
    """A section of a report."""

    title: str
    blocks: Sequence[Note | Table | Picture | Example] = field(default_factory=tuple)


def named(name: str, *cells: Cell) -> list[Cell]:
    """A row of a table."""
    return [Cell(name, is_number=False), *cells]


def decimal(value: float | None) -> Cell:
    """A number with four decimals; empty without one."""
    return Cell("" if value is None else f"{value:.4f}")


def whole(value: int) -> Cell:
    """A count."""
    return Cell(f"{value:,}")
