"""The documentation pages in a browser: below a path prefix, under their policy, and not in frames of other pages."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Visit
from tests.support.proxy import proxy
from tests.support.server import Server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.page

LOGO = "https://cdn.redoc.ly/redoc/logo-mini.svg"
"""An image that ReDoc asks for; the policy blocks it."""
ATTACK = """
const script = document.createElement("script")
script.textContent = "window.attacked = true"
document.body.append(script)
"""


@pytest.mark.parametrize("path", ["/v1/classify", "/v1/rank"])
def test_swagger_ui_sends_requests_below_a_path_prefix(visit: Callable[..., Visit], server: Server, path: str) -> None:
    with proxy(server.url, "/models/text") as url:
        shown = visit(f"{url}docs")
        block = shown.page.locator(".opblock", has_text=path)
        block.click()
        block.get_by_role("button", name="Try it out").click()
        block.get_by_role("button", name="Execute").click()
        expect(block.locator(".live-responses-table")).to_contain_text('"results"')
        expect(block.locator(".request-url")).to_contain_text(f"{url}{path[1:]}")
        assert all(request.startswith((url, "data:")) for request in shown.requests)


def test_redoc_searches_below_a_path_prefix(visit: Callable[..., Visit], server: Server) -> None:
    with proxy(server.url, "/models/text") as url:
        shown = visit(f"{url}redoc")
        shown.page.get_by_placeholder("Search...").fill("forecast")
        expect(shown.page.get_by_role("search")).to_contain_text("Forecast")
        wait_until(lambda: any(LOGO in complaint for complaint in shown.complaints))
        shown.complaints[:] = [text for text in shown.complaints if LOGO not in text and "OpenAPI Sampler" not in text]
        shown.requests.remove(LOGO)


@pytest.mark.parametrize("path", ["", "docs", "redoc"])
def test_page_runs_no_script_that_is_inserted(browser: Browser, server: Server, path: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{server.url}/{path}")
        page.evaluate(ATTACK)
        assert page.evaluate("window.attacked") is None


@pytest.mark.parametrize("path", ["", "docs", "redoc"])
def test_page_of_another_origin_cannot_frame_the_page(browser: Browser, server: Server, path: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.set_content(f'<iframe src="{server.url}/{path}"></iframe>', wait_until="load")
        (frame,) = page.main_frame.child_frames
        assert frame.url.startswith("chrome-error://")
