"""Errors about invalid values and their locations."""

from artifact.errors import InvalidInput


def test_error_has_the_value_and_its_location() -> None:
    error = InvalidInput.at("series.a", "too short")
    assert (str(error), error.errors) == ("series.a: too short", [("series.a", "too short")])


def test_locations_can_be_renamed() -> None:
    error = InvalidInput("both", [("a", "one"), ("b", "two")]).renamed(str.upper)
    assert (str(error), error.errors) == ("A: one; B: two", [("A", "one"), ("B", "two")])
