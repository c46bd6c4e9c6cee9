"""Suites of tests with a marker of their own."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SUITES = {
    "clients": "tests/e2e",
    "generated": "tests/e2e",
    "kserve": "tests/e2e",
    "ray": "tests/e2e",
    "page": "tests/e2e/page",
    "proxy": "tests/e2e",
}
"""Marker -> folder from which the Makefile runs its tests."""


@pytest.mark.parametrize("marker", SUITES)
def test_marked_tests_are_in_the_folder_of_their_suite(marker: str) -> None:
    """Elsewhere, neither `make test` nor the command of the suite would run them."""
    folder, pattern = Path(SUITES[marker]), re.compile(rf"pytest\.mark\.{marker}\b")
    marked = [path for path in ROOT.glob("tests/**/*.py") if pattern.search(path.read_text())]
    assert marked
    assert [path for path in marked if not path.is_relative_to(ROOT / folder)] == []
    _, _, rest = (ROOT / "Makefile").read_text().partition(f"\ntest-{marker}:")
    commands, _, _ = rest.partition("\n\n")
    assert commands.endswith(f" {folder}")
