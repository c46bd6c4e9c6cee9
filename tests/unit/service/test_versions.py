"""Which versions a version policy selects."""

import pytest

from service.versions import SYNTAX, VersionPolicy


@pytest.mark.parametrize(
    ("text", "wanted", "takes_one"),
    [
        ("latest", [1, 2, 10, 9], True),
        ("all", [1, 2, 10, 9], False),
        ("a:2,9", [2, 9], False),
        ("a:2,9;b:1", [2, 9], False),
        (" a : 9 , 2 ; b : 1", [2, 9], False),
        ("a:3", [], False),
        ("b:1", [1, 2, 10, 9], True),
    ],
)
def test_policy_selects_versions(text: str, wanted: list[int], takes_one: bool) -> None:
    policy = VersionPolicy.parse(text)
    assert [version for version in (1, 2, 10, 9) if policy.selects("a", version)] == wanted
    assert policy.takes_one("a") == takes_one


@pytest.mark.parametrize(("text", "tried"), [("latest", [10, 9]), ("all", [10, 9, 2, 1])])
def test_highest_version_is_tried_first(text: str, tried: list[int]) -> None:
    """If the policy serves one version, until one is kept."""
    kept, found = list[int](), list[int]()
    for version in VersionPolicy.parse(text).in_turn("a", {1, 2, 10, 9}, kept):
        found.append(version)
        if version < 10:
            kept.append(version)
    assert found == tried


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
