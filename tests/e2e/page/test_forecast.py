"""The tab Forecast: CSV files are read, their columns and frequency are recognised, and the forecast is drawn."""

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from artifact.exports import read_manifest, version_folder
from artifact.tasks.forecasting import ForecasterManifest
from tests.support.browser import Visit, run_curl, run_python
from tests.support.models import CHANNELS
from tests.support.naive import write_any_series, write_naive_forecaster
from tests.support.paths import EXPORTS
from tests.support.server import Server

pytestmark = pytest.mark.page

EXAMPLE = "a week of a transformer"
START = datetime(2024, 1, 31)


def manifest(name: str) -> ForecasterManifest:
    found = read_manifest(version_folder(EXPORTS / name))
    assert isinstance(found, ForecasterManifest)
    return found


def table(
    channels: Iterable[str],
    steps: int,
    step: Callable[[int], datetime],
    *,
    delimiter: str = ",",
    time: Callable[[datetime], str] = str,
    level: float = 1.0,
) -> list[list[str]]:
    """Return the cells of a file: a head, and a line for each step."""
    head = ["date", *channels]
    rows = [
        [time(step(i)), *(f"{level + 0.1 * ((i + j) % 7):.3f}" for j in range(len(head) - 1))] for i in range(steps)
    ]
    if delimiter == ";":
        rows = [[cell.replace(".", ",") if i else cell for i, cell in enumerate(row)] for row in rows]
    return [head, *rows]


def text_of(rows: list[list[str]], delimiter: str = ",") -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows(rows)
    return stream.getvalue()


def drop(page: Page, text: str, name: str = "series.csv") -> None:
    """Choose a file with a text."""
    page.locator("#panel-forecast input[type=file]").set_input_files(
        {"name": name, "mimeType": "text/csv", "buffer": text.encode()}
    )


def every(**length: int) -> Callable[[int], datetime]:
    return lambda index: START + index * timedelta(**length)


def test_example_is_drawn_and_its_values_are_those_of_the_service(shown: Visit, tmp_path: Path) -> None:
    page = shown.open("Forecast")
    page.get_by_role("button", name=EXAMPLE).click()
    names = manifest("ettm2").channels
    expect(page.locator(".charts figure")).to_have_count(len(names))
    expect(page.locator(".charts figcaption strong")).to_have_text(list(names))
    expect(page.locator(".file")).to_contain_text("672 steps")
    expect(page.locator(".file")).to_contain_text("one every 15min")
    expect(page.locator(".file")).to_contain_text("2024-03-04 00:00 to 2024-03-10 23:45")
    expect(page.locator(".warning")).to_have_count(0)
    curl, python = shown.copied("Copy as curl"), shown.copied("Copy as Python")
    answer = run_curl(curl, tmp_path)
    assert answer == run_python(python, tmp_path)
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Download CSV").click()
    head, *rows = csv.reader(io.StringIO(Path(downloading.value.path()).read_text()))
    assert head == ["time", *itertools.chain(*([name, f"{name} 0.1", f"{name} 0.9"] for name in names))]
    assert [row[0] for row in rows] == answer["timestamps"]
    for place, name in enumerate(names):
        columns = [answer["forecast"][name], *(answer["quantiles"][level][name] for level in ("0.1", "0.9"))]
        for offset, column in enumerate(columns):
            assert [float(row[1 + 3 * place + offset]) for row in rows] == column
    page.get_by_text("Values as a table").click()
    expect(page.locator("#panel-forecast tbody tr")).to_have_count(len(rows))


def test_values_are_shown_below_the_pointer_and_ranges_are_zoomed(shown: Visit) -> None:
    page = shown.open("Forecast")
    page.get_by_role("button", name=EXAMPLE).click()
    chart = page.locator(".charts .u-over").first
    readout = page.locator(".charts .readout").first
    box = chart.bounding_box()
    assert box is not None
    chart.hover(position={"x": box["width"] - 5, "y": 20})
    expect(readout).to_have_text(re.compile(r"^2024-03-11 2\d:\d\d · [\d.]+ \([\d.]+ to [\d.]+\)$"))
    chart.hover(position={"x": 4, "y": 20})
    expect(readout).to_have_text(re.compile(r"^2024-03-09 0\d:\d\d · [\d.]+$"))
    page.get_by_role("button", name="All").click()
    chart.hover(position={"x": 4, "y": 20})
    expect(readout).to_have_text(re.compile(r"^2024-03-04 "))
    page.get_by_role("button", name="Zoom in").click()
    chart.hover(position={"x": 4, "y": 20})
    expect(readout).to_have_text(re.compile(r"^2024-03-0[78] "))
    page.get_by_role("button", name="Recent").click()
    chart.hover(position={"x": box["width"] / 2, "y": 20})
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 30, steps=5)
    page.mouse.up()
    chart.hover(position={"x": 4, "y": 20})
    expect(readout).to_have_text(re.compile(r"^2024-03-10 1\d:"))
    chart.dblclick(position={"x": 50, "y": 20})
    chart.hover(position={"x": 4, "y": 20})
    expect(readout).to_have_text(re.compile(r"^2024-03-09 0"))


@pytest.mark.parametrize(
    ("step", "time", "delimiter", "frequency"),
    [
        (every(minutes=15), str, ",", "15min"),
        (every(hours=1), datetime.isoformat, ";", "1h"),
        (every(days=1), lambda at: at.strftime("%d.%m.%Y"), "\t", "1d"),
        (every(days=7), lambda at: at.strftime("%Y/%m/%d"), ",", "7d"),
        (lambda i: datetime(2015 + i // 12, i % 12 + 1, 1), lambda at: at.strftime("%Y-%m"), ",", "1mo"),
        (lambda i: START + timedelta(days=7 * ((i + 2) // 5) + (i + 2) % 5 - 2), str, ",", "1b"),
    ],
    ids=["minutes", "hours", "days", "weeks", "months", "business days"],
)
def test_frequency_is_recognised(
    shown: Visit, step: Callable[[int], datetime], time: Callable[[datetime], str], delimiter: str, frequency: str
) -> None:
    page = shown.open("Forecast")
    rows = table([f"channel {number}" for number in range(9)], 40, step, delimiter=delimiter, time=time)
    drop(page, text_of(rows, delimiter))
    expect(page.locator(".file")).to_contain_text("40 steps")
    expect(page.locator(".file")).to_contain_text(f"one every {frequency}")
    expect(page.locator("#panel-forecast .by")).to_contain_text("any-series version")
    expect(page.locator(".charts figure")).to_have_count(9)


def test_model_is_chosen_by_its_channels_and_its_bands_are_marked_as_unreliable(shown: Visit, server: Server) -> None:
    model = manifest("ili")
    assert not model.quantiles_reliable
    page = shown.open("Forecast")
    drop(page, text_of(table(model.channels, 60, every(days=7))))
    expect(page.get_by_label("Model").locator("visible=true")).to_have_value(f"ili@{model.version}")
    expect(page.locator(".charts figure")).to_have_count(len(model.channels))
    expect(page.locator(".warning")).to_contain_text("not reliable")
    assert server.metric("longdoc_documents_total", model="ili") >= 1


def test_file_is_forecast_when_the_models_are_known(shown: Visit) -> None:
    page = shown.page
    waiting = list[Route]()
    page.route("**/v1/models", lambda route: waiting.append(route))
    page.reload()
    shown.open("Forecast")
    drop(page, text_of(table(manifest("ili").channels, 60, every(days=7))))
    expect(page.locator(".file")).to_contain_text("60 steps")
    for route in waiting:
        route.continue_()
    expect(page.locator(".charts figure")).to_have_count(len(manifest("ili").channels))


def test_other_names_are_read_by_position_without_a_forecaster_of_any_series(
    start: Callable[..., Server], visit: Callable[..., Visit]
) -> None:
    model = manifest("ettm2")
    page = visit(f"{start('--models', 'ettm2', '--drain-delay-s', '0').url}/").open("Forecast")
    names = [f"sensor {number}" for number in range(len(model.channels))]
    drop(page, text_of(table(names, 120, every(minutes=15), level=10)))
    expect(page.locator(".note")).to_contain_text("they are read in its order: HUFL")
    expect(page.locator(".charts figcaption strong")).to_have_text(names)
    drop(page, text_of(table([*names, "one more"], 120, every(minutes=15))))
    expect(page.get_by_role("alert")).to_contain_text("No model reads these columns")


def test_steps_that_are_missing_are_imputed(shown: Visit) -> None:
    model = manifest("ettm2")
    page = shown.open("Forecast")
    rows = table(model.channels, 120, every(minutes=15), level=10)
    del rows[110]
    rows[100][2] = "NaN"
    drop(page, text_of([[*row, "note"] for row in rows]))
    expect(page.locator(".file")).to_contain_text("1 step missing in the file")
    expect(page.locator(".file")).to_contain_text("Not numbers, so not used: note")
    expect(page.locator(".summary").last).to_contain_text(f"{len(model.channels) + 1} missing values imputed")


GOOD = table(["a", "b"], 5, every(hours=1))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["a", "b"]], "at least two lines with values"),
        ([*GOOD, ["2024-02-02 00:00:00", "1"]], "Line 7 has 2 cells; line 1 with the names has 3."),
        ([*GOOD, *table(["a", "b"], 9, every(days=1))[2:], ["2024-03-01", "1", "x"]], "Line 15, column b: “x”"),
        ([["date", "a"], ["2024-01-01", "x"], ["2024-01-02", "y"]], "No column holds numbers."),
        ([["a", "a"], ["1", "2"], ["3", "4"]], "Two columns have the name “a”."),
        ([["1", "2"], ["3", "4"], ["5", "6"]], "Line 1 has numbers instead of names."),
        ([*GOOD, GOOD[1]], "occurs twice"),
        ([*GOOD[:5], ['"open', "1", "2"]], "never closed"),
    ],
)
def test_bad_file_is_refused_with_its_line(shown: Visit, rows: list[list[str]], message: str) -> None:
    page = shown.open("Forecast")
    text = text_of(rows) if '"open' not in rows[-1] else text_of(rows[:-1]) + '"open,1,2\n'
    drop(page, text, "bad.csv")
    expect(page.get_by_role("alert")).to_contain_text("bad.csv cannot be read as a series")
    expect(page.get_by_role("alert")).to_contain_text(message)


def test_error_of_the_service_is_shown(shown: Visit) -> None:
    page = shown.open("Forecast")
    page.get_by_label("Steps").fill("721")
    page.get_by_role("button", name=EXAMPLE).click()
    expect(page.get_by_role("alert")).to_contain_text("422")
    expect(page.get_by_role("alert")).to_contain_text("horizon")


def test_any_series_is_forecast_with_its_last_steps_held_back(
    tmp_path: Path, start: Callable[..., Server], visit: Callable[..., Visit]
) -> None:
    write_any_series(tmp_path, "any")
    write_naive_forecaster(tmp_path, "plant", CHANNELS)
    (tmp_path / "defaults.json").write_text('{"forecasting": "any"}')
    server = start("--exports", str(tmp_path), "--drain-delay-s", "0")
    page = visit(f"{server.url}/").open("Forecast")
    names = ["sales", "visits", "returns"]
    drop(page, text_of(table(names, 40, every(days=1))))
    expect(page.locator(".charts figcaption strong")).to_have_text(names)
    expect(page.locator(".summary")).to_contain_text("7 steps ahead of 3 channels")
    expect(page.locator(".summary")).to_contain_text("Season: 7 steps, by the frequency.")
    expect(page.locator(".legend")).to_contain_text("forecast of the last 7 steps, held back")
    expect(page.locator("#panel-forecast .by")).to_contain_text("any version 1")
    drop(page, text_of(table(CHANNELS, 40, every(hours=1))))
    expect(page.locator(".charts figcaption strong")).to_have_text(list(CHANNELS))
    expect(page.locator(".legend")).not_to_contain_text("held back")
    page.get_by_role("tab", name="Models").click()
    expect(page.locator("#panel-models")).to_contain_text("any, each alone; its last 512 steps are read")
