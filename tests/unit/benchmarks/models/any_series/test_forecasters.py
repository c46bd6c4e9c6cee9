"""Forecasters against slow references."""

import math
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import artifact
from artifact.arrays import Doubles
from benchmarks.models.any_series import forecasters
from benchmarks.models.any_series.forecasters import (
    LEVELS,
    any_series,
    auto_ets,
    each,
    linear_map,
    naive,
    seasonal_naive,
    theta,
    trained_export,
)
from benchmarks.models.any_series.series import LongSet
from tests.support.paths import EXPORTS


def slow_seasonal_naive(past: list[float], season: int, horizon: int) -> list[list[float]]:
    rows = []
    for step in range(1, horizon + 1):
        seasons = known = math.ceil(step / season)
        while not (changes := [(past[i] - past[i - known * season]) ** 2 for i in range(known * season, len(past))]):
            known -= 1
        deviation = math.sqrt(statistics.mean(changes) * seasons / known)
        last = past[len(past) + step - 1 - seasons * season]
        rows.append([statistics.NormalDist(last, deviation).inv_cdf(level) for level in LEVELS])
    return rows


@pytest.mark.parametrize("season", [1, 4, 7])
def test_seasonal_naive_repeats_the_last_season(season: int) -> None:
    past = np.random.default_rng(0).normal(10, 3, 23)
    found = seasonal_naive(past, season, 30)
    np.testing.assert_allclose(found, slow_seasonal_naive(past.tolist(), season, 30))
    np.testing.assert_allclose(naive(past, season, 30), slow_seasonal_naive(past.tolist(), 1, 30))


def test_seasonal_naive_of_a_past_within_a_season_is_naive() -> None:
    past = np.array([3.0, 5.0, 4.0])
    assert seasonal_naive(past, 3, 4).tolist() == naive(past, 3, 4).tolist()
    assert seasonal_naive(past[:1], 12, 2).tolist() == [[3.0] * len(LEVELS)] * 2


def test_bands_of_naive_cover_random_walks() -> None:
    walks = np.random.default_rng(0).normal(size=(2_000, 412)).cumsum(1)
    inside = []
    for walk in walks:
        quantiles = naive(walk[:400], 1, 12)
        inside.append((quantiles[:, 0] <= walk[400:]) & (walk[400:] <= quantiles[:, -1]))
    np.testing.assert_allclose(np.mean(inside, axis=0), 0.8, atol=0.03)


class Model:
    """A model of statsforecast, whose answer tells what it was given."""

    def __init__(self, season_length: int) -> None:
        self.season = season_length

    def forecast(self, y: Doubles, h: int, level: list[int]) -> dict[str, Doubles]:
        bands = {f"{end}-{each}": np.full(h, sign * each) for each in level for end, sign in (("lo", -1), ("hi", 1))}
        return {"mean": np.full(h, self.season + y[-1]), **bands}


def test_quantiles_of_statsforecast_are_the_ends_of_its_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsforecast.models", SimpleNamespace(Theta=Model, AutoETS=Model))
    past = np.zeros(5)
    assert theta(past, 144, 2).tolist() == [[-80, -60, -40, -20, 144, 20, 40, 60, 80]] * 2
    assert auto_ets(past, 12, 1).tolist() == [[-80, -60, -40, -20, 12, 20, 40, 60, 80]]
    assert auto_ets(past, 52, 1)[0, 4] == 1  # its seasons have at most 24 steps


def slow_linear_map(data: LongSet, context: int) -> tuple[Doubles, dict[str, Doubles]]:
    """Weights by least squares over all windows, and the sorted errors of each channel by step."""
    horizon, train, test = data.steps[1], int(0.7 * len(data.values)), int(0.8 * len(data.values))
    x, y = [], []
    for column, unit in zip(data.values.T, data.values[:train].std(0), strict=True):
        for start in range(context, train - horizon + 1):
            last = column[start - 1]
            x.append([*((column[start - context : start] - last) / unit), 1])
            y.append((column[start : start + horizon] - last) / unit)
    ridge = math.sqrt(forecasters.RIDGE * len(x)) * np.eye(context + 1)
    weights = np.linalg.lstsq(np.array([*x, *ridge]), np.array([*y, *np.zeros((context + 1, horizon))]))[0]
    errors = {}
    for channel, column, unit in zip(data.channels, data.values.T, data.values[:train].std(0), strict=True):
        rows = []
        for start in range(train, test - horizon + 1):
            last = column[start - 1]
            point = np.array([*((column[start - context : start] - last) / unit), 1]) @ weights * unit + last
            rows.append(column[start : start + horizon] - point)
        errors[channel] = np.array(rows)
    return weights, errors


def test_linear_map_is_the_least_squares_solution_with_the_errors_after_training(ett: LongSet) -> None:
    context, windows = 6, ett.series()
    weights, errors = slow_linear_map(ett, context)
    for window, quantiles in zip(windows, linear_map(ett, context)(windows), strict=True):
        channel, last = window.name.partition("/")[2], window.past[-1]
        point = np.array([*((window.past[-context:] - last) / window.unit), 1]) @ weights * window.unit + last
        np.testing.assert_allclose(quantiles[:, 4], point, rtol=1e-8)
        low = point + np.quantile(errors[channel], 0.1, axis=0)
        np.testing.assert_allclose(quantiles[:, 0], low, rtol=1e-8)


def test_trained_export_reads_all_channels_of_a_window() -> None:
    model = artifact.load(EXPORTS / "exchange", device="cpu")
    channels: tuple[str, ...] = model.manifest.channels  # type: ignore[attr-defined]  # of a forecaster
    values = np.random.default_rng(0).normal(0, 0.01, (1_000, len(channels))).cumsum(0) + 1
    windows = LongSet("Exchange", 1, (24, 96), channels, values).series()[: 2 * len(channels)]
    found = list(trained_export(EXPORTS / "exchange")(windows))
    for start in (0, len(channels)):
        pasts = [window.past.tolist() for window in windows[start : start + len(channels)]]
        answer = model.forecast(pasts, horizon=96, quantiles=(0.1, 0.8))
        for index in range(len(channels)):
            quantiles = found[start + index]
            assert quantiles.shape == (96, len(LEVELS))
            assert quantiles[:, 4].tolist() == answer["forecast"][index]
            assert quantiles[:, 0].tolist() == answer["quantiles"]["0.1"][index]
            assert quantiles[:, 7].tolist() == answer["quantiles"]["0.8"][index]


def test_export_for_any_series_gets_past_season_and_horizon(monkeypatch: pytest.MonkeyPatch, ett: LongSet) -> None:
    class Loaded:
        def forecast(self, past: Doubles, *, season: int, horizon: int, quantiles: tuple[float, ...]) -> dict[str, Any]:
            return {"quantiles": {str(level): [past[-1] + season + level] * horizon for level in quantiles}}

    monkeypatch.setattr(artifact, "load", lambda export, device: {(Path("any"), "cpu"): Loaded()}[export, device])
    (window,) = ett.series()[:1]
    (found,) = each(any_series(Path("any")))([window])
    assert found.tolist() == [[window.past[-1] + 24 + level for level in LEVELS]] * 96
