"""A benchmark of a few series, with fast forecasters in the place of the slow ones."""

from pathlib import Path

import numpy as np
import pytest

from artifact.arrays import Doubles
from benchmarks.lib.record import Data
from benchmarks.models.any_series import __main__ as program
from benchmarks.models.any_series import training_series
from benchmarks.models.any_series.__main__ import BENCHMARK, BOTH, LINEAR, SEASONAL, seeds_of
from benchmarks.models.any_series.forecasters import Forecaster, naive
from benchmarks.models.any_series.series import COMPETITIONS, LongSet, Series
from tests.unit.benchmarks.models.any_series.conftest import quarterly


def plus(constant: float) -> Forecaster:
    """The last value and a constant."""

    def forecast(past: Doubles, season: int, horizon: int) -> Doubles:
        return naive(past, season, horizon) + constant

    return forecast


@pytest.fixture
def competitions(monkeypatch: pytest.MonkeyPatch, ett: LongSet) -> dict[str, list[Series]]:
    """Two series of each competition; the second series are copies of one."""
    values = np.random.default_rng(0).normal(50, 10, (4, 24)).tolist()
    found = {
        name: [quarterly("own", values[i], 4), quarterly("copy", values[3], 4)] for i, name in enumerate(COMPETITIONS)
    }
    for module in (program, training_series):
        monkeypatch.setattr(module, "competition", found.__getitem__)
    monkeypatch.setattr(program, "long_set", lambda name, data_dir: {("ETTh2", Path("data")): ett}[name, data_dir])
    monkeypatch.setattr(program, "SLOW", {"Theta": plus(1), "AutoETS": plus(3)})
    monkeypatch.setattr(program, "versioned", lambda label: f"{label} 1")
    monkeypatch.setattr(program, "any_series", lambda path: plus(len(path.as_posix())))
    return found


def measured(folder: Path, *arguments: str) -> Data:
    given = ["--out", str(folder), "--runs", str(folder), "--data-dir", "data", *arguments]
    *_, data = BENCHMARK.measure(BENCHMARK.parse(given))
    return data


def mean(data: Data, label: str, measure: str = "mae") -> list[float]:
    """Values of a forecaster, over all series of M1."""
    (found,) = [row[measure] for row in data["M1"]["rows"] if (row["part"], row["forecaster"]) == ("all", label)]
    return list(found)


@pytest.mark.usefixtures("competitions")
def test_all_forecasters_are_measured_and_what_competitions_share(tmp_path: Path) -> None:
    data = measured(tmp_path, "--sets", *COMPETITIONS, "--any", "exports/two")
    assert data["overlap"] == [("M3", "M1", 1), ("M3", "Tourism", 1), ("M1", "Tourism", 1)]
    assert data["left_out"] == {"M1": [1, 1], "Tourism": [1, 1], "M3": [1, 1]}
    found = [row["forecaster"] for row in data["table"]["M1"]["rows"] if row["part"] == "all"]
    assert found == ["naive", SEASONAL, "Theta", "AutoETS", "two", BOTH]
    assert mean(data["table"], BOTH, "interval") != mean(data["table"], "Theta", "interval")
    assert {label: count for label, (count, _) in data["seconds"].items()} == {"Theta": 4, "AutoETS": 4}
    compared = {row["less"] for row in data["table"]["M1"]["differences"]}
    assert compared == {SEASONAL, "Theta", "AutoETS", BOTH}


@pytest.mark.usefixtures("competitions")
def test_forecasters_of_a_long_set_are_trained_on_it(tmp_path: Path) -> None:
    data = measured(tmp_path, "--sets", "ETTh2")
    mse = {row["forecaster"]: row["mse"][0] for row in data["table"]["ETTh2"]["rows"] if row["part"] == "24 steps"}
    assert {*LINEAR} < {*mse}
    assert mse[LINEAR[0]] < 0.5 * mse["naive"]  # a wave
    assert data["overlap"] == []


@pytest.mark.usefixtures("competitions")
def test_ablation_has_a_value_of_each_seed_and_stays_in_the_record(tmp_path: Path) -> None:
    for name in ("s3-seed0", "s3-seed1", "softmax-seed10"):
        (tmp_path / "variants" / name / "any-series").mkdir(parents=True)
    assert {name: len(paths) for name, paths in seeds_of(tmp_path / "variants").items()} == {"s3": 2, "softmax": 1}
    arguments = ["--out", str(tmp_path), "--runs", str(tmp_path), "--sets", "M1"]
    BENCHMARK.main([*arguments, "--ablation", str(tmp_path / "variants")])
    first = measured(tmp_path, "--sets", "M1")["ablation"]
    assert len(mean(first, "s3")) == 2
    (difference,) = first["M1"]["differences"]
    assert (difference["forecaster"], difference["less"]) == ("softmax", "s3")
    assert difference["mae"][0] == pytest.approx(mean(first, "softmax")[0] - np.mean(mean(first, "s3")))


@pytest.mark.usefixtures("competitions")
def test_variant_is_not_measured_on_series_that_it_was_trained_on(tmp_path: Path) -> None:
    for name in ("s3-seed0", "s3-M1-Tourism-seed0", "s3-M3-seed0"):
        (tmp_path / "variants" / name / "any-series").mkdir(parents=True)
    data = measured(tmp_path, "--sets", "M1", "M3", "--ablation", str(tmp_path / "variants"))
    found = {name: {row["forecaster"] for row in data["ablation"][name]["rows"]} for name in ("M1", "M3")}
    assert found == {"M1": {"s3", "s3-M3"}, "M3": {"s3", "s3-M1-Tourism"}}


def test_speed_is_measured_alone(
    tmp_path: Path, competitions: dict[str, list[Series]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "speed", lambda export, series: {"export": export, "series": series})
    data = measured(tmp_path, "--speed")
    assert data["table"] == {}
    assert data["speed"] == {"export": Path("exports/any-series"), "series": competitions["M3"]}
