"""The tab Rank: its order is that of the service, and it tells which documents were known."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.browser import Visit, run_curl, run_python
from tests.support.server import Server

pytestmark = pytest.mark.page

QUERY = "Parsing with neural networks."
DOCUMENTS = ["Neural parsers of natural language.", "Phrases in\nmachine translation.", "A corpus of dialogues."]


def fill(page: Page, query: str, documents: list[str]) -> None:
    page.get_by_role("textbox", name="Query").fill(query)
    page.get_by_role("textbox", name="Documents").fill("\n\n".join(documents))


def test_documents_are_ordered_as_the_service_orders_them(shown: Visit, server: Server) -> None:
    page = shown.open("Rank")
    fill(page, QUERY, DOCUMENTS)
    expect(page.get_by_text("3 documents", exact=True)).to_be_visible()
    page.get_by_role("button", name="Rank").click()
    rows = page.locator(".ranking li")
    expect(rows).to_have_count(3)
    results = server.post("/v1/rank", json={"query": QUERY, "documents": DOCUMENTS}).json()["results"]
    for row, result in zip(rows.all(), results, strict=True):
        expect(row.locator(".document")).to_have_text(DOCUMENTS[result["index"]])
        expect(row.locator(".value")).to_have_text(f"{100 * result['score']:.1f} %")


def test_known_documents_are_marked(shown: Visit) -> None:
    page = shown.open("Rank")
    documents = ["A text that no other test has sent.", "Another such text of this test."]
    fill(page, "A query of its own.", documents)
    page.get_by_role("button", name="Rank").click()
    expect(page.locator(".summary")).to_contain_text("None was known before")
    fill(page, "A query of its own.", [*documents, "The third text of this test."])
    page.get_by_role("button", name="Rank").click()
    expect(page.locator(".summary")).to_contain_text("2 were known before")
    expect(page.locator(".ranking .badge")).to_have_count(2)


def test_example_and_its_commands(shown: Visit, tmp_path: Path) -> None:
    page = shown.open("Rank")
    page.get_by_role("button", name="abstracts of papers").click()
    expect(page.locator(".ranking li")).to_have_count(8)
    expect(page.locator(".ranking .document").first).to_contain_text("Reordering the source sentence")
    curl, python = shown.copied("Copy as curl"), shown.copied("Copy as Python")
    first, second = run_curl(curl, tmp_path), run_python(python, tmp_path)
    assert first == second
    assert [result["index"] for result in first["results"]][:2] == [5, 3]
    assert all(result["cached"] for result in first["results"])


def test_files_are_documents(shown: Visit, tmp_path: Path) -> None:
    page = shown.open("Rank")
    fill(page, QUERY, [DOCUMENTS[0]])
    for name, text in {"one.txt": "A first file.\n\nWith two paragraphs.", "two.txt": "A second file."}.items():
        (tmp_path / name).write_text(text)
    page.locator("#panel-rank input[type=file]").set_input_files([tmp_path / "one.txt", tmp_path / "two.txt"])
    expect(page.get_by_text("3 documents", exact=True)).to_be_visible()
    page.get_by_role("button", name="Remove two.txt").click()
    page.get_by_role("button", name="Rank").click()
    expect(page.locator(".ranking li")).to_have_count(2)
    expect(page.locator(".ranking")).to_contain_text("one.txt")


@pytest.mark.parametrize(
    ("query", "documents", "message"),
    [
        ("", DOCUMENTS, "There is no query"),
        (QUERY, [], "There are no documents"),
        (QUERY, [f"document {number}" for number in range(101)], "There are too many documents"),
    ],
)
def test_incomplete_request_is_not_sent(shown: Visit, query: str, documents: list[str], message: str) -> None:
    page = shown.open("Rank")
    fill(page, query, documents)
    page.get_by_role("button", name="Rank").click()
    expect(page.get_by_role("alert")).to_contain_text(message)
    assert not any("/v1/rank" in url for url in shown.requests)


def test_error_names_the_document(shown: Visit) -> None:
    """The page sends no document that the service would refuse, so one is emptied on its way."""

    def empty_second(route: Route) -> None:
        route.continue_(post_data=json.dumps({"query": QUERY, "documents": [DOCUMENTS[0], ""]}))

    page = shown.open("Rank")
    page.route("**/v1/rank", empty_second)
    fill(page, QUERY, DOCUMENTS[:2])
    page.get_by_role("button", name="Rank").click()
    expect(page.get_by_role("alert")).to_contain_text("documents.1")
