"""Frames of pandas and polars: what is sent, and the frames of made answers."""

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pytest
from longdoc_client import frames
from longdoc_client.errors import RequestError

LABELLED = {"label": "x", "score": 0.75, "coverage": {"known": 0.5}}
REFUSED = RequestError({"status": 413, "code": "payload_too_large", "detail": "too long"}, 1)


def sent(job: frames.Job) -> list[dict[str, Any]]:
    found = [json.loads(line) for call in job.calls for line in call.lines]
    assert len(found) == job.total
    return found


def forecasts(lines: list[dict[str, Any]], *levels: str) -> list[dict[str, Any]]:
    """Answers that repeat the last value twice, with time stamps a day apart."""
    found = []
    for line in lines:
        table = {name: [values[-1]] * 2 for name, values in line["series"].items()}
        days = len(next(iter(line["series"].values())))
        stamps = (
            [(datetime.fromisoformat(line["start"]) + timedelta(days=days + i)).isoformat() for i in range(2)]
            if "start" in line
            else None
        )
        found.append({"forecast": table, "quantiles": dict.fromkeys(levels, table), "timestamps": stamps})
    return found


def test_missing_texts_are_not_sent_and_the_index_stays() -> None:
    job = frames.classify(pd.Series(["a", None, "b", "c"], index=[5, 7, 9, 11], name="label"), {})
    assert sent(job) == [{"text": "a"}, {"text": "b"}, {"text": "c"}]
    found = job.finish([LABELLED, REFUSED, LABELLED])
    assert found.index.tolist() == [5, 7, 9, 11]
    assert found.columns.tolist() == ["label", "score", "known", "error"]
    assert found["score"].dropna().tolist() == [0.75, 0.75]
    errors = ["the text is missing", "413 payload_too_large: too long"]
    assert [error for error in found["error"] if isinstance(error, str)] == errors


def test_column_of_polars_gives_a_frame_of_polars() -> None:
    job = frames.classify(pl.Series("text", ["a", None]), {})
    assert sent(job) == [{"text": "a"}]
    found = job.finish([{**LABELLED, "labels": ["x", "y"]}])
    assert found.to_dict(as_series=False) == {
        "label": ["x", None],
        "score": [0.75, None],
        "labels": [["x", "y"], None],
        "known": [0.5, None],
        "error": [None, "the text is missing"],
    }


def test_frame_without_rows_gives_one_without_rows() -> None:
    for column in (pl.Series("text", [], dtype=pl.String), pd.Series([], dtype=str)):
        job = frames.classify(column, {})
        assert sent(job) == []
        assert len(job.finish([])) == 0


def test_pairs_are_two_columns() -> None:
    job = frames.score(pl.DataFrame({"q": ["a", "b"], "d": ["c", None]}), {})
    assert sent(job) == [{"a": "a", "b": "c"}]
    assert job.finish([{"score": 0.25}]).to_dict(as_series=False) == {
        "score": [0.25, None],
        "error": [None, "a text is missing"],
    }
    with pytest.raises(ValueError, match=r"expected two columns of texts, got 3: a, b, c"):
        frames.score(pd.DataFrame({"a": ["x"], "b": ["y"], "c": ["z"]}), {})


def test_wide_frame_is_one_request_with_its_times() -> None:
    index = pd.date_range("2024-01-01", periods=3, freq="D")
    data = pd.DataFrame({"sales": [1.0, None, 3.0], "stock": [4, 5, 6], "shop": list("abc")}, index=index)
    job = frames.forecast(data.iloc[::-1], None, None, None, {"horizon": 2})
    (line,) = sent(job)
    assert line == {
        "series": {"sales": [1.0, None, 3.0], "stock": [4, 5, 6]},
        "start": "2024-01-01T00:00:00",
        "frequency": "1d",
        "horizon": 2,
    }
    found = job.finish(forecasts([line], "0.9"))
    assert found.index.tolist() == [pd.Timestamp("2024-01-04"), pd.Timestamp("2024-01-05")]
    assert found.columns.tolist() == ["sales", "sales 0.9", "stock", "stock 0.9"]
    with pytest.raises(RequestError):
        job.finish([REFUSED])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (date(2024, 1, 4), date(2024, 1, 5)),
        (datetime(2024, 1, 4, 6), datetime(2024, 1, 5, 6)),
        ("2024-01-04", "2024-01-05"),
        ("2024-01-04T06:00:00", "2024-01-05T06:00:00"),
    ],
)
def test_times_keep_their_form(first: Any, second: Any) -> None:
    before = [day.isoformat() if isinstance(first, str) else day for day in (_earlier(first), _earlier(second))]
    data = pl.DataFrame({"day": before, "sales": [1.0, 2.0]})
    job = frames.forecast(data, "day", None, None, {})
    found = job.finish(forecasts(sent(job)))
    assert found.to_dict(as_series=False) == {"day": [first, second], "sales": [2.0, 2.0]}


def _earlier(time: Any) -> Any:
    """Two days before."""
    if isinstance(time, str):
        time = date.fromisoformat(time) if len(time) == 10 else datetime.fromisoformat(time)
    return time - timedelta(days=2)


def test_long_frame_has_a_line_for_each_series() -> None:
    data = pl.DataFrame(
        {
            "shop": ["b", "a", "b", "a"],
            "day": ["2024-01-02", "2024-01-01", "2024-01-01", "2024-01-02"],
            "sales": [2.0, 10.0, 1.0, None],
        }
    )
    job = frames.forecast(data, "day", "shop", "sales", {"quantiles": [0.9]})
    lines = sent(job)
    assert [line["series"] for line in lines] == [{"sales": [1.0, 2.0]}, {"sales": [10.0, None]}]
    found = job.finish([forecasts(lines, "0.9")[0], REFUSED])
    assert found.to_dict(as_series=False) == {
        "shop": ["b", "b", "a"],
        "day": ["2024-01-03", "2024-01-04", None],
        "sales": [2.0, 2.0, None],
        "sales 0.9": [2.0, 2.0, None],
        "error": [None, None, "413 payload_too_large: too long"],
    }


@pytest.mark.parametrize("kind", ["Int64", "Float64", "int64[pyarrow]"])
def test_missing_numbers_of_pandas_are_null(kind: str) -> None:
    data = pd.DataFrame({"name": ["a"] * 3, "sales": pd.Series([1, None, 3], dtype=kind)})
    (wide,) = sent(frames.forecast(data, None, None, None, {}))
    (long,) = sent(frames.forecast(data, None, "name", "sales", {}))
    assert wide["series"] == long["series"] == {"sales": [1, None, 3]}


def test_decimals_are_numbers() -> None:
    (line,) = sent(frames.forecast(pl.DataFrame({"sales": [Decimal("1.5")]}), None, None, None, {}))
    assert line["series"] == {"sales": [1.5]}


def test_names_of_columns_may_be_numbers() -> None:
    data = pd.DataFrame({0: ["a", "a"], 1: [1.0, 2.0]})
    names: list[Any] = [(None, None), (0, 1)]
    for id_column, target_column in names:
        job = frames.forecast(data, None, id_column, target_column, {})
        assert job.finish(forecasts(sent(job)))["1"].tolist() == [2.0, 2.0]


def test_index_may_have_the_name_of_a_column() -> None:
    data = pd.DataFrame({"day": [1.0, 2.0]}, index=pd.date_range("2024-01-01", periods=2, name="day"))
    job = frames.forecast(data, None, None, None, {})
    found = job.finish(forecasts(sent(job)))
    assert (found.index.name, found.columns.tolist()) == ("day", ["day"])
    assert found.index.tolist() == [pd.Timestamp("2024-01-03"), pd.Timestamp("2024-01-04")]


@pytest.mark.parametrize(("freq", "step"), [("M", "1mo"), ("D", "1d"), ("Q", "3mo")])
def test_periods_of_pandas_are_times(freq: str, step: str) -> None:
    index = pd.period_range("2024-01-01", periods=5, freq=freq, name="when")
    job = frames.forecast(pd.DataFrame({"v": [1.0, 2.0, 3.0]}, index=index[:3]), None, None, None, {})
    (line,) = sent(job)
    assert (line["start"], line["frequency"]) == ("2024-01-01T00:00:00", step)
    stamps = [time.isoformat() for time in index[3:].to_timestamp()]
    found = job.finish([{"forecast": {"v": [3.0, 3.0]}, "quantiles": {}, "timestamps": stamps}])
    assert found.index.equals(index[3:])
    assert found.index.name == "when"


def test_a_time_column_comes_before_an_index_of_periods() -> None:
    index = pd.period_range("2024-01", periods=2, freq="M")
    data = pd.DataFrame({"day": ["2024-01-01", "2024-01-02"], "v": [1.0, 2.0]}, index=index)
    job = frames.forecast(data, "day", None, None, {})
    found = job.finish(forecasts(sent(job)))
    assert found["day"].tolist() == ["2024-01-03", "2024-01-04"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(
    ("first", "step", "start"),
    [
        ("2024-03-30 00:00", "D", "2024-03-30T00:00:00"),
        ("2024-03-31 01:00", "h", "2024-03-31T00:00:00+00:00"),
        ("2024-10-27 01:00", "h", "2024-10-26T23:00:00+00:00"),
    ],
)
def test_days_follow_the_clock_on_the_wall_and_hours_do_not(library: str, first: str, step: str, start: str) -> None:
    times = pd.date_range(first, periods=5, freq=step, tz="Europe/Berlin")
    data: Any = pd.DataFrame({"t": times[:3], "v": [1.0, 2.0, 3.0]})
    job = frames.forecast(data if library == "pandas" else pl.from_pandas(data), "t", None, None, {})
    (line,) = sent(job)
    assert (line["start"], line["frequency"]) == (start, f"1{step.lower()}")
    size = timedelta(days=1) if step == "D" else timedelta(hours=1)
    stamps = [(datetime.fromisoformat(start) + size * number).isoformat() for number in (3, 4)]
    answer = {"forecast": {"v": [3.0, 3.0]}, "quantiles": {}, "timestamps": stamps}
    assert [pd.Timestamp(time) for time in job.finish([answer])["t"].to_list()] == times[3:].tolist()


@pytest.mark.parametrize(
    ("times", "step"),
    [
        (["2024-01-01T00:00", "2024-01-01T00:15", "2024-01-01T00:30"], "15min"),
        (["2024-01-01", "2024-01-08", "2024-01-15"], "1w"),
        (["2024-01-31", "2024-02-29", "2024-03-31"], "1mo"),
        (["2024-01-01", "2024-04-01", "2024-07-01"], "3mo"),
        (["2023-01-01", "2024-01-01", "2025-01-01"], "12mo"),
        (["2024-01-04", "2024-01-05", "2024-01-08"], "1b"),
    ],
)
def test_step_is_found(times: list[str], step: str) -> None:
    job = frames.forecast(pl.DataFrame({"t": times, "v": [1.0, 2.0, 3.0]}), "t", None, None, {})
    assert sent(job)[0]["frequency"] == step


def test_given_frequency_does_not_hide_a_gap() -> None:
    data = pl.DataFrame({"t": ["2024-01-01", "2024-01-02", "2024-01-05"], "v": [1.0] * 3})
    with pytest.raises(ValueError, match="t: after 2024-01-02"):
        frames.forecast(data, "t", None, None, {"frequency": "1d"})
    (line,) = sent(frames.forecast(data[:1], "t", None, None, {"frequency": "1d"}))
    assert line["frequency"] == "1d"


@pytest.mark.parametrize(
    ("data", "columns", "message"),
    [
        ({"t": ["2024-01-01", "2024-01-02", "2024-01-04", "2024-01-05"], "v": [1.0] * 4}, ("t", None, None),
         "t: after 2024-01-02 00:00:00 comes 2024-01-04 00:00:00, but most steps are 1 day"),
        ({"t": ["2024-01-01", "2024-01-01"], "v": [1.0] * 2}, ("t", None, None), "t: 2024-01-01 00:00:00 occurs twice"),
        ({"t": ["2024-01-01", None], "v": [1.0] * 2}, ("t", None, None), "t: row 1 has no time in ISO 8601, but None"),
        ({"t": ["2024-01-01", "soon"], "v": [1.0] * 2}, ("t", None, None), "t: row 1 has no time .*, but 'soon'"),
        ({"t": ["2024-01-01T00:00", "2024-01-02T00:00Z"], "v": [1.0] * 2}, ("t", None, None),
         "t: some times have an offset from UTC, and others none"),
        ({"v": [1.0, float("-inf")]}, (None, None, None), "v: row 1 is -inf; expected a number, or a missing value"),
        ({"id": ["a", None], "v": [1.0] * 2}, (None, "id", "v"), "id: row 1 names no series"),
        ({"v": ["a"]}, (None, None, None), "no column holds numbers; columns: v"),
        ({"t": [date(2024, 1, 1)], "v": [1.0]}, (None, None, None), "t holds times; name it with time_column"),
        ({"t": [datetime(2024, 1, 1)], "v": [1.0]}, (None, None, None), "t holds times; name it with time_column"),
        ({"t": [date(2024, 1, 1)], "v": [1.0], "id": ["a"]}, (None, "id", "v"), "t holds times; name it"),
        ({"v": ["a"]}, (None, "v", None), "a long frame needs both id_column and target_column"),
    ],
)  # fmt: skip
def test_frame_that_cannot_be_sent_is_an_error(
    data: Any, columns: tuple[str | None, str | None, str | None], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        frames.forecast(pl.DataFrame(data), *columns, {})


@pytest.mark.parametrize("options", [{}, {"frequency": "1d"}])
def test_missing_time_of_pandas_is_an_error(options: dict[str, Any]) -> None:
    data = pd.DataFrame({"t": pd.to_datetime(["2024-01-01", None, "2024-01-03"]), "v": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match="t: row 1 has no time in ISO 8601, but NaT"):
        frames.forecast(data, "t", None, None, options)
