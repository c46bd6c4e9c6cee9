"""The page is used with the keyboard, with a screen reader, and on a phone; axe-core checks the rules of WCAG."""

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Visit
from tests.support.paths import ROOT
from tests.support.server import Server
from tests.support.showcase import TABS, show

pytestmark = pytest.mark.page

AXE = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"
PHONE = {"width": 360, "height": 740}


def violations(page: Page) -> list[str]:
    """Return what axe-core finds, except what has little impact."""
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{one['id']} ({one['impact']}): {json.dumps([node['html'] for node in one['nodes']])}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Callable[..., Visit], server: Server, scheme: str) -> None:
    shown = visit(f"{server.url}/", color_scheme=scheme, reduced_motion="reduce")
    shown.context.add_init_script(path=AXE)
    shown.page.reload()
    assert {tab: violations(show(shown, tab)) for tab in TABS} == {tab: [] for tab in TABS}
    shown.open("Forecast")
    shown.page.get_by_text("Values as a table").click()
    shown.page.get_by_role("button", name="API key").click()
    shown.open("Rank").get_by_role("textbox", name="Query").fill("")
    shown.page.get_by_role("button", name="Rank").click()
    expect(shown.page.get_by_role("alert")).to_be_visible()
    assert violations(shown.page) == []


def test_axe_is_not_blind(shown: Visit) -> None:
    shown.context.add_init_script(path=AXE)
    shown.page.reload()
    shown.page.evaluate("document.body.append(document.createElement('button'))")
    assert [one.split()[0] for one in violations(shown.page)] == ["button-name"]


def test_tabs_are_changed_with_the_keyboard(shown: Visit) -> None:
    page = shown.page
    page.keyboard.press("Tab")
    expect(page.get_by_role("tab", name="Classify")).to_be_focused()
    for key, tab in (("ArrowRight", "Rank"), ("End", "Live"), ("ArrowRight", "Classify"), ("ArrowLeft", "Live")):
        page.keyboard.press(key)
        expect(page.get_by_role("tab", name=tab)).to_be_focused()
        expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
        expect(page.get_by_role("tabpanel")).to_have_attribute("id", f"panel-{tab.lower()}")
    assert page.evaluate("location.hash") == "#live"
    page.reload()
    expect(page.get_by_role("tabpanel")).to_have_attribute("id", "panel-live")


def test_document_is_classified_with_the_keyboard_alone(shown: Visit) -> None:
    page = shown.page
    field = page.get_by_role("textbox", name="Document")
    for _ in range(10):
        page.keyboard.press("Tab")
        if field.evaluate("field => field === document.activeElement"):
            break
    page.keyboard.type("A delight.")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".result h2")).to_have_text("positive")
    for name in ("Classify", "Choose a file"):
        page.keyboard.press("Tab")
        expect(page.get_by_role("tabpanel").get_by_role("button", name=name)).to_be_focused()


def test_every_tab_fits_a_phone(visit: Callable[..., Visit], server: Server) -> None:
    shown = visit(f"{server.url}/", viewport=PHONE, has_touch=True, is_mobile=True)
    for tab in TABS:
        page = show(shown, tab)
        width: int = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], tab
    shown.open("Classify")
    shown.page.get_by_role("slider").tap()
    expect(shown.page.get_by_role("slider")).not_to_have_attribute("aria-valuenow", "1")


def test_docs_are_reached_from_the_page_and_grouped_by_task(shown: Visit) -> None:
    page = shown.page
    page.get_by_role("link", name="API docs").click()
    groups = page.locator(".opblock-tag-section h3")
    expect(groups.first).to_contain_text("Classify documents and series")
    names = [text.split("\n")[0] for text in groups.all_inner_texts()]
    assert names[:5] == [
        *("Classify documents and series", "Score and rank documents", "Forecast time series", "Models", "Operations")
    ]
    page.go_back()
    expect(page.get_by_role("tab", name="Classify")).to_be_visible()
