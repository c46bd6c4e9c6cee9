"""The tabs Models and Live: what the manifests and the metrics say."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.browser import Visit, run_curl, run_python
from tests.support.server import ControlledServer, Server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.page


def test_every_model_is_described(shown: Visit, server: Server, tmp_path: Path) -> None:
    page = shown.open("Models")
    described = server.get("/v1/models").json()["models"]
    buttons = page.get_by_role("navigation", name="Served models").get_by_role("button")
    expect(buttons).to_have_count(len(described))
    for model in described:
        buttons.filter(has_text=re.compile(rf"^{model['name']}\d")).click()
        details = page.locator(".details")
        expect(details.locator("h2").first).to_have_text(f"{model['name']} version {model['version']}")
        expect(details.locator("tbody tr")).to_have_count(len(model["results"]))
        heads = details.locator("thead th").all_inner_texts()
        baselines = {one["name"] for result in model["results"] for one in result["baselines"]}
        assert set(heads) == {"metric", "condition", "examples", "model", *baselines}
        for place, result in enumerate(model["results"]):
            cells = details.locator("tbody tr").nth(place).locator("td").all_inner_texts()
            beside = {head for head, cell in zip(heads[4:], cells[3:], strict=True) if cell}
            assert beside == {one["name"] for one in result["baselines"]}
        expect(details.locator(".reliability circle")).to_have_count(len(model.get("reliability", ())))
        expect(details).to_contain_text(model["data_terms"])
        expect(details).to_contain_text(model["training"]["revision"])
        expect(details.locator(".badge", has_text="non-commercial")).to_have_count(int(model["non_commercial"]))
        expect(details.locator(".figures")).to_contain_text(re.compile(r"loaded in\s*[\d.]+ s"))
        details.get_by_text("Model card").click()
        card = server.get(f"/v1/models/{model['name']}/card").text
        expect(details.locator("pre")).to_have_text(card, use_inner_text=True)
    curl, python = shown.copied("Copy as curl"), shown.copied("Copy as Python")
    weather = server.get(f"/v1/models/weather@{server.get('/v1/models/weather').json()['version']}").json()
    assert run_curl(curl, tmp_path) == run_python(python, tmp_path) == weather


def test_queue_is_the_one_of_the_moment(
    visit: Callable[..., Visit], start_controlled: Callable[..., ControlledServer]
) -> None:
    server = start_controlled("--drain-delay-s", "0")
    shown = visit(f"{server.url}/")
    page = shown.open("Models")
    figures = page.locator(".details .figures div")
    expect(figures.nth(1)).to_have_text(re.compile("requests in flight\\s*0"))
    with server.held(), server.begin(b"A film.") as wire:
        expect(figures.nth(1)).to_have_text(re.compile("requests in flight\\s*1"))
        server.release()
        assert wire.answer().status == 200  # a client that disconnects before gets none
    expect(figures.nth(1)).to_have_text(re.compile("requests in flight\\s*0"))
    expect(figures.nth(2)).to_have_text(re.compile("answered\\s*1"))


def test_live_charts_follow_the_metrics(shown: Visit, server: Server) -> None:
    page = shown.open("Live")
    figures = page.locator(".charts.live figure")
    expect(figures).to_have_count(5)

    def ask() -> bool:
        for _ in range(5):
            server.post("/v1/classify", json={"inputs": "A delight."})
        return re.search("[1-9]", figures.first.locator(".now").inner_text()) is not None

    wait_until(ask)
    expect(figures.nth(1).locator(".now")).to_have_text(re.compile(r"^[\d.]+ m?s / [\d.]+ m?s$"))
    expect(figures.nth(2).locator(".now")).to_have_text(re.compile(r"^[\d.]+$"))
    expect(figures.nth(3).locator(".now")).to_have_text("0")
    expect(figures.nth(4).locator(".now")).to_have_text("0")
    page.get_by_label("Model").locator("visible=true").select_option("weather")
    expect(figures.first.locator(".now")).to_have_text("0")
