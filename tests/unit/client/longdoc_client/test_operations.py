"""What is sent, and inputs that cannot be."""

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from longdoc_client import operations


def test_one_text_is_not_a_list_of_its_characters() -> None:
    with pytest.raises(TypeError, match=r"documents: expected several, got one \(str\)"):
        operations.classify_each("a text", {})
    with pytest.raises(TypeError, match=r"documents: expected several, got one \(str\)"):
        operations.rank("query", "a text", {})


def test_text_in_a_series_is_left_to_the_service() -> None:
    assert operations.without_nan({"a": ["1.0", float("nan")]}) == {"a": ["1.0", None]}


def test_numbers_of_numpy_and_columns_are_sent_as_numbers() -> None:
    series: Any = {"a": pl.Series([1.0, None]), "b": np.array([np.nan, 2.0], np.float32)}
    call = operations.forecast(series, {"horizon": np.int64(3), "quantiles": np.array([0.5])})
    assert json.loads(call.lines[0]) == {
        "series": {"a": [1.0, None], "b": [None, 2.0]},
        "horizon": 3,
        "quantiles": [0.5],
    }
    with pytest.raises(TypeError, match="expected a value that JSON has, got bytes"):
        operations.rank("q", ["a", b"b"], {})  # type: ignore[list-item]
