"""The tab Classify: its answers are those of the service, and its parts cover the document."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from artifact.exports import version_folder
from tests.support.browser import Visit, run_curl, run_python
from tests.support.paths import EXPORTS, ROOT
from tests.support.server import Server
from tests.unit.model.conftest import exported_once
from tests.unit.model.export.test_export_words import ngram_run

pytestmark = pytest.mark.page

REVIEW = (ROOT / "docs" / "review.txt").read_text()
DIARY = "a festival diary of 100 KB"
MODEL = f"imdb-s3@{version_folder(EXPORTS / 'imdb-s3').name}"
SPEECH = "a speech to the United Nations"


def classify(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Document").fill(text)
    page.get_by_role("button", name="Classify").click()


def asked(server: Server, text: str | bytes, **options: str) -> dict[str, Any]:
    body = text if isinstance(text, bytes) else text.encode()
    kind = {"content-type": "application/octet-stream"}
    answer = server.post("/v1/classify", content=body, headers=kind, params={"detail": "true", **options})
    result: dict[str, Any] = answer.json()["results"][0]
    return result


def check_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Check that two answers are the same up to rounding, which depends on the number of rows in a batch."""
    scores, others = ({score["label"]: score["score"] for score in answer["scores"]} for answer in (found, wanted))
    assert scores == pytest.approx(others, abs=1e-5)
    for key in ("label", "coverage"):
        assert found[key] == wanted[key]


def known_text(found: dict[str, Any]) -> str:
    """Return what the page says about the known words of an answer."""
    known = found["coverage"]["known"]
    return "" if known is None else f" The model knows {100 * known:.1f} % of the words."


def parts(page: Page) -> list[str]:
    """Return the text of each part of the document."""
    return page.locator(".reader > span").all_text_contents()


def test_label_and_probabilities_are_those_of_the_service(shown: Visit, server: Server) -> None:
    page = shown.page
    classify(page, REVIEW)
    found = asked(server, REVIEW)
    expect(page.locator(".result h2")).to_have_text(str(found["label"]))
    scores = {score["label"]: f"{100 * score['score']:.1f} %" for score in found["scores"]}
    rows = page.locator(".scores li")
    assert {row.locator(".name").inner_text(): row.locator(".value").inner_text() for row in rows.all()} == scores
    expect(page.locator(".coverage")).to_have_text("All 1,015 bytes were read, in one pass." + known_text(found))


def without_contributions(route: Route) -> None:
    """Answer as a model does that returns no contributions: each window is one stretch."""
    response = route.fetch()
    answer = response.json()
    for result in answer["results"]:
        result["stretches"] = [
            {"start": window["start"], "end": window["end"], "contributions": {}} for window in result["windows"]
        ]
    route.fulfill(response=response, json=answer)


def test_long_document_is_shown_by_window(shown: Visit, server: Server) -> None:
    page = shown.page
    page.route("**/v1/classify*", without_contributions)
    page.get_by_role("button", name=DIARY).click()
    strip = page.get_by_role("slider")
    text = page.get_by_role("textbox", name="Document").input_value()
    assert len(text.encode()) > 60_000
    found = asked(server, text)
    windows = found["windows"]
    assert isinstance(windows, list)
    expect(strip).to_have_attribute("aria-valuemax", str(len(windows)))
    assert "".join(parts(page)) == text
    expect(page.locator(".coverage")).to_have_text(
        f"All {len(text.encode()):,} bytes were read, in {len(windows)} overlapping windows." + known_text(found)
    )
    kinds = page.locator(".strip rect").evaluate_all("all => all.map(one => one.getAttribute('class'))")
    best = [window["scores"][0]["label"] for window in windows]
    label = page.locator(".result h2").inner_text()
    assert kinds == ["for" if one == label else "against" for one in best]


def test_few_known_words_are_pointed_out(visit: Callable[..., Visit], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of a model that counts words, which is trained briefly."""
    folder = exported_once(ngram_run(tmp_path_factory), tmp_path_factory)
    with Server(tmp_path_factory.mktemp("server") / "log", "--exports", str(folder.parents[1])) as server:
        page = visit(f"{server.url}/").page
        for text, is_odd in (("+-+ab cd +++ gh-", False), ("Заявление quantum xylophone", True)):
            classify(page, text)
            found = asked(server, text)
            expect(page.locator(".coverage")).to_contain_text(f"in one pass.{known_text(found)}")
            assert (found["coverage"]["known"] == 0) == is_odd
            expect(page.get_by_role("note")).to_have_count(int(is_odd))
        expect(page.get_by_role("note")).to_contain_text("a wrong encoding")


def test_example_is_classified_by_its_model_before_the_models_are_known(shown: Visit) -> None:
    page = shown.page
    waiting = list[Route]()
    page.route("**/v1/models", lambda route: waiting.append(route))
    page.reload()
    page.get_by_role("button", name=SPEECH).click()
    expect(page.locator(".result h2")).to_have_text("Caribbean")
    for route in waiting:
        route.continue_()
    expect(page.locator("#panel-classify").get_by_label("Model", exact=True)).to_have_value(re.compile("^un-debate"))


def test_stretches_are_shown_where_the_model_returns_them(shown: Visit, server: Server) -> None:
    page = shown.page
    page.get_by_role("button", name=SPEECH).click()
    expect(page.locator(".result h2")).to_have_text("Caribbean")
    text = page.get_by_role("textbox", name="Document").input_value()
    answer = asked(server, text, model="un-debate")
    stretches, scores = answer["stretches"], answer["scores"]
    assert isinstance(stretches, list)
    assert isinstance(scores, list)
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuemax", str(len(stretches)))
    assert "".join(parts(page)) == text
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", re.compile(r"part 1 of .*for Caribbean"))
    page.get_by_role("button", name=re.compile(f"^{scores[1]['label']}")).first.click()
    expect(page.locator(".legend").first).not_to_contain_text("Caribbean")


def test_strip_shows_the_text_below_the_pointer_and_scrolls_to_it(shown: Visit) -> None:
    page = shown.page
    page.get_by_role("button", name=DIARY).click()
    strip = page.get_by_role("slider")
    box = strip.bounding_box()
    assert box is not None
    at = {"x": box["width"] * 0.75, "y": box["height"] / 2}
    strip.hover(position=at)  # type: ignore[arg-type]
    index = int(strip.get_attribute("aria-valuenow") or 0) - 1
    assert 0.6 < index / int(strip.get_attribute("aria-valuemax") or 0) < 0.9
    here = page.locator(".reader > span").nth(index)
    excerpt = page.locator(".lens .excerpt").inner_text().strip("… ")
    assert excerpt in " ".join(here.inner_text().split())
    expect(here).not_to_be_in_viewport()
    strip.click(position=at)  # type: ignore[arg-type]
    page.locator(".reader").scroll_into_view_if_needed()
    expect(here).to_be_in_viewport()


def test_strip_is_used_with_the_keyboard(shown: Visit) -> None:
    page = shown.page
    page.get_by_role("button", name=DIARY).click()
    strip = page.get_by_role("slider")
    strip.focus()
    last = strip.get_attribute("aria-valuemax")
    assert last is not None
    for key, now in (("ArrowRight", "2"), ("ArrowRight", "3"), ("ArrowLeft", "2"), ("Home", "1"), ("End", last)):
        strip.press(key)
        expect(strip).to_have_attribute("aria-valuenow", now)
    strip.press("Enter")
    page.locator(".reader").scroll_into_view_if_needed()
    expect(page.locator(".reader > span").last).to_be_in_viewport()


def test_part_that_is_not_read_is_shown(shown: Visit) -> None:
    page = shown.page
    page.get_by_label("Long documents").select_option("head")
    page.get_by_role("button", name=DIARY).click()
    expect(page.locator(".coverage")).to_contain_text(re.compile(r"^4,096 of [\d,]+ bytes were read; the hatched"))
    kinds = page.locator(".strip rect").evaluate_all("all => all.map(one => one.getAttribute('class'))")
    assert (kinds[-1], kinds.count("unread")) == ("unread", 1)


@pytest.mark.parametrize(
    ("content", "text"),
    [("A délightful film. ".encode() * 400, "A délightful film. " * 400), (b"Tr\xe8s bien. " * 9, "Très bien. " * 9)],
    ids=["UTF-8", "Latin"],
)
def test_file_is_classified_as_it_is(shown: Visit, server: Server, tmp_path: Path, content: bytes, text: str) -> None:
    page = shown.page
    (tmp_path / "film.txt").write_bytes(content)
    page.locator("#panel-classify input[type=file]").set_input_files(tmp_path / "film.txt")
    expect(page.locator(".coverage")).to_contain_text(f"All {len(content):,} bytes were read")
    assert "".join(parts(page)) == text
    expect(page.locator(".result h2")).to_have_text(str(asked(server, content)["label"]))
    curl = shown.copied("Copy as curl")
    assert "--data-binary '@film.txt'" in curl
    check_same(run_curl(curl, tmp_path)["results"][0], asked(server, content, model=MODEL))


def test_file_is_dropped(shown: Visit) -> None:
    page = shown.page
    data = page.evaluate_handle(
        """() => {
            const data = new DataTransfer()
            data.items.add(new File(['A delight from start to end.'], 'dropped.txt', {type: 'text/plain'}))
            return data
        }"""
    )
    page.dispatch_event("#panel-classify .drop", "dragenter", {"dataTransfer": data})
    expect(page.locator("#panel-classify .drop")).to_have_class(re.compile("over"))
    page.dispatch_event("#panel-classify .drop", "drop", {"dataTransfer": data})
    expect(page.locator(".coverage")).to_contain_text("All 28 bytes were read, in one pass.")
    expect(page.locator(".file")).to_contain_text("dropped.txt")
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("textbox", name="Document")).to_have_value("")


@pytest.mark.parametrize("text", ['It\'s "fine", $HOME `x` \\ ünd so\n@weiter\n', REVIEW], ids=["quotes", "review"])
def test_copied_commands_give_the_same_answer(shown: Visit, server: Server, tmp_path: Path, text: str) -> None:
    classify(shown.page, text)
    expect(shown.page.locator(".result h2")).to_be_visible()
    expected = asked(server, text)
    curl, python = shown.copied("Copy as curl"), shown.copied("Copy as Python")
    assert shlex.split(curl)[:2] == ["curl", "-s"]
    for printed in (run_curl(curl, tmp_path), run_python(python, tmp_path)):
        assert printed["results"][0] == expected


def test_document_that_is_too_long_for_a_command_is_saved(shown: Visit, tmp_path: Path) -> None:
    page = shown.page
    text = "A délightful film. " * 8000
    classify(page, text)
    expect(page.locator(".result h2")).to_be_visible()
    curl, python = shown.copied("Copy as curl"), shown.copied("Copy as Python")
    assert len(curl + python) < 1000
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Save document.txt").click()
    downloading.value.save_as(tmp_path / "document.txt")
    first, second = run_curl(curl, tmp_path)["results"][0], run_python(python, tmp_path)["results"][0]
    check_same(first, second)
    assert first["coverage"]["bytes_total"] == len(text.encode())


def test_empty_document_is_not_sent(shown: Visit) -> None:
    shown.page.get_by_role("button", name="Classify").click()
    expect(shown.page.get_by_role("alert")).to_contain_text("There is no document")
    assert not any("/v1/classify" in url for url in shown.requests)
