"""Cells -> texts, labels, lists and series."""

import math
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
WORDS += ["None", "none", " NA ", r"\N", "NaT", " " * 100]


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
        ("x", "x"), (" x ", " x "), ("NA", "NA"), (None, ""), (math.nan, ""), (7, "7"), (-1, "-1"), (1.0, "1"),
        (-0.0, "0"), (1e15, "1000000000000000"), (Decimal("3"), "3"), (Decimal("3.00"), "3"), (True, "true"),
        (False, "false"), ("é".encode(), "é"),
    ],
)  # fmt: skip
def test_label_is_a_string(cell: object, label: str) -> None:
    assert read_value(cell, "a label") == label
    assert read_value(cell, "a label or number") == label


@pytest.mark.parametrize(("cell", "label"), [(0.25, "0.25"), (Decimal("0.5"), "0.5"), (1.0, "1"), (math.nan, "")])
def test_labels_may_be_fractions_where_degrees_are_taken(cell: object, label: str) -> None:
    assert read_value(cell, "a label or number") == label


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
        (True, "a string", "not a boolean"),
        ("\ud800", "a string", "not valid Unicode"),
        *((cell, "a label", "not a fraction") for cell in (0.5, math.inf, Decimal("0.5"))),
        (["x"], "a label", "not a list"),
        (date(2024, 1, 1), "a label", "not date"),
        ("\ud800", "a label", "not valid Unicode"),
        *((cell, "a list of strings", "a list of strings, not a string") for cell in ("a", '"a"', "[")),
        ([1], "a list of strings", "not a number"),
        (None, "a list of strings", "not null"),
        ("1", "a series", "not a number"),
        ("[" * 100_000, "a series", "not a string"),
        *((cell, "a series", "NaN or infinity; use null") for cell in ("[[NaN]]", {"a": [math.inf]})),
    ],
)
def test_error_says_what_was_found(cell: Any, kind: Kind, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_value(cell, kind)
