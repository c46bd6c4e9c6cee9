"""Each tab of the page with its example."""

from playwright.sync_api import Page, expect

from tests.support.browser import Visit

EXAMPLES = {
    "Classify": ("a festival diary of 100 KB", ".result h2"),
    "Rank": ("abstracts of papers", ".ranking li"),
    "Forecast": ("a week of a transformer", ".charts canvas"),
    "Models": (None, ".details .reliability"),
    "Live": (None, ".charts.live canvas"),
}
"""Tab -> the example to click on, and what is shown then."""
TABS = tuple(EXAMPLES)


def show(visit: Visit, tab: str) -> Page:
    """Open a tab, click on its example, wait for the answer and return the page."""
    page = visit.open(tab)
    example, shown = EXAMPLES[tab]
    if example is not None:
        page.get_by_role("button", name=example).click()
    expect(page.get_by_role("tabpanel").locator(shown).first).to_be_visible()
    return page
