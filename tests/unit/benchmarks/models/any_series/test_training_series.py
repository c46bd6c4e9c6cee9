"""Tables of the series of competitions that train any-series, without what it is measured on."""

import sys
from pathlib import Path

import numpy as np
import pytest

from artifact.series import PLAIN
from artifact.tables.timeline import align, read_series
from benchmarks.models.any_series import training_series
from benchmarks.models.any_series.series import COMPETITIONS, Series


def one(collection: str, name: str, frequency: str, values: list[float]) -> Series:
    return Series(collection, name, frequency, 1, np.array(values[:-2]), np.array(values[-2:]), 1.0)


@pytest.fixture(autouse=True)
def competitions(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Series]]:
    """Each has two yearly, a monthly and an irregular series; a yearly one of M1 holds the end of one of M3."""
    values = np.random.default_rng(0).uniform(50, 100, (12, 20))
    values[4, :8] = 2 * values[0, 12:]
    rows = iter(values.round(6).tolist())
    found = {
        name: [one(name, f"{name}{place}", kind, next(rows)) for place, kind in enumerate(kinds)]
        for name in COMPETITIONS
        for kinds in [("yearly", "yearly", "monthly", "other")]
    }
    monkeypatch.setattr(training_series, "competition", found.__getitem__)
    return found


def test_tables_hold_the_pasts_of_series_that_share_no_values(
    tmp_path: Path,
    competitions: dict[str, list[Series]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["training_series", str(tmp_path / "out")])
    training_series.main()
    files = {path.relative_to(tmp_path / "out").as_posix() for path in tmp_path.glob("out/*/*")}
    assert files == {
        f"{folder}/{name}.csv" for folder in ("M3", "M1-Tourism") for name in ("yearly", "monthly", "other")
    }
    assert capsys.readouterr().out == (
        "M1: 3 series; 1 share values with M3\n"
        "Tourism: 4 series; 0 share values with M3\n"
        "M3: 3 series; 1 share values with M1 or Tourism\n"
    )
    for frequency, step in (("yearly", "1y"), ("monthly", "1mo"), ("other", "irregular")):
        path = tmp_path / "out" / "M1-Tourism" / f"{frequency}.csv"
        timeline = align(read_series(path, PLAIN, finds_long=True), PLAIN, fill=True)
        assert timeline.frequency == step
        expected = {
            f"{series.collection}-{series.name}": series.past.tolist()
            for name in ("M1", "Tourism")
            for series in competitions[name]
            if series.frequency == frequency and series.name != "M10"
        }
        assert dict(zip(timeline.channels, timeline.values.T.tolist(), strict=True)) == expected


def test_series_that_are_left_out_are_counted() -> None:
    assert training_series.left_out() == {"M1": [3, 1], "Tourism": [4, 0], "M3": [3, 1]}
