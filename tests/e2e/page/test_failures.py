"""What the page shows if a document is too long, a key is missing, the service is full, or it is gone."""

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from artifact.cores import cpu_count
from tests.support.browser import Visit, run_curl, run_python
from tests.support.proxy import proxy
from tests.support.server import ControlledServer, Server

pytestmark = pytest.mark.page

KEY = "a key with 'quotes'"


def classify(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Document").fill(text)
    page.get_by_role("button", name="Classify").click()


def test_document_that_is_too_long(visit: Callable[..., Visit], start: Callable[..., Server], tmp_path: Path) -> None:
    server = start("--max-document-bytes", "2000", "--drain-delay-s", "0", "--models", "imdb-s3")
    shown = visit(f"{server.url}/")
    classify(shown.page, "long " * 401)
    alert = shown.page.get_by_role("alert")
    expect(alert).to_contain_text("413")
    expect(alert).to_contain_text("the document has 2005 bytes; at most 2000")
    (tmp_path / "long.txt").write_text("long " * 500)
    sent = len(shown.requests)
    shown.page.locator("#panel-classify input[type=file]").set_input_files(tmp_path / "long.txt")
    expect(alert).to_contain_text("long.txt has 2.44 KiB; the service takes 1.95 KiB.")
    assert not any("/v1/classify" in url for url in shown.requests[sent:])


def test_key_is_asked_for_and_kept_in_memory_alone(
    visit: Callable[..., Visit], start: Callable[..., Server], tmp_path: Path
) -> None:
    server = start("--api-keys", KEY, "--drain-delay-s", "0", "--models", "imdb-s3")
    shown = visit(f"{server.url}/")
    page = shown.page
    alert, field = page.get_by_role("alert"), page.get_by_label(re.compile("^API key"))
    expect(alert).to_contain_text("The service needs an API key")
    field.fill("wrong")
    field.press("Enter")
    expect(alert).to_contain_text("does not accept this API key")
    field.fill(KEY)
    page.get_by_role("button", name="Use").click()
    expect(alert).to_have_count(0)
    classify(page, "A delight.")
    expect(page.locator(".result h2")).to_have_text("positive")
    curl, python = shown.copied("Copy as curl"), shown.copied("Copy as Python")
    assert KEY not in curl + python
    for printed in (
        run_curl(curl, tmp_path, LONGDOC_API_KEY=KEY),
        run_python(python, tmp_path, LONGDOC_API_KEY=KEY),
    ):
        assert printed["results"][0]["label"] == "positive"
    stored = page.evaluate("[localStorage.length, sessionStorage.length, document.cookie, location.href]")
    assert stored == [0, 0, "", f"{server.url}/"]
    assert not any("key" in url for url in shown.requests)
    page.reload()
    expect(alert).to_contain_text("The service needs an API key")


def test_full_service_is_asked_again_after_a_countdown(
    visit: Callable[..., Visit], start_controlled: Callable[..., ControlledServer]
) -> None:
    server = start_controlled("--max-queue-rows", "1", "--drain-delay-s", "0", "--models", "imdb-s3")
    shown = visit(f"{server.url}/")
    page, alert = shown.page, shown.page.get_by_role("alert")
    with ExitStack() as stack:
        with server.held():
            for batches in range(1, cpu_count() + 1):
                stack.enter_context(server.begin(b"A film."))
                server.wait_for_batches(batches)
            stack.enter_context(server.begin(b"A film."))
            server.wait_for(1, "longdoc_queue_depth", model="imdb-s3")
            classify(page, "A delight.")
            expect(alert).to_contain_text("429")
            expect(alert).to_contain_text(re.compile(r"Trying again in \d+ s\."))
            alert.get_by_role("button", name="Cancel").click()
            expect(alert).not_to_contain_text("Trying again")
            page.get_by_role("button", name="Classify").click()
            expect(alert).to_contain_text(re.compile(r"Trying again in \d+ s\."))
            refused = server.metric("longdoc_http_requests_total", route="/v1/classify", code="429")
            server.wait_for(refused + 1, "longdoc_http_requests_total", route="/v1/classify", code="429")
            expect(alert).to_contain_text(re.compile(r"Trying again in \d+ s\."))
        expect(page.locator(".result h2")).to_have_text("positive")
    expect(alert).to_have_count(0)


def test_service_that_is_gone_and_back(visit: Callable[..., Visit], start: Callable[..., Server]) -> None:
    flags = ("--drain-delay-s", "0", "--models", "imdb-s3")
    server = start(*flags)
    shown = visit(f"{server.url}/")
    page = shown.page
    expect(page.locator(".status")).to_have_text("Ready")
    server.kill()
    classify(page, "A delight.")
    expect(page.get_by_role("alert").filter(has_text="Nothing was lost")).to_be_visible()
    expect(page.locator(".status")).to_have_text("Gone")
    start("--port", str(server.port), *flags)
    expect(page.locator(".status")).to_have_text("Ready")
    expect(page.get_by_role("textbox", name="Document")).to_have_value("A delight.")
    page.get_by_role("button", name="Classify").click()
    expect(page.locator(".result h2")).to_have_text("positive")


def test_page_works_below_a_path_prefix(visit: Callable[..., Visit], server: Server, tmp_path: Path) -> None:
    with proxy(server.url, "/models/text") as url:
        shown = visit(url)
        page = shown.page
        classify(page, "A delight.")
        expect(page.locator(".result h2")).to_have_text("positive")
        assert run_curl(shown.copied("Copy as curl"), tmp_path)["results"][0]["label"] == "positive"
        shown.open("Live")
        expect(page.locator(".charts.live figure")).to_have_count(5)
        expect(page.get_by_role("link", name="API docs")).to_have_attribute("href", "docs")
        assert all(request.startswith(url) for request in shown.requests)
