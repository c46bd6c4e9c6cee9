"""Fixtures of the page: one browser for all tests, and visits of the page of a server."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.browser import Visit, chromium
from tests.support.server import Server


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Open the page at an address, with options of the browser's context; all visits are checked at the end."""
    visits: list[Visit] = []

    def open_page(url: str, **options: object) -> Visit:
        visits.append(Visit(browser, url, **options))
        return visits[-1]

    yield open_page
    for visit in visits:
        visit.end()


@pytest.fixture
def shown(visit: Callable[..., Visit], server: Server) -> Visit:
    """The page of the shared server."""
    return visit(f"{server.url}/")
