"""The tab Classify with recordings: a CSV file gets its label, and its charts are shaded by what the stretches say."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.page.test_access import AXE, PHONE, violations
from tests.support import recordings as reference
from tests.support.browser import Visit, run_curl, run_python
from tests.support.models import RATE, STEPS
from tests.support.naive import write_series_classifier
from tests.support.paths import EXPORTS
from tests.support.recordings import Values
from tests.support.server import Server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.page

X = [10.0, 4.0, 10.0, 18.0, 10.0, 10.0, 10.0, 10.0]
Y = [10.0] * 7 + [14.0]
RECORDING = {"x": X, "y": Y}
FOR, AGAINST = (43, 91, 215), (217, 119, 43)
"""Colours of the light scheme."""
PIXELS = """
(canvas) => {
    const copy = document.createElement("canvas")
    Object.assign(copy, {width: canvas.width, height: canvas.height})
    const context = copy.getContext("2d", {willReadFrequently: true})
    context.drawImage(canvas, 0, 0)
    const outer = canvas.getBoundingClientRect()
    const inner = canvas.parentElement.querySelector(".u-over").getBoundingClientRect()
    const scale = canvas.width / outer.width
    return Array.from({length: COUNT}, (_, step) => {
        const x = inner.left - outer.left + inner.width * (step + 0.8) / COUNT
        return [...context.getImageData(scale * x, scale * (inner.top - outer.top + 3), 1, 1).data]
    })
}
"""
"""Red, green, blue and opacity of each step at the top of a chart, beside its vertical line."""


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a classifier of documents and of one of recordings."""
    exports = tmp_path_factory.mktemp("exports")
    shutil.copytree(EXPORTS / "un-debate", exports / "un-debate")
    write_series_classifier(exports, "gestures")
    with Server(exports / "log", "--exports", str(exports), "--drain-delay-s", "0") as server:
        yield server


@pytest.fixture
def opened(visit: Callable[..., Visit], recorder: Server) -> Visit:
    """The page, once it knows the models."""
    shown = visit(f"{recorder.url}/")
    wait_for_models(shown.page)
    return shown


def wait_for_models(page: Page) -> None:
    models = page.locator("#panel-classify").get_by_label("Model", exact=True).locator("option")
    expect(models).to_have_text([re.compile("^un-debate"), re.compile("^gestures 1 for recordings")])


def text_of(columns: dict[str, list[Any]]) -> str:
    """Return a file with these columns; None is a missing value."""
    rows = zip(*columns.values(), strict=True)
    return "\n".join(
        [",".join(columns), *(",".join("" if cell is None else str(cell) for cell in row) for row in rows)]
    )


def choose(page: Page, text: str, name: str = "recording.csv") -> None:
    page.locator("#panel-classify input[type=file]").set_input_files(
        {"name": name, "mimeType": "text/csv", "buffer": text.encode()}
    )


def paste(page: Page, text: str) -> None:
    page.locator("#panel-classify").get_by_label("Model", exact=True).select_option("gestures@1")
    field = page.get_by_role("textbox", name="Recording as CSV")
    field.fill(text)
    field.press("Control+Enter")


def asked(server: Server, series: object, **options: object) -> dict[str, Any]:
    answer = server.post("/v1/classify", json={"model": "gestures", "series": series, "detail": True, **options})
    result: dict[str, Any] = answer.json()["results"][0]
    return result


def test_file_chooses_its_model_and_gets_its_label(opened: Visit, recorder: Server, tmp_path: Path) -> None:
    page = opened.page
    seconds = [step / RATE for step in range(STEPS)]
    choose(page, text_of({"time": seconds, **RECORDING, "label": [3] * STEPS, "note": ["quiet"] * STEPS}))
    found = asked(recorder, RECORDING)
    expect(page.locator(".result h2")).to_have_text("wave")
    expect(page.locator("h1").locator("visible=true")).to_have_text("Classify a recording")
    expect(page.locator("#panel-classify").get_by_label("Model", exact=True)).to_have_value("gestures@1")
    expect(page.locator(".file")).to_contain_text("8 steps")
    expect(page.get_by_role("list", name="Channels").get_by_role("listitem")).to_have_text(["x", "y"])
    expect(page.locator(".file .note")).to_have_text("Not channels, so not used: time, label, note.")
    shown = {score["label"]: f"{100 * score['score']:.1f} %" for score in found["scores"]}
    rows = page.locator(".scores li")
    assert {row.locator(".name").inner_text(): row.locator(".value").inner_text() for row in rows.all()} == shown
    expect(page.locator(".coverage")).to_have_text("All 16 values were read, in one pass.")
    curl, python = opened.copied("Copy as curl"), opened.copied("Copy as Python")
    for printed in (run_curl(curl, tmp_path), run_python(python, tmp_path)):
        assert printed["results"][0] == found


def test_other_files_stay_documents(opened: Visit) -> None:
    page = opened.page
    choose(page, "time,x,z\n1,2,3\n", "table.csv")
    expect(page.locator(".coverage")).to_have_text(re.compile("^All 15 bytes were read"))
    expect(page.locator("h1").locator("visible=true")).to_have_text("Classify a document")


def margins_of(x: list[float], y: list[float]) -> list[float]:
    """Return what each step contributes to the logit of `wave`; that of `rest` is always 0."""

    def logit(*channels: Values) -> float:
        x, y = map(reference.standardised, channels)
        return reference.logit(x, y)

    without = ([[*channel[:step], None, *channel[step + 1 :]] for channel in (x, y)] for step in range(len(x)))
    return [logit(x, y) - logit(*channels) for channels in without]


def check_shades(page: Page, margins: list[float]) -> None:
    """Check the colours of the first chart, which is drawn after the text beside it has changed."""
    canvas = page.locator(".charts canvas").first
    expect(canvas).to_be_visible()

    def pixels() -> list[list[int]]:
        found: list[list[int]] = canvas.evaluate(PIXELS.replace("COUNT", str(len(margins))))
        return found

    wait_until(lambda: are_shades(pixels(), margins), pixels)


def are_shades(pixels: list[list[int]], margins: list[float]) -> bool:
    """Whether pixels (red, green, blue, opacity) have the colours of margins."""
    largest = max(map(abs, margins))
    for (*color, opacity), margin in zip(pixels, margins, strict=True):
        if (opacity > 0, opacity > 90) != (margin != 0, abs(margin) == largest):
            return False
        # The browser stores colors multiplied by the opacity, in whole numbers.
        if margin and color != pytest.approx(FOR if margin > 0 else AGAINST, abs=255 / opacity):
            return False
    return True


def test_stretches_are_shaded_and_listed(opened: Visit) -> None:
    page = opened.page
    choose(page, text_of(RECORDING))
    expect(page.locator(".charts figcaption strong")).to_have_text(["x", "y"])
    expect(page.get_by_role("img", name="x: 8 steps between 4 and 18")).to_be_visible()
    expect(page.locator(".summary")).to_have_text("Most for wave: step 8 (+2.00).")
    margins = margins_of(X, Y)
    assert (margins[3], margins[5], margins[7], min(margins)) == (0.5, 0.0, 2.0, margins[1])
    check_shades(page, margins)
    page.get_by_text("Stretches as a table").click()
    table = page.get_by_role("region", name="Stretches as a table").locator("tbody")
    expect(table.get_by_role("rowheader")).to_have_text([f"step {number}" for number in range(1, 9)])
    assert [float(cell) for cell in table.get_by_role("cell").all_inner_texts()] == pytest.approx(margins, abs=6e-4)
    page.get_by_role("button", name=re.compile("^rest")).press("Enter")
    expect(page.locator(".summary")).to_have_text(re.compile(r"^Most for rest: step 2 \(\+0\.3[78]\)\.$"))
    expect(page.locator(".legend")).to_contain_text("speaks for rest speaks for wave")
    check_shades(page, [-margin for margin in margins])


def test_values_and_stretches_are_shown_below_the_pointer(opened: Visit) -> None:
    page = opened.page
    choose(page, text_of(RECORDING))
    chart = page.locator(".charts .u-over").first
    box = chart.bounding_box()
    assert box is not None
    chart.hover(position={"x": box["width"] * 3.5 / STEPS, "y": 20})
    expect(page.locator(".charts .readout")).to_have_text(["step 4 · 18", "step 4 · 10"])
    expect(page.locator(".toolbar .readout")).to_have_text("step 4: +0.50 for wave")


def test_long_recording_with_gaps_is_pasted(opened: Visit, recorder: Server) -> None:
    page = opened.page
    long: dict[str, list[Any]] = {"y": [9, None] * 20, "x": [10, 11, 13, 8] * 10}
    paste(page, text_of(long))
    result = asked(recorder, long)
    windows, stretches = result["coverage"]["windows"], result["stretches"]
    assert windows > 1
    expect(page.locator(".coverage")).to_have_text(
        f"All 60 values were read, in {windows} overlapping windows. 20 missing values were imputed."
    )
    page.get_by_text("Stretches as a table").click()
    expect(page.locator("#panel-classify tbody th")).to_have_text(
        [f"steps {one['start'] + 1} to {one['end']}" for one in stretches]
    )
    page.get_by_label("Steps per second").fill("20")
    page.get_by_label("Long recordings").select_option("head")
    page.get_by_role("button", name="Classify").click()
    faster = asked(recorder, long, rate=20, on_overflow="head")["coverage"]
    assert faster["resampled"]
    expect(page.locator(".coverage")).to_have_text(
        f"{faster['observations_used']} of 60 values were read. {faster['imputed']} missing values were imputed. "
        "The recording was resampled to the rate of the model."
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": X}, "the model needs the channels x, y; y is missing"),
        ({**RECORDING, "z": X}, "the model has the channels x, y; z is not one of them"),
    ],
    ids=["missing", "surplus"],
)
def test_channels_that_do_not_fit_are_refused_by_the_service(
    opened: Visit, columns: dict[str, list[Any]], message: str
) -> None:
    page = opened.page
    paste(page, text_of(columns))
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("422")
    expect(alert).to_contain_text(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,2\n3\n", "Line 3 has 1 cells; line 1 with the names has 2."),
        ("time,label\n1,2\n2,2\n", "No column of numbers is a channel."),
    ],
)
def test_text_that_is_no_recording_is_not_sent(opened: Visit, text: str, message: str) -> None:
    page = opened.page
    paste(page, text)
    expect(page.get_by_role("alert")).to_contain_text("The text cannot be read as a recording")
    expect(page.get_by_role("alert")).to_contain_text(message)
    page.get_by_role("textbox", name="Recording as CSV").fill("")
    page.get_by_role("button", name="Classify").click()
    expect(page.get_by_role("alert")).to_contain_text("There is no recording")
    assert not any("/v1/classify" in url for url in opened.requests)


def test_many_channels_are_listed_on_demand(opened: Visit) -> None:
    """With an answer as of a model that has them."""
    page = opened.page

    def answer(route: Route) -> None:
        body = json.loads(route.request.post_data or "")
        body["series"] = {name: body["series"][name] for name in RECORDING}
        route.fulfill(response=route.fetch(post_data=body))

    page.route("**/v1/classify", answer)
    paste(page, text_of({**RECORDING, **{f"extra {number}": X for number in range(12)}}))
    expect(page.locator(".charts figure")).to_have_count(12)
    page.get_by_role("button", name="Show all 14 channels").click()
    expect(page.locator(".charts figure")).to_have_count(14)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_recording_is_accessible_and_fits_a_phone(visit: Callable[..., Visit], recorder: Server, scheme: str) -> None:
    shown = visit(f"{recorder.url}/", color_scheme=scheme, reduced_motion="reduce", viewport=PHONE)
    page = shown.page
    shown.context.add_init_script(path=AXE)
    page.reload()
    wait_for_models(page)
    choose(page, text_of({"label": [1] * STEPS, **RECORDING}))
    expect(page.locator(".charts canvas")).to_have_count(2)
    page.get_by_text("Stretches as a table").click()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
