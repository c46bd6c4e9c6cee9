"""A browser that visits the page of a server, and what it did there."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.support.waiting import PATIENCE_S

expect.set_options(timeout=PATIENCE_S * 1000)

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
PERMISSIONS = ["clipboard-read", "clipboard-write"]
EXPECTED = ("Failed to load resource: the server responded with a status of", "Failed to load resource: net::ERR_")
"""How the browser's own messages about failed requests begin; the page shows such failures itself."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the installed Chromium. Raises: AssertionError if there is none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    assert path is not None, f"install one of {', '.join(NAMES)}; `make test-page` does"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


class Visit:
    """One visit of a page, in a context of its own.

    Args:
        browser: the browser.
        url: address of the page.
        options: the options of the context, such as the size of the window.

    """

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.requests: list[str] = []
        """Addresses of all requests."""
        self.complaints: list[str] = []
        """Errors of scripts, and messages of the browser, such as those about the policy."""
        self.context: BrowserContext = browser.new_context(permissions=PERMISSIONS, **options)
        self.context.set_default_timeout(PATIENCE_S * 1000)
        self.context.on("request", self._note_request)
        self.page: Page = self.context.new_page()
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(url)

    def _note_request(self, request: Request) -> None:
        self.requests.append(request.url)

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(EXPECTED):
            self.complaints.append(message.text)

    def end(self) -> None:
        """Check that nothing but the service was asked and that nothing failed unnoticed."""
        self.context.close()
        hosts = {urlsplit(url).netloc for url in self.requests if not url.startswith(("blob:", "data:"))}
        assert hosts == {urlsplit(self.url).netloc}
        assert self.complaints == []

    def open(self, tab: str) -> Page:
        """Click on a tab and return the page."""
        self.page.get_by_role("tab", name=tab).click()
        return self.page

    def copied(self, button: str) -> str:
        """Click on a button of the visible tab that copies, and return the text."""
        self.page.get_by_role("tabpanel").get_by_role("button", name=button).click()
        text: str = self.page.evaluate("navigator.clipboard.readText()")
        return text


def run_curl(command: str, folder: Path, **variables: str) -> Any:
    """Run a copied curl command and return the JSON that it prints."""
    return json.loads(_run(["bash", "-c", command], folder, variables))


def run_python(program: str, folder: Path, **variables: str) -> Any:
    """Run a copied Python program and return the value that it prints."""
    return ast.literal_eval(_run([sys.executable, "-c", program], folder, variables))


def _run(command: list[str], folder: Path, variables: dict[str, str]) -> str:
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True, text=True).stdout
