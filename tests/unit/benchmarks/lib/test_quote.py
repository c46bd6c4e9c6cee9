"""Figures of reports in README and docs."""

from pathlib import Path

import pytest

from benchmarks.lib import quote
from tests.support.paths import ROOT

REPORT = """# Servers

| server | answers/s | p99, ms |
| ------ | --------: | ------: |
| ours   |       501 |      18 |
| other  |       287 |      17 |

| server | late |
| ------ | ---: |
| ours   |   0% |
| other  |  65% |

## By length

| server | bytes | answers/s |
| ------ | ----: | --------: |
| ours   |   256 |       900 |
| ours   | 4,096 |       400 |
"""


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "report.md").write_text(REPORT)
    monkeypatch.setattr(quote, "RESULTS", tmp_path)


@pytest.mark.parametrize("page", quote.PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_of_pages_are_those_of_the_reports(page: Path) -> None:
    """`python -m benchmarks.lib.quote` writes them."""
    assert quote.quoted(page.read_text()) == page.read_text()


@pytest.mark.parametrize(
    ("options", "table"),
    [
        ("", "| server | answers/s | p99, ms |\n| --- | --: | --: |\n| ours | 501 | 18 |\n| other | 287 | 17 |\n"),
        ("; rows: other", "| server | answers/s | p99, ms |\n| --- | --: | --: |\n| other | 287 | 17 |\n"),
        (
            "; columns: late | p99, ms",
            "| server | late | p99, ms |\n| --- | --: | --: |\n| ours | 0% | 18 |\n| other | 65% | 17 |\n",
        ),
        (
            "; section: By length; columns: answers/s",
            "| server | answers/s |\n| --- | --: |\n| ours | 900 |\n| ours | 400 |\n",
        ),
    ],
)
@pytest.mark.usefixtures("results")
def test_table_is_replaced(options: str, table: str) -> None:
    page = "Before.\n\n<!-- report: servers{} -->\n\n{}\n<!-- end -->\n\nAfter.\n"
    assert quote.quoted(page.format(options, "| old |\n")) == page.format(options, table)


@pytest.mark.usefixtures("results")
def test_figure_is_replaced_by_the_cell() -> None:
    page = 'Up to [{}](../benchmarks/results/servers/report.md "ours > 4,096 > answers/s") in [all](other.md).'
    assert quote.quoted(page.format("old")) == page.format("400")


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<!-- report: servers; rows: none -->\n<!-- end -->", "no row 'none'; there are: ours, other"),
        ("<!-- report: servers; columns: none -->\n<!-- end -->", "no column 'none'"),
        ("<!-- report: servers; section: None -->\n<!-- end -->", "no table in section 'None'"),
        ('[1](benchmarks/results/servers/report.md "ours > none")', "no cell 'ours > none'"),
        ('[1](benchmarks/results/servers/report.md "ours > bytes")', "2 rows begin with ours"),
    ],
)
@pytest.mark.usefixtures("results")
def test_unknown_table_or_cell_is_an_error(page: str, message: str) -> None:
    with pytest.raises(LookupError, match=message):
        quote.quoted(page)
