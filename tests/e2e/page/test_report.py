"""A report in a browser, opened as a file."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.commands import train
from tests.support.reports import ReadReport

pytestmark = pytest.mark.page


def test_report_shows_its_pictures_and_asks_for_nothing_else(browser: Browser, tmp_path: Path) -> None:
    path = train("synthetic", tmp_path, "training.epochs=1") / "report.html"
    page = browser.new_page()
    schemes, problems = set[str](), list[str]()
    page.on("request", lambda request: schemes.add(request.url.partition(":")[0]))
    page.on("console", lambda message: problems.append(message.text))
    page.goto(path.as_uri())
    widths = page.locator("img").evaluate_all("images => images.map(image => image.naturalWidth)")
    assert len(widths) == len(ReadReport(path).addresses) > 2
    assert min(widths) > 100
    assert schemes <= {"file", "data"}
    assert problems == []
    page.close()
