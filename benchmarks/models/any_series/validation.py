"""`python -m benchmarks.models.any_series.validation RUN`: errors of a run of any-series on validation.

The recipe any-series and its Theta shares are chosen here, so that the hold-outs of the competitions and the last rows
of the long sets stay unseen. Validation is the last horizon inside the past of every second series of the competitions,
and windows that end in the training rows of the long sets. Prints MASE (of long sets, the mean absolute error in units
of the standard deviation) for each share of the Theta forecast.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

from artifact.univariate.features import CONTEXT, prepare
from benchmarks.lib.benchmark import add_data_dir
from benchmarks.lib.table import table
from benchmarks.models.any_series.forecasters import seasonal_naive
from benchmarks.models.any_series.measures import errors
from benchmarks.models.any_series.series import COMPETITIONS, FILES, TRAIN, Series, competition, long_set, scale
from model.tasks import task_of
from model.tasks.any_series import BUCKETS
from model.tasks.graphs import GraphFunction, module_functions
from model.training.checkpoint import BEST, load, load_weights

SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
STARTS = 20
"""Windows of each channel of a long set."""
SHORTEST = 4
"""Steps of the shortest past that is forecast."""
BATCH = 32


def inside(series: Iterable[Series]) -> Iterator[Series]:
    """The last horizon inside the past of every second series."""
    for one in list(series)[::2]:
        past, future = one.past[: -len(one.future)], one.past[-len(one.future) :]
        if len(past) >= SHORTEST and len(past) > one.season and (unit := scale(past, one.season)) > 0:
            yield Series(one.collection, one.name, one.frequency, one.season, past, future, unit)


def windows(name: str, data_dir: Path) -> Iterator[Series]:
    """Windows of the training rows of a long set."""
    data = long_set(name, data_dir)
    horizon, rows = data.steps[1], int(TRAIN * len(data.values))
    for start in np.linspace(rows // 4, rows - horizon, STARTS).astype(int).tolist():
        for channel, values, unit in zip(data.channels, data.values.T, data.units, strict=True):
            past, future = values[max(0, start - CONTEXT) : start], values[start : start + horizon]
            yield Series(name, f"{start}/{channel}", "long", data.season, past, future, float(unit))


def measure(function: GraphFunction, series: Iterable[Series]) -> dict[tuple[str, str], list[list[float]]]:
    """(Collection, frequency) -> errors of each series: of seasonal naive, then of the model with each share."""
    alike, found = (
        defaultdict[tuple[int, int], list[Series]](list),
        defaultdict[tuple[str, str], list[list[float]]](list),
    )
    for one in series:
        alike[min(len(one.past), CONTEXT), one.season].append(one)
    batches = [
        (season, group[first : first + BATCH])
        for (_, season), group in alike.items()
        for first in range(0, len(group), BATCH)
    ]
    for season, batch in batches:
        prepared = prepare(np.stack([one.past[-CONTEXT:] for one in batch]), (season,))
        count = prepared.tokens.shape[1]
        size = next(bucket for bucket in BUCKETS if count <= bucket)
        tokens = np.pad(prepared.tokens, ((0, 0), (0, size - count), (0, 0)))
        output = function({"tokens": tokens, "lengths": np.full(len(batch), count, np.int32)}).astype(np.float64)
        restored = [prepared.restore(output, share) for share in SHARES]
        for place, one in enumerate(batch):
            forecasts = [seasonal_naive(one.past, season, len(one.future))]
            forecasts += [quantiles[place, :, : len(one.future)].T for quantiles in restored]
            found[one.collection, one.frequency].append([float(errors([one], [f])["mae"][0]) for f in forecasts])
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models.any_series.validation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, help="run folder")
    add_data_dir(parser)
    args = parser.parse_args()
    checkpoint = load(args.run / BEST)
    task = task_of(checkpoint.config, checkpoint.facts)
    model = task.build()
    load_weights(model, checkpoint.state, args.run / BEST)
    (function,) = module_functions(task.graphs(model.eval()), torch.device("cpu"))
    series = [one for name in COMPETITIONS for one in inside(competition(name))]
    series += [one for name in FILES for one in windows(name, args.data_dir)]
    rows = [
        [*names, str(len(each)), *(f"{value:.3f}" for value in np.mean(each, axis=0))]
        for names, each in sorted(measure(function, series).items())
    ]
    print(table(["set", "part", "series", "seasonal naive", *(f"{share:.0%} Theta" for share in SHARES)], rows))


if __name__ == "__main__":
    main()
