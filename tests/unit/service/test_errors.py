"""Errors of the service."""

import pytest

from artifact.errors import InvalidInput
from service.errors import NotReady, rename_places


def test_places_of_wrong_values_are_renamed() -> None:
    with pytest.raises(InvalidInput) as caught, rename_places(lambda place: f"a.{place}"):
        raise InvalidInput("two values are wrong", [("b", "too long"), ("c", "too short")])
    assert str(caught.value) == "a.b: too long; a.c: too short"
    assert caught.value.errors == [("a.b", "too long"), ("a.c", "too short")]
    assert caught.value.__suppress_context__


def test_other_errors_are_unchanged() -> None:
    error = NotReady("not yet")
    with pytest.raises(NotReady) as caught, rename_places(lambda place: f"a.{place}"):
        raise error
    assert caught.value is error
