"""Values that are not allowed, and their places."""

from artifact.errors import InvalidInput


def test_one_value_is_told_with_its_place() -> None:
    error = InvalidInput.at("series.a", "too short")
    assert (str(error), error.errors) == ("series.a: too short", [("series.a", "too short")])


def test_places_can_have_other_names() -> None:
    error = InvalidInput("both", [("a", "one"), ("b", "two")]).renamed(str.upper)
    assert (str(error), error.errors) == ("A: one; B: two", [("A", "one"), ("B", "two")])
