"""Which versions a version policy selects."""

import pytest

from service.versions import SYNTAX, VersionPolicy

THERE = [1, 2, 10, 9]


@pytest.mark.parametrize(
    ("text", "wanted", "takes_one"),
    [
        ("latest", [10, 9, 2, 1], True), ("all", [10, 9, 2, 1], False), ("a:2,9", [9, 2], False), ("a:2", [2], False),
        ("a:2,9;b:1", [9, 2], False), (" a : 9 , 2 ; b : 1", [9, 2], False), ("a:3", [], False),
        ("b:1", [10, 9, 2, 1], True),
    ],
)  # fmt: skip
def test_policy_selects_versions_highest_first(text: str, wanted: list[int], takes_one: bool) -> None:
    policy = VersionPolicy.parse(text)
    assert (policy.candidates("a", THERE), policy.takes_one("a")) == (wanted, takes_one)


@pytest.mark.parametrize(
    "text",
    [
        "", "newest", "ALL", "a", "a:", ":1", "a:0", "a:01", "a:-1", "a:1.0", "a:x", "a:1,", "a:1;", "a:1:2", "a:²",
        "a:1 2",
    ],
)  # fmt: skip
def test_error_about_an_invalid_policy_shows_the_syntax(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{SYNTAX}$"):
        VersionPolicy.parse(text)


def test_model_listed_twice_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"^a is listed twice; give latest, all, or "):
        VersionPolicy.parse("a:1;b:1;a:2")
