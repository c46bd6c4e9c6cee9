"""Inputs that cannot be sent."""

import pytest
from longdoc_client import operations


def test_one_text_is_not_a_list_of_its_characters() -> None:
    with pytest.raises(TypeError, match=r"documents: expected several, got one \(str\)"):
        operations.classify_each("a text", {})
    with pytest.raises(TypeError, match=r"documents: expected several, got one \(str\)"):
        operations.rank("query", "a text", {})


def test_text_in_a_series_is_left_to_the_service() -> None:
    assert operations.without_nan({"a": ["1.0", float("nan")]}) == {"a": ["1.0", None]}
