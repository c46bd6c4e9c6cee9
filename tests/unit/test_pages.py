"""Figures in README and docs occur in the report that their section links.

If a table has the header of a table in the report, its rows must be rows of that table. In any other table each figure
must be a figure of the report, possibly rounded. `benchmarks.lib.test_render` checks reports against their records.
"""

import ast
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.lib import record
from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
RESULT = re.compile(r"benchmarks/results/(\w[\w-]*)(/report\.md|/chart\.png|\.md|\.png)")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)*(?:e[-+]\d+)?")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Section:
    """The text below a heading, up to the next heading."""

    page: Path
    heading: str
    text: str
    results: frozenset[str]
    """Names of the reports or charts that the section links, or those that its parent section links."""

    def __str__(self) -> str:
        return f"{page_id(self.page)}: {self.heading}"


Table = list[list[str]]
"""The header row, then the other rows."""


def sections(page: Path) -> Iterator[Section]:
    above: dict[int, frozenset[str]] = {0: frozenset()}
    for hashes, heading, text in re.findall(r"^(#+) (.+)\n((?:(?!#+ ).*\n)*)", page.read_text(), re.MULTILINE):
        level = len(hashes)
        own = frozenset(match[1] for match in RESULT.finditer(text))
        above = {of: results for of, results in above.items() if of < level}
        above[level] = own or above[max(above)]
        yield Section(page, heading, text, above[level])


def tables(text: str) -> Iterator[Table]:
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        yield [lines[0], *lines[2:]]


def figures(cells: list[str]) -> list[str]:
    without_links = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell) for cell in cells]
    return [found.replace(",", "") for cell in without_links for found in NUMBER.findall(cell)]


def is_rounded(figure: str, exact: str) -> bool:
    """Return whether a figure equals another one or rounds it; both may be rounded already."""
    if figure == exact:
        return True
    if digits(figure) >= digits(exact):
        return False
    try:
        distance = abs(float(figure) - float(exact))
    except ValueError:  # a version
        return False
    return distance <= (half_unit(figure) + half_unit(exact)) * (1 + 1e-9)


def digits(figure: str) -> int:
    """Return the number of digits after the decimal point."""
    mantissa, _, exponent = figure.partition("e")
    return len(mantissa.partition(".")[2]) - int(exponent or 0)


def half_unit(figure: str) -> float:
    """Return half a unit of the last digit."""
    return 0.5 * 10.0 ** -digits(figure)


def differences(tables_of_page: list[Table], reports: str) -> list[str]:
    """Return rows and figures of tables that no report has."""
    known: dict[tuple[str, ...], list[list[str]]] = {}
    for heads, *rows in tables(reports):
        known.setdefault(tuple(heads), []).extend(rows)
    of_reports = set(figures(reports.splitlines()))
    found = []
    for heads, *rows in tables_of_page:
        if tuple(heads) in known:
            found += [" | ".join(row) for row in rows if row not in known[tuple(heads)]]
            continue
        for row in rows:
            found += [
                f"{figure} of {' | '.join(row)}"
                for figure in figures(row[1:])
                if not any(is_rounded(figure, exact) for exact in of_reports)
            ]
    return found


def report(name: str) -> str:
    return (record.RESULTS / name / "report.md").read_text()


SECTIONS = [
    section
    for page in PAGES
    for section in sections(page)
    if section.results and section.results <= set(record.names())
]


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_figures_of_tables_occur_in_the_linked_reports(section: Section) -> None:
    reports = "\n\n".join(report(name) for name in sorted(section.results))
    assert differences(list(tables(section.text)), reports) == []


def test_wrong_figures_are_detected() -> None:
    measured = "| a | b |\n| - | -: |\n| x | 0.8745 ± 0.001 |\n| y | 120 |\n"
    same = "| a | b |\n| - | - |\n| x | 0.8745 ± 0.001 |\n"
    rounded = "| of | it |\n| - | - |\n| x 7 | 0.875, 0.87, 120, 1 |\n"
    wrong = "| of | it |\n| - | - |\n| x | 0.876, 121 |\n"
    assert differences(list(tables(same)), measured) == []
    assert differences(list(tables(rounded)), measured) == []
    assert differences(list(tables(same.replace("0.8745", "0.8746"))), measured) == ["x | 0.8746 ± 0.001"]
    assert differences(list(tables(wrong)), measured) == ["0.876 of x | 0.876, 121", "121 of x | 0.876, 121"]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_to_benchmarks_have_targets(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "benchmarks" in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_paper_to_code_names_every_public_class_once() -> None:
    page = (ROOT / "docs" / "research" / "paper-to-code.md").read_text()
    modules = (ast.parse(path.read_text()) for path in (ROOT / "model" / "nn").rglob("*.py"))
    classes = [node.name for module in modules for node in module.body if isinstance(node, ast.ClassDef)]
    public = [name for name in classes if not name.startswith("_")]
    assert {name: page.count(f"`{name}`") for name in public} == dict.fromkeys(public, 1)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_programs_named_in_pages_exist(page: Path) -> None:
    named = set(re.findall(r"benchmarks(?:\.[a-z0-9_]+)+", page.read_text()))
    assert sorted(name for name in named if importlib.util.find_spec(name) is None) == []
