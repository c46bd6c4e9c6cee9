"""The page on security names a test for each sentence about a defense; the test exists."""

import re

import pytest

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "operate" / "security.md"
TABLE = PAGE.read_text().partition("## Defenses")[2].partition("\n## ")[0]
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ")][2:]
LINK = re.compile(r"\[([^\]]+)\]\((\.\./\.\./tests/[^)]+)\)")


@pytest.mark.parametrize("row", ROWS)
def test_defense_has_a_test(row: str) -> None:
    _, _, _, tests, _ = re.split(r" ?\| ?", row)
    named = LINK.findall(tests)
    assert ", ".join(f"[{name}]({path})" for name, path in named) == tests
    for name, path in named:
        assert re.search(rf"def test_{name.replace(' ', '_')}\(", (PAGE.parent / path).read_text()), name
