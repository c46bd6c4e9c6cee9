"""Figures in README and docs: those of a section that links a report stand in that report.

A table with the heads of a table of the report has its rows; of any other table each figure is one of the report, at
most with fewer digits. Reports are checked against their records in `benchmarks.lib.test_render`.
"""

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.lib import record
from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
RESULT = re.compile(r"benchmarks/results/(\w[\w-]*)(/report\.md|/chart\.png|\.md|\.png)")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)*(?:e[-+]\d+)?")


@dataclass(frozen=True)
class Section:
    """What stands below a heading, up to the next one."""

    page: Path
    heading: str
    text: str
    results: frozenset[str]
    """Whose report or chart the section links; if none, those of the section that it is part of."""

    def __str__(self) -> str:
        return f"{self.page.name}: {self.heading}"


Table = list[list[str]]
"""Heads, then rows."""


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
    """Whether a figure is another one, at most with fewer digits; both may be rounded already."""
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
    """Behind the point."""
    mantissa, _, exponent = figure.partition("e")
    return len(mantissa.partition(".")[2]) - int(exponent or 0)


def half_unit(figure: str) -> float:
    """Half a unit of the last digit."""
    return 0.5 * 10.0 ** -digits(figure)


def differences(tables_of_page: list[Table], reports: str) -> list[str]:
    """Rows and figures of tables that no report has."""
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


TOLD = [
    section
    for page in PAGES
    for section in sections(page)
    if section.results and section.results <= set(record.names())
]


@pytest.mark.parametrize("section", TOLD, ids=str)
def test_figures_of_tables_stand_in_the_reports_that_are_linked(section: Section) -> None:
    reports = "\n\n".join(report(name) for name in sorted(section.results))
    assert differences(list(tables(section.text)), reports) == []


def test_other_figures_are_found() -> None:
    measured = "| a | b |\n| - | -: |\n| x | 0.8745 ± 0.001 |\n| y | 120 |\n"
    same = "| a | b |\n| - | - |\n| x | 0.8745 ± 0.001 |\n"
    rounded = "| of | it |\n| - | - |\n| x 7 | 0.875, 0.87, 120, 1 |\n"
    wrong = "| of | it |\n| - | - |\n| x | 0.876, 121 |\n"
    assert differences(list(tables(same)), measured) == []
    assert differences(list(tables(rounded)), measured) == []
    assert differences(list(tables(same.replace("0.8745", "0.8746"))), measured) == ["x | 0.8746 ± 0.001"]
    assert differences(list(tables(wrong)), measured) == ["0.876 of x | 0.876, 121", "121 of x | 0.876, 121"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_benchmarks_lead_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "benchmarks" in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_that_pages_name_exist(page: Path) -> None:
    named = set(re.findall(r"benchmarks(?:\.[a-z_]+)+", page.read_text()))
    assert sorted(name for name in named if importlib.util.find_spec(name) is None) == []
