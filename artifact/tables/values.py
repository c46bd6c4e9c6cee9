"""Cells -> texts, labels, lists and series."""

import ast
import json
import math
from decimal import Decimal
from typing import Any, Literal

from artifact.encodings import decode
from artifact.tables.lines import KINDS

Kind = Literal["a string", "a label", "a label or number", "labels", "a list of strings", "a series"]
"""What a task reads from a cell."""
LABELS: frozenset[Kind] = frozenset(("a label", "a label or number", "labels"))
"""Kinds of labels."""
MISSING = frozenset(("", "nan", "-nan", "na", "n/a", "<na>", "#na", "#n/a", "#n/a n/a", "null", "none", "nat", r"\n"))
r"""Words for a missing value, in lower case: those of pandas, and the `\N` of databases."""
LONGEST_WORD = 40
"""Longer cells are no word for a missing value, whatever spaces are around it."""
CellText = bytes | None
"""A text in UTF-8, or raw bytes; None if it is missing."""


def is_missing(cell: Any) -> bool:
    """Whether a cell has no value: null, NaN, only spaces, or a word of MISSING in upper or lower case."""
    if isinstance(cell, str):
        return cell.isspace() if len(cell) > LONGEST_WORD else cell.strip().lower() in MISSING
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def read_value(cell: Any, kind: Kind, encoding: str = "") -> Any:
    """Read a cell; `encoding` is that of bytes, see `artifact.encodings.decode`.

    Returns a CellText; a label as it is written, with the spaces around it, empty for null; for labels also a tuple of
    them, if the cell is a list; a list of bytes; or a series as it is given.

    Raises: ValueError; the message says what was found instead.
    """
    match kind:
        case "a string":
            return None if is_missing(cell) else _bytes(cell, encoding) or None
        case "a label":
            return _label(cell)
        case "a label or number":
            is_fraction = isinstance(cell, float | Decimal) and math.isfinite(cell) and cell != int(cell)
            return str(cell) if is_fraction else _label(cell)
        case "labels":
            found = _list_in(cell)
            return _label(cell) if found is None else tuple(_label(part) for part in found)
        case "a list of strings":
            return [_bytes(part, encoding) for part in _parsed(cell, list)]
        case "a series":
            return _finite(_parsed(cell, list | dict))


def _bytes(cell: Any, encoding: str = "") -> bytes:
    if isinstance(cell, bytes):  # in Parquet
        return decode(cell, encoding)
    if not isinstance(cell, str):
        raise ValueError(f"must be a string, not {_kind(cell)}")
    try:
        return cell.removeprefix("\ufeff").encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"is not valid Unicode: {error.reason}") from None


def _label(cell: Any) -> str:
    """A label. 1.0 is 1: integers beside missing values become floats in pandas."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float | Decimal) and math.isfinite(cell) and cell == int(cell):
        return str(int(cell))
    if not isinstance(cell, str | bytes | int):
        found = "a fraction; regression is not offered" if isinstance(cell, float | Decimal) else _kind(cell)
        raise ValueError(f"must be a string, an integer or a boolean, not {found}")
    return _bytes(cell if isinstance(cell, bytes) else str(cell)).decode(errors="replace")


def _list_in(cell: Any) -> list[Any] | None:
    """The list of a cell, in CSV and TSV from its JSON or as Python writes it; None if it holds none."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        for parse in (json.loads, ast.literal_eval):
            try:
                cell = parse(cell.strip())
                break
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    return cell if isinstance(cell, list) else None


def _parsed(cell: Any, kind: Any) -> Any:
    """A list or object, in CSV and TSV from its JSON."""
    try:
        value = json.loads(cell) if isinstance(cell, str) else cell
    except (ValueError, RecursionError):
        value = cell
    if not isinstance(value, kind):
        raise ValueError(
            f"must be {'a list of strings' if kind is list else 'a list or an object'}, not {_kind(value)}"
        )
    return value


def _finite(series: Any) -> Any:
    """A series without NaN and infinity, which Python reads in JSON; models check everything else."""
    for channel in series.values() if isinstance(series, dict) else series:
        if isinstance(channel, list) and not all(math.isfinite(value) for value in channel if isinstance(value, float)):
            raise ValueError("must not contain NaN or infinity; use null for a missing value")
    return series


def _kind(value: Any) -> str:
    return KINDS.get(type(value), type(value).__name__)
