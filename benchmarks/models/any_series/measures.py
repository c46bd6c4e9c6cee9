"""Errors of forecasts, their means over a collection, and paired differences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from artifact.arrays import Doubles
from benchmarks.lib.record import Data
from benchmarks.models.any_series.forecasters import LEVELS, POINT
from benchmarks.models.any_series.series import COMPETITIONS, FILES, Series, channel_of

MEASURES = ("smape", "mae", "mse", "interval", "coverage")
COMPARED = ("smape", "mae", "mse")
"""Measures of which there are paired differences."""
ALL = "all"
LOW, HIGH = LEVELS.index(0.1), LEVELS.index(0.9)
"""Ends of the 80 % band."""
OUTSIDE = 2 / 0.2
"""Weight in the interval score of the distance of a value from the band."""
DRAWS = 1_000
INTERVAL = (0.025, 0.975)

Errors = dict[str, Doubles]
"""Measure -> its value for each series."""
Seeds = Sequence[Sequence[Doubles]]
"""Forecasts of each series, by each seed of a forecaster."""


def errors(series: Sequence[Series], forecasts: Sequence[Doubles], steps: int | None = None) -> Errors:
    """Mean of each measure over the first steps of each series; None means all.

    `smape` and `coverage`, of the 80 % band, are percentages. `mae`, `mse` and `interval` are in units of the series;
    for a competition, `mae` is MASE. `interval` is the interval score of the 80 % band: its width, and 10 times the
    distance of a value outside.
    """
    rows = [_errors(one, quantiles, steps) for one, quantiles in zip(series, forecasts, strict=True)]
    return dict(zip(MEASURES, np.array(rows).T, strict=True))


def _errors(series: Series, quantiles: Doubles, steps: int | None) -> tuple[float, ...]:
    """The measures of one series, in the order of MEASURES."""
    future = series.future[:steps]
    point, low, high = quantiles[:steps, [POINT, LOW, HIGH]].T
    error, size = np.abs(future - point), np.abs(future) + np.abs(point)
    outside = np.maximum(low - future, 0) + np.maximum(future - high, 0)
    return (
        200 * float((error / np.where(size > 0, size, 1)).mean()),
        float(error.mean()) / series.unit,
        float((error**2).mean()) / series.unit**2,
        float((high - low + OUTSIDE * outside).mean()) / series.unit,
        100 * float((outside == 0).mean()),
    )


def ahead(found: Errors, other: Errors) -> float:
    """Percentage of series with a smaller absolute error than another forecaster's, by more than rounding."""
    return 100 * float((found["mae"] < other["mae"] * (1 - 1e-9)).mean())


def paired(found: Doubles, other: Doubles, groups: Sequence[object]) -> tuple[float, float, float]:
    """Mean difference of a measure of the same series, and its 95 % bootstrap interval.

    Groups of equal size are drawn as a whole: the channels of a long set at one time are not independent.
    """
    _, index = np.unique([str(group) for group in groups], return_inverse=True)
    differences = np.bincount(index, found - other) / np.bincount(index)
    drawn = np.random.default_rng(0).integers(len(differences), size=(DRAWS, len(differences)))
    low, high = np.quantile(differences[drawn].mean(1), INTERVAL)
    return float(differences.mean()), float(low), float(high)


def summary(
    series: Sequence[Series], forecasts: Mapping[str, Seeds], baseline: Sequence[Doubles], references: Iterable[str]
) -> Data:
    """Means over the parts of a collection, one of each seed, and differences over the whole of it.

    Args:
        series: all series of the collection.
        forecasts: by forecaster.
        baseline: forecasts of seasonal naive.
        references: forecasters whose errors are subtracted from those of the others, if they are there.

    """
    rows, differences = list[Data](), list[Data]()
    for part, indices, steps in parts(series):
        chosen = [series[i] for i in indices]
        seasonal = errors(chosen, [baseline[i] for i in indices], steps)
        measured = {
            name: [errors(chosen, [seed[i] for i in indices], steps) for seed in seeds]
            for name, seeds in forecasts.items()
        }
        for name, seeds in measured.items():
            means = {measure: [float(seed[measure].mean()) for seed in seeds] for measure in MEASURES}
            means["ahead"] = [ahead(seed, seasonal) for seed in seeds]
            rows.append({"part": part, "series": len(chosen), "forecaster": name, **means})
        if part != ALL and steps is None:
            continue
        groups = [one.name if steps is None else channel_of(one)[0] for one in chosen]
        for name, other in product(measured, references):
            if other in measured and other != name:
                values = {
                    measure: paired(_mean(measured[name], measure), _mean(measured[other], measure), groups)
                    for measure in COMPARED
                }
                differences.append({"part": part, "forecaster": name, "less": other, **values})
    return {"rows": rows, "differences": differences}


def parts(series: Sequence[Series]) -> Iterator[tuple[str, list[int], int | None]]:
    """Name, indices and steps of each part of a collection: frequencies, then all; short, then long forecasts."""
    everything = list(range(len(series)))
    if series[0].collection in COMPETITIONS:
        for frequency in dict.fromkeys(one.frequency for one in series):
            yield frequency, [i for i in everything if series[i].frequency == frequency], None
        yield ALL, everything, None
    else:
        for steps in FILES[series[0].collection][2]:
            yield f"{steps} steps", everything, steps


def _mean(seeds: Sequence[Errors], measure: str) -> Doubles:
    """Mean over the seeds of a measure of each series."""
    found: Doubles = np.mean([seed[measure] for seed in seeds], axis=0)
    return found
