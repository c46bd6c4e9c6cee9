"""Cells -> texts, labels, lists and series."""

import math
import re
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from artifact.tables.values import Kind, is_missing, read_value

WORDS = [
    "",
    " ",
    "\t",
    "\u00a0",
    "NaN",
    "nan",
    "-nan",
    "NA",
    "na",
    "N/A",
    "n/a",
    "<NA>",
    "#N/A",
    "null",
    "NULL",
    "None",
]
WORDS += ["none", " NA ", r"\N", "NaT", " " * 100]


@pytest.mark.parametrize("cell", [None, math.nan, *WORDS])
def test_missing_values_have_many_words(cell: object) -> None:
    assert is_missing(cell)
    assert read_value(cell, "a string") is None


@pytest.mark.parametrize(
    "cell", ["0", "-", "?", "x", "nane", "no", "unknown", "NA NA", "n a", " " * 99 + "x", 0, 0.0, False]
)
def test_other_cells_are_values(cell: object) -> None:
    assert not is_missing(cell)


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        ("x", "x"),
        (" x ", " x "),
        ("NA", "NA"),
        (None, ""),
        (math.nan, ""),
        (7, "7"),
        (-1, "-1"),
        (1.0, "1"),
        (-0.0, "0"),
        (1e15, "1000000000000000"),
        (Decimal("3"), "3"),
        (Decimal("3.00"), "3"),
        (True, "true"),
        (False, "false"),
        ("é".encode(), "é"),
    ],
)
def test_label_is_a_string(cell: object, label: str) -> None:
    assert read_value(cell, "a label") == label


@pytest.mark.parametrize(
    ("cell", "kind", "value"),
    [
        ("é", "a string", "é".encode()),
        (" NA x", "a string", b" NA x"),
        (b"\xff", "a string", b"\xff"),
        (b"", "a string", None),
        (["a", "é", b"\xff", ""], "a list of strings", [b"a", "é".encode(), b"\xff", b""]),
        ('["a", "b"]', "a list of strings", [b"a", b"b"]),
        ([[1, None]], "a series", [[1, None]]),
        ('{"a": [1, null, 2.5]}', "a series", {"a": [1, None, 2.5]}),
        (["x"], "a series", ["x"]),
    ],
)
def test_value_is_read(cell: Any, kind: Kind, value: object) -> None:
    assert read_value(cell, kind) == value


@pytest.mark.parametrize(
    ("cell", "kind", "message"),
    [
        (5, "a string", "must be a string, not a number"),
        (["x"], "a string", "must be a string, not a list"),
        (True, "a string", "must be a string, not a boolean"),
        ("\ud800", "a string", "is not valid Unicode: surrogates not allowed"),
        (0.5, "a label", "must be a string, an integer or a boolean, not a fraction"),
        (math.inf, "a label", "must be a string, an integer or a boolean, not a fraction"),
        (Decimal("0.5"), "a label", "must be a string, an integer or a boolean, not a fraction"),
        (["x"], "a label", "must be a string, an integer or a boolean, not a list"),
        (date(2024, 1, 1), "a label", "must be a string, an integer or a boolean, not date"),
        ("\ud800", "a label", "is not valid Unicode: surrogates not allowed"),
        ("a", "a list of strings", "must be a list of strings, not a string"),
        ('"a"', "a list of strings", "must be a list of strings, not a string"),
        ("[", "a list of strings", "must be a list of strings, not a string"),
        ([1], "a list of strings", "must be a string, not a number"),
        (None, "a list of strings", "must be a list of strings, not null"),
        ("1", "a series", "must be a list or an object, not a number"),
        ("[" * 100_000, "a series", "must be a list or an object, not a string"),
        ("[[NaN]]", "a series", "must not contain NaN or infinity; use null for a missing value"),
        ({"a": [math.inf]}, "a series", "must not contain NaN or infinity; use null for a missing value"),
    ],
)
def test_error_says_what_was_found(cell: Any, kind: Kind, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_value(cell, kind)
