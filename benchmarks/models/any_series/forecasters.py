"""Forecasters: functions of the past of a series, its season and the number of steps; and those trained on a set."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

import artifact
from artifact.arrays import Doubles
from benchmarks.models.any_series.series import FILES, TEST, LongSet, Series, channel_of

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
POINT = 4
"""Index of the level whose forecast is compared with the future. There, forecasters that have one give their mean."""
SCORES = np.array([statistics.NormalDist().inv_cdf(level) for level in LEVELS])
BANDS = (80, 60, 40, 20)
"""Bands of statsforecast, in percent, whose ends are the quantiles at LEVELS."""
LONGEST_ETS_SEASON = 24
"""Above, statsforecast's AutoETS has no seasonal part."""
CONTEXTS = {**dict.fromkeys(FILES, (96, 512)), "ILI": (36, 104)}
"""Long set -> steps that its two linear maps read."""
RIDGE = 1e-4
FITTED = 3_000
"""Windows of each channel to which a linear map is fitted, at most twice as many."""

Forecaster = Callable[[Doubles, int, int], Doubles]
"""(past, season, horizon) -> quantiles at LEVELS, (horizon, 9)."""
Forecasts = Callable[[Sequence[Series]], Iterator[Doubles]]
"""Series of a collection -> quantiles of each one."""


def each(forecaster: Forecaster) -> Forecasts:
    """Forecast each series alone."""
    return lambda series: (forecaster(one.past, one.season, len(one.future)) for one in series)


def naive(past: Doubles, season: int, horizon: int) -> Doubles:
    """The last value goes on."""
    del season
    return seasonal_naive(past, 1, horizon)


def seasonal_naive(past: Doubles, season: int, horizon: int) -> Doubles:
    """The last season is repeated; as `naive` if the past is no longer than a season.

    The quantiles are those of normal errors of the size that such a forecast had in the past, the same number of
    seasons ahead. Beyond the length of the past, its square grows by the season.
    """
    season = season if len(past) > season else 1
    steps, longest = np.arange(horizon), max(1, (len(past) - 1) // season)
    deviations = list[float]()
    for seasons in range(1, (horizon - 1) // season + 2):
        known = min(seasons, longest)
        errors = past[known * season :] - past[: -known * season]
        deviations.append(np.sqrt((errors**2).sum() / max(1, len(errors)) * seasons / known))
    scales = np.array(deviations)[steps // season]
    found: Doubles = past[len(past) - season + steps % season][:, None] + scales[:, None] * SCORES
    return found


def theta(past: Doubles, season: int, horizon: int) -> Doubles:
    """Theta of statsforecast."""
    from statsforecast.models import Theta

    return _quantiles(Theta(season_length=season).forecast(y=past, h=horizon, level=list(BANDS)))


def auto_ets(past: Doubles, season: int, horizon: int) -> Doubles:
    """AutoETS of statsforecast."""
    from statsforecast.models import AutoETS

    model = AutoETS(season_length=season if season <= LONGEST_ETS_SEASON else 1)
    return _quantiles(model.forecast(y=past, h=horizon, level=list(BANDS)))


def _quantiles(answer: dict[str, Any]) -> Doubles:
    """Quantiles of an answer of statsforecast."""
    low, high = [f"lo-{band}" for band in BANDS], [f"hi-{band}" for band in reversed(BANDS)]
    return np.stack([answer[name] for name in (*low, "mean", *high)], axis=1).astype(np.float64)


def any_series(export: Path) -> Forecaster:
    """An export that forecasts any series."""
    model: Any = artifact.load(export, device="cpu")

    def forecast(past: Doubles, season: int, horizon: int) -> Doubles:
        answer = model.forecast(past, season=season, horizon=horizon, quantiles=LEVELS)
        return np.array([answer["quantiles"][str(level)] for level in LEVELS]).T

    return forecast


def trained_export(export: Path) -> Forecasts:
    """An export that was trained on the set. It reads all channels at once."""
    model = artifact.load(export, device="cpu")

    def forecasts(series: Sequence[Series]) -> Iterator[Doubles]:
        for _, windows in groupby(series, lambda one: channel_of(one)[0]):
            group = {channel_of(one)[1]: one for one in windows}
            horizon = len(next(iter(group.values())).future)
            answer = model.forecast(
                {name: one.past.tolist() for name, one in group.items()}, horizon=horizon, quantiles=LEVELS
            )
            for name in group:
                quantiles = np.array([answer["quantiles"][str(level)][name] for level in LEVELS]).T
                quantiles[:, POINT] = answer["forecast"][name]
                yield quantiles

    return forecasts


def linear_map(data: LongSet, context: int) -> Forecasts:
    """A linear map of the last steps, less the last value, fitted to the training rows of all channels.

    The quantiles are those of the errors between the training and the test rows, by channel and step.
    """
    horizon = data.steps[1]
    weights = _fit(data, context)

    def points(pasts: Doubles, unit: float) -> Doubles:
        """Forecasts of `pasts` (windows, context): (windows, horizon)."""
        last = pasts[:, -1:]
        found: Doubles = (pasts - last) @ weights[:-1] + unit * weights[-1] + last
        return found

    errors = dict[str, Doubles]()
    first, end = len(data.train) - context, int(TEST * len(data.values))
    for channel, values, unit in zip(data.channels, data.values.T, data.units, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(values[first:end], context + horizon)
        missed = windows[:, context:] - points(windows[:, :context], unit)
        errors[channel] = np.quantile(missed, LEVELS, axis=0).T
        errors[channel][:, POINT] = 0

    def forecasts(series: Sequence[Series]) -> Iterator[Doubles]:
        for one in series:
            (point,) = points(one.past[None, -context:], one.unit)
            yield point[:, None] + errors[channel_of(one)[1]]

    return forecasts


def _fit(data: LongSet, context: int) -> Doubles:
    """Weights of each step of the context and, last, of the unit of a channel: (context + 1, horizon)."""
    horizon, size = data.steps[1], context + 1
    gram, product = np.zeros((size, size)), np.zeros((size, horizon))
    count = 0
    for values in (data.train / data.units).T:
        windows = np.lib.stride_tricks.sliding_window_view(values, context + horizon)
        windows = windows[:: max(1, len(windows) // FITTED)]
        last = windows[:, context - 1 : context]
        x = np.concatenate([windows[:, :context] - last, np.ones_like(last)], axis=1)
        gram += x.T @ x
        product += x.T @ (windows[:, context:] - last)
        count += len(windows)
    weights: Doubles = np.linalg.solve(gram + RIDGE * count * np.eye(size), product).astype(np.float64)
    return weights
