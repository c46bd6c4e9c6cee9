"""Forecasts of the series of a table, in the layout of the table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifact.errors import InputError
from artifact.local import Model
from artifact.series import PLAIN, Layout
from artifact.univariate.features import MEDIAN
from service.offline.compute import PredictOptions
from service.offline.forecasts import forecast_table
from tests.support.models import any_series, quantiles_of

SALES = [12.0, 15.0, 14.0, 18.0, 17.0, 21.0, 22.0, 25.0]
STOCK = [5.0, 4.0, 6.0, 5.0, 7.0, 6.0, 8.0, 7.0]


def forecast(
    path: Path, text: str, layout: Layout = PLAIN, **options: Any
) -> tuple[list[list[object]], tuple[str, ...]]:
    """Return the table and the notes for a file."""
    (path / "t.csv").write_text(text)
    rows, notes = forecast_table(Model(any_series()), path / "t.csv", layout, PredictOptions(**options))
    return list(rows), notes


def medians(values: list[float], horizon: int, season: int) -> Any:
    return pytest.approx(quantiles_of(values, (season,))[MEDIAN, :horizon], rel=1e-5)


def wide(stamps: list[str]) -> str:
    rows = [f"{stamp},{sale},{stock}" for stamp, sale, stock in zip(stamps, SALES, STOCK, strict=True)]
    return "\n".join(["when,sales,stock", *rows]) + "\n"


MONTHS = [f"2024-{month:02}" for month in range(5, 13)]


def test_wide_table_is_continued(tmp_path: Path) -> None:
    (header, *rows), notes = forecast(tmp_path, wide(MONTHS), horizon=3, quantiles=(0.1, 0.9))
    assert header == ["when", "sales", "sales 0.1", "sales 0.9", "stock", "stock 0.1", "stock 0.9"]
    stamps, *columns = zip(*rows, strict=True)
    assert stamps == ("2025-01", "2025-02", "2025-03")
    assert notes[-1] == "season 12, from the frequency"
    for values, (median, low, high) in ((SALES, columns[:3]), (STOCK, columns[3:])):
        expected = quantiles_of(values, (12,))[:, :3]
        assert np.array([low, median, high]) == pytest.approx(expected[[0, MEDIAN, -1]], rel=1e-5)


@pytest.mark.parametrize(
    ("stamps", "following"),
    [
        ([f"2023-{month}" for month in ("05-31", "06-30", "07-31", "08-31", "09-30", "10-31", "11-30", "12-31")],
         ["2024-01-31", "2024-02-29"]),
        ([f"2024-01-01 0{hour}:00:00" for hour in range(8)], ["2024-01-01 08:00:00", "2024-01-01 09:00:00"]),
        ([f"2024-01-01T0{hour}:00:00" for hour in range(8)], ["2024-01-01T08:00:00", "2024-01-01T09:00:00"]),
        ([str(year) for year in range(2001, 2009)], ["2009", "2010"]),
        ([str(count) for count in range(1, 9)], ["9", "10"]),
        ([str(10 * count) for count in range(1, 9)], ["90", "100"]),
        ([f"2024-01-{day:02}" for day in (1, 2, 4, 8, 9, 20, 21, 30)], ["", ""]),
    ],
)  # fmt: skip
def test_time_stamps_go_on_in_their_format(tmp_path: Path, stamps: list[str], following: list[str]) -> None:
    layout = Layout(frequency="irregular" if following == ["", ""] else "")
    (_, *rows), _ = forecast(tmp_path, wide(stamps), layout, horizon=2, season=(1,))
    assert [row[0] for row in rows] == following


def test_table_without_times_has_none_in_the_answer(tmp_path: Path) -> None:
    text = "sales\n" + "".join(f"{value}\n" for value in SALES)
    (header, *rows), notes = forecast(tmp_path, text, horizon=2)
    assert header == ["sales"]
    assert [row[0] for row in rows] == medians(SALES, 2, 1)
    assert notes[-1] == "season sales: 1, from the data"


def test_long_table_is_continued_each_series_from_its_own_end(tmp_path: Path) -> None:
    rows = [f"a,{month},{value}" for month, value in zip(MONTHS, SALES, strict=True)]
    rows += [f"b,{month},{value}" for month, value in zip(MONTHS[:6], STOCK, strict=False)]
    text = "\n".join(["shop,month,sold", *rows]) + "\n"
    for layout in (PLAIN, Layout(id_column="shop", target_column="sold")):
        (header, *found), _ = forecast(tmp_path, text, layout, horizon=2, quantiles=(0.5,))
        assert header == ["shop", "month", "sold", "sold 0.5"]
        assert [row[:2] for row in found] == [["a", "2025-01"], ["a", "2025-02"], ["b", "2024-11"], ["b", "2024-12"]]
        values = [row[2] for row in found]
        assert values == [row[3] for row in found]
        assert values[:2] == medians(SALES, 2, 12)
        assert values[2:] == medians(STOCK[:6], 2, 12)


def test_options_are_those_of_the_request(tmp_path: Path) -> None:
    rows = [f"{month},{value}" for month, value in zip(MONTHS, (0, 3, 0, 0, 2, 0, 1, 0), strict=True)]
    text = "\n".join(["when,x", *rows]) + "\n"
    (_, *found), notes = forecast(tmp_path, text, quantiles=(0.1,), season=(4,), non_negative=True)
    assert notes[-1] == "season 4, from the request"
    assert len(found) == 4
    assert 0 in [row[2] for row in found]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("when,x\n2024-01,\n2024-02,\n", {}, "t.csv"),
        ("x\n3\n1\n2\n", {"horizon": 10_000}, "horizon: must be from 1 to 960, not 10000"),
        ("x\n3\n1\n2\n", {"layout": Layout(frequency="often")}, "frequency: expected"),
        ("x\n3\n1\n2\n", {"quantiles": (0.99,)}, "quantiles: levels must be from 0.1 to 0.9"),
    ],
)
def test_error_names_the_file(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        forecast(tmp_path, text, **options)
    assert "t.csv" in str(caught.value)
