"""Training, `predict` and `batch` read any table alike: the same rows, and the same errors at the same places.

So do training and `predict` with tables of series.
"""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pyarrow import parquet

from artifact.errors import InputError
from artifact.series import PLAIN, Layout, impute, parse_frequency
from artifact.tables.reading import Field
from artifact.tables.table import BadRow
from artifact.tasks.forecasting import ForecasterManifest
from model.config.data import SeriesConfig
from model.data import own
from model.data.own import TextColumns
from model.data.series import Regular, read_own_series
from model.errors import UserError
from service.offline.files import read_inputs
from service.offline.inputs import read_parts
from service.offline.predict import layout_of, read_channels
from tests.support.models import forecaster

TEXT = (Field("text"),)
WORDS = st.sampled_from(
    ["", " ", "NA", "null", "a", "b c", '"', '""', '\\"', "é", "\ufeff", "x;y", "1,5", "'", "\u2028"]
)
CELL = st.one_of(WORDS, st.lists(WORDS, max_size=4).map("".join))
ENCODING = st.sampled_from([*["utf-8"] * 6, "latin-1", "utf-16", "utf-16-be", "utf-32"])
SIGN = st.sampled_from([",", ";", "|", "\t"])
END = st.sampled_from(["\n", "\r\n", "\n\n", "\n \n", "\r"])


@st.composite
def delimited(draw: st.DrawFn) -> tuple[str, bytes]:
    """A table as people write it: some cells quoted, some rows ragged, damaged or blank."""
    sign = draw(SIGN)
    header = draw(
        st.sampled_from([["text", "label"], ["label", "text"], ["id", "text", "label"], ["text", "text", "label"]])
    )
    lines = [sign.join(header)]
    for _ in range(draw(st.integers(0, 6))):
        cells = draw(st.lists(CELL, min_size=len(header) - draw(st.integers(0, 1)), max_size=len(header)))
        lines.append(sign.join(_quoted(cell) if draw(st.booleans()) else cell for cell in cells))
    text = draw(st.sampled_from(["", "\ufeff", "\n"])) + "".join(line + draw(END) for line in lines)
    content = text.encode(draw(ENCODING), "replace")
    return draw(st.sampled_from(["a.csv", "a.tsv"])), content


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | CELL, lambda inner: st.lists(inner, max_size=2)
)


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, bytes]:
    """JSON Lines, some of them damaged."""
    objects = st.fixed_dictionaries({}, optional={"text": CELL | JSON, "label": CELL | JSON, "doc": JSON})
    written = [
        draw(st.one_of(objects.map(json.dumps), st.sampled_from(["", " ", "{", "[]", "1", '{"text": "a"'])))
        for _ in range(draw(st.integers(0, 6)))
    ]
    return "a.jsonl", "\n".join(written).encode(draw(ENCODING), "replace")


@st.composite
def columnar(draw: st.DrawFn) -> tuple[str, bytes]:
    """Parquet with texts as strings or bytes, and labels of several types."""
    count = draw(st.integers(0, 5))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(st.none() | values, min_size=count, max_size=count))

    texts = column(draw(st.sampled_from([CELL, CELL.map(str.encode)])))
    labels = column(draw(st.sampled_from([CELL, st.integers(0, 9), st.booleans(), st.floats(0, 2)])))
    target = io.BytesIO()
    parquet.write_table(pyarrow.table({"label": labels, "text": texts}), target)
    return "a.parquet", target.getvalue()


def trained(path: Path, columns: TextColumns) -> tuple[list[tuple[str, bytes]], str]:
    """Places and texts that training reads, and its error."""
    try:
        return [(row.place, row.texts[0]) for row in own.read(path, columns).rows], ""
    except UserError as error:
        return [], str(error)


def predicted(path: Path) -> tuple[list[tuple[str, Any]], str]:
    """Places and values of the rows of `predict`, and its error."""
    found = []
    try:
        for place, row in read_inputs([path], TEXT):
            found.append((place, row))
    except InputError as error:
        return found, str(error)
    return found, ""


def batched(path: Path) -> tuple[Sequence[tuple[str, Any]], str]:
    """Places and values of the rows of `batch`, and its error."""
    found = []
    try:
        for part in read_parts(str(path), TEXT):
            found += part.rows
    except InputError as error:
        return found, str(error)
    return found, ""


@settings(max_examples=4 * settings().max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(delimited() | lines() | columnar())
def test_any_table_is_read_alike(tmp_path: Path, file: tuple[str, bytes]) -> None:
    name, content = file
    path = tmp_path / name
    path.write_bytes(content)
    texts, error = trained(path, TextColumns(("text",)))
    rows, stop = predicted(path)
    parts, stopped = batched(path)
    assert stop == stopped
    assert parts == (rows if not stop else [])
    bad = [f"{place}: {row.reason}" for place, row in rows if isinstance(row, BadRow)]
    good = [(place, row[0]) for place, row in rows if not isinstance(row, BadRow) and row[0] is not None]
    if bad or stop:
        assert error == [*bad, stop][0]
    elif good:
        assert (texts, error) == (good, "")
    else:
        assert error.startswith(f"{path} has no ")


FORMS: dict[str, Sequence[Callable[[datetime], object]]] = {
    "1h": (str, datetime.isoformat, lambda time: f"{time}Z", lambda time: round(time.timestamp())),
    "15min": (str, lambda time: f"{time:%Y/%m/%d %H:%M}", lambda time: round(1000 * time.timestamp())),
    "1d": (lambda time: f"{time:%Y-%m-%d}", lambda time: f"{time:%Y%m%d}", lambda time: f"{time:%d.%m.%Y}"),
    "1b": (lambda time: f"{time:%Y-%m-%d}",),
    "1mo": (lambda time: f"{time:%Y-%m}", lambda time: f"{time:%Y%m}", lambda time: f"{time:%Y-%m-%d}"),
    "1q": (lambda time: f"{time.year}-Q{(time.month + 2) // 3}",),
    "1y": (lambda time: time.year, lambda time: f"{time.year}-01-01"),
}
"""How people write the time stamps of steps."""
VALUE = st.one_of(st.floats(-1e6, 1e6).map(lambda value: round(value, 3)), st.sampled_from(["", "NA", 0, 7, -3]))
NAMES = ["load", "temp", "101", "a b", "Zürich"]


@dataclass(frozen=True)
class SeriesFile:
    """A table of a series, and what people would say about it."""

    content: str
    layout: Layout
    channels: tuple[str, ...]
    frequency: str


@st.composite
def series(draw: st.DrawFn) -> SeriesFile:
    """A wide or long table: with gaps, jitter, repeated and unsorted rows, indices and texts."""
    frequency = draw(st.sampled_from([*FORMS]))
    form, step = draw(st.sampled_from(FORMS[frequency])), parse_frequency(frequency)
    first = datetime(1990, 1, 1)
    times = [step.add(first, number) for number in range(draw(st.integers(12, 40)))]
    kept = [time for time in times if draw(st.integers(0, 12))]
    kept = kept if len(kept) > 5 else times
    if draw(st.booleans()) and frequency in ("1h", "15min"):
        kept = [time + timedelta(seconds=draw(st.integers(-9, 9))) for time in kept]
    rows: list[tuple[object, int]] = [(form(time), number) for number, time in enumerate(kept)]
    _disturb(draw, rows)
    channels = tuple(draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)))
    time = draw(st.sampled_from(["date", "ds", "time", ""]))
    layout = Layout(day_first=True)
    if draw(st.booleans()):
        layout = replace(layout, id_column="unit", target_column="y")
        table: list[tuple[object, ...]] = [("unit", time or "date", "y")]
        for name in channels:
            start, end = draw(st.integers(0, 2)), len(rows) - draw(st.integers(0, 2))
            table += [(name, stamp, draw(VALUE)) for stamp, _ in rows[start:end]]
    else:
        columns = {time: [stamp for stamp, _ in rows]}
        columns |= {name: [draw(VALUE) for _ in rows] for name in channels}
        if draw(st.booleans()):
            columns["weather"] = ["sun" for _ in rows]
        if time and draw(st.booleans()):
            columns = {"": [number for _, number in rows], **columns}
        elif time and draw(st.booleans()):
            columns[time] = columns.pop(time)
        table = [tuple(columns), *zip(*columns.values(), strict=True)]
    if draw(st.booleans()):
        layout = replace(layout, frequency=frequency)
    lines = [";".join(map(str, row)) for row in table]
    return SeriesFile("\n".join(lines) + "\n", layout, channels, frequency)


def _disturb(draw: st.DrawFn, rows: list[tuple[object, int]]) -> None:
    """Bring rows into another order, repeat one, or make its time stamp unreadable; most often, do nothing."""
    match draw(st.sampled_from(["", "", "", "reversed", "repeated", "swapped", "unreadable"])):
        case "reversed":
            rows.reverse()
        case "repeated":
            rows.append(rows[-1])
        case "swapped":
            rows[3], rows[-1] = rows[-1], rows[3]
        case "unreadable":
            rows[5] = ("soon", 5)


def trained_series(path: Path, layout: Layout) -> tuple[Regular | None, str]:
    """What training reads, and its error."""
    try:
        return read_own_series(path, SeriesConfig(name="csv", fill=True, **asdict(layout))), ""
    except UserError as error:
        return None, str(error)


def predicted_series(
    path: Path, layout: Layout, channels: Sequence[str], frequency: str
) -> tuple[dict[str, list[float | None]], str]:
    """Channels that `predict` reads for a model of this layout, and its error."""
    manifest = forecaster(channels=channels, frequency=frequency, layout=asdict(layout)).manifest
    assert isinstance(manifest, ForecasterManifest)
    try:
        return read_channels(path, layout_of(manifest, PLAIN, "")), ""
    except InputError as error:
        return {}, str(error)


@settings(max_examples=3 * settings().max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(series())
def test_any_series_is_read_alike(tmp_path: Path, file: SeriesFile) -> None:
    path = tmp_path / "a.csv"
    path.write_text(file.content)
    note(file.content)
    trained, error = trained_series(path, file.layout)
    if trained is not None:
        assert set(trained.channels) == set(file.channels)
        read, stop = predicted_series(path, file.layout, trained.channels, trained.frequency)
        assert (tuple(read), stop) == (trained.channels, "")
        for column, values in zip(read.values(), trained.values.T, strict=True):
            np.testing.assert_array_equal(impute(np.array(column, np.float64)), values)
        return
    _, stop = predicted_series(path, file.layout, file.channels, file.frequency)
    if "at least half are needed" in error:  # to learn from; to forecast, the last steps must be there
        assert not stop
    elif file.layout.frequency:
        assert stop == error
    else:
        assert stop.partition("(")[0] == error.partition("(")[0] or "too many to interpolate" in error
