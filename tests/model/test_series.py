import gzip
from pathlib import Path

import numpy as np
import pytest

from model.config import SeriesConfig
from model.data.series import SOURCES, load_series, read_csv
from model.errors import UserError


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / SOURCES[name].file
    path.write_bytes(gzip.compress(text.encode()))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """100 rows: a ramp and a square."""
    rows = "".join(f"2020-01-{i},{i},{i * i}\n" for i in range(100))
    write(tmp_path, "exchange", "date,ramp,square\n" + rows)
    return tmp_path


def test_splits_are_in_order_and_scaled_by_training_alone(folder: Path) -> None:
    series = load_series(SeriesConfig("exchange"), folder)
    assert series.boundaries == (70, 80, 100)
    assert series.channels == ("ramp", "square")
    ramp = np.arange(100.0)
    expected = (ramp - ramp[:70].mean()) / ramp[:70].std()
    assert series.values[:, 0] == pytest.approx(expected, rel=1e-6)
    assert series.timestamps[99] == "2020-01-99"


def test_no_forecast_crosses_into_another_split(folder: Path) -> None:
    series = load_series(SeriesConfig("exchange"), folder)
    bounds = {"train": (0, 70), "validation": (70, 80), "test": (80, 100)}
    for split, (first, end) in bounds.items():
        windows = series.windows(split, 10, 4)  # type: ignore[arg-type]
        targets = windows[:, 0, 10:] * series.scale[0] + series.mean[0]
        expected_first = max(first, 10)
        assert targets.min() == pytest.approx(expected_first, abs=1e-3)
        assert targets.max() == pytest.approx(end - 1, abs=1e-3)
        assert len(windows) == end - expected_first - 3, "every window, the last one too"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ":1: expected a time column"),
        ("date\n", ":1: expected a time column"),
        ("date,a\n", "has no rows"),
        ("date,a,b\n1,2,3\n2,3\n", ":3: 2 cells under 3 columns"),
        ("date,a,b\n1,2,x\n", ":2: column b: not a number: 'x'"),
        ("date,a,b\n1,2,\n", ":2: column b: not a number"),
        ("date,a,b\n1,nan,3\n", ":2: column a: not a finite number"),
    ],
)
def test_bad_cells_are_named_with_line_and_column(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(UserError) as caught:
        read_csv(tmp_path / "x.csv")
    assert words in str(caught.value)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exchange_rate"):
        load_series(SeriesConfig("exchange"), tmp_path)
    (tmp_path / "exchange_rate.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(UserError, match="exchange_rate"):
        load_series(SeriesConfig("exchange"), tmp_path)


def test_short_and_constant_series_are_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UserError, match="90 are needed"):
        load_series(SeriesConfig("exchange"), folder).windows("validation", 40, 50)
    write(tmp_path, "ili", "date,a\n" + "1,5\n" * 50)
    with pytest.raises(UserError, match="column a is constant"):
        load_series(SeriesConfig("ili"), tmp_path)
