"""The report of a record: tables, and a diagram of mean ranks."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.lib import chart
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.models.labelled_series.sets import AEON, JAPANESE, unpacked
from model.tasks.dtw import MOST_CELLS

PARTS = (
    *("UWaveGestureLibrary", "Handwriting", JAPANESE, "RacketSports", "EOG", "ACSF1", "HouseTwenty"),
    *("BasicMotions", "Epilepsy", "Pig"),
)
"""Sets on which other encoders are trained."""
PAPER = {"UWaveGestureLibrary": 87.4, "Handwriting": 35.1, JAPANESE: 99.6}
"""Accuracy of DBA in Table 3 of Qin et al. 2022, arXiv:2211.16368."""
SKYFORMER = "Skyformer"
ENCODERS: dict[str, tuple[str, ...]] = {
    "no Fourier convolution": ("model.encoder.options.use_fourier=false",),
    "no skeleton attention": ("model.encoder.options.use_rows=false", "model.encoder.options.use_columns=false"),
    "convolution": (
        "model.encoder.options.use_fourier=false",
        "model.encoder.options.use_rows=false",
        "model.encoder.options.use_columns=false",
        "model.encoder.options.kernel_size=9",
    ),
    "softmax": ("model.encoder.attention=softmax",),
    "DBA": ("model.encoder.attention=dba",),
    SKYFORMER: ("model.encoder.attention=skyformer",),
}
"""Encoder -> overrides of the recipe."""
NEMENYI = {2: 1.960, 3: 2.343, 4: 2.569, 5: 2.728}
"""Critical values at 5 % by the number of classifiers."""
ROCKET, S3, BOTH, DTW = "MiniRocket", "S3Attention", "both", "1-NN DTW"
COLUMNS = (DTW, AEON, ROCKET, S3, BOTH)
"""Classifiers of all sets, in the order of the tables."""


Bits = dict[str, dict[str, list[NDArray[np.bool_]]]]
"""Classifier -> set -> whether each test recording is classified correctly, for each seed."""


def answers(data: Data) -> Bits:
    """The answers of a record."""
    found: Bits = {}
    for run in sorted((*data.get("runs", ()), *data.get("aeon", ())), key=lambda run: int(run["seed"])):
        for name, bits in run["correct"].items():
            found.setdefault(name, {}).setdefault(run["set"], []).append(unpacked(bits, run["examples"]))
    return found


def accuracies(found: Mapping[str, list[NDArray[np.bool_]]], name: str) -> list[float]:
    """Accuracy in % of each seed on a set; empty without a run."""
    return [100 * float(correct.mean()) for correct in found.get(name, ())]


def difference(first: Sequence[NDArray[np.bool_]], second: Sequence[NDArray[np.bool_]]) -> tuple[float, float]:
    """Difference in accuracy in points, means over seeds, and its standard error over the test recordings."""
    paired = np.mean(first, axis=0) - np.mean(second, axis=0)
    return 100 * float(paired.mean()), 100 * float(paired.std(ddof=1)) / len(paired) ** 0.5


def report(record: Record) -> str:
    """Report: all sets, means and ranks, the encoders, the published figures."""
    data = record.data
    found = answers(data)
    is_left_out = any("note" in run for run in data["runs"])
    return (
        "Accuracy in % on the published test splits; mean ± standard deviation over seeds. `both` is what "
        "`python -m model train --task series-classification` trains and exports; "
        "differences are paired over the test recordings, with their standard error.\n"
        f"\n## All sets\n\n{_all_sets(found)}"
        f"\n## Means\n\n{_means(found)}"
        f"\n## Encoders\n\n{_encoders(found, data)}"
        f"\n## Published\n\n{_published(found)}"
        + (f"\n1-NN DTW is left out where it takes more than {MOST_CELLS:.0e} cells.\n" if is_left_out else "")
        + f"\nRevisions of the runs: {', '.join(sorted({run['revision'] for run in data['runs']}))}.\n"
    )


def _all_sets(found: Bits) -> str:
    names = [name for name in COLUMNS if name in found]
    rows = []
    for place in found.get(BOTH, {}):
        cells = [_cell(accuracies(found[name], place)) for name in names]
        for other in (AEON, ROCKET):
            pair = found[BOTH][place], found.get(other, {}).get(place)
            cells.append("" if pair[1] is None else _signed(*difference(pair[0], pair[1])))
        rows.append([place, f"{len(found[BOTH][place][0]):,}", *cells])
    return table(["set", "test", *names, f"both less {AEON}", f"both less {ROCKET}"], sorted(rows, key=_folded))


def _folded(row: Sequence[str]) -> str:
    return row[0].lower()


def _cell(values: Sequence[float]) -> str:
    return mean_and_deviation(values, ".1f") if values else ""


def _signed(mean: float, error: float) -> str:
    return f"{mean:+.1f} ± {error:.1f}"


def _means(found: Bits) -> str:
    """Mean accuracy and rank of the classifiers that were measured on the same sets."""
    names = [name for name in COLUMNS if name in found]
    rows = []
    for group in (names, [name for name in names if name != DTW]):
        shared = _shared(found, group)
        ranks = mean_ranks(found, group, shared)
        for name in group:
            mean = statistics.mean(statistics.mean(accuracies(found[name], place)) for place in shared)
            rows.append([str(len(shared)), name, f"{mean:.2f}", f"{ranks[name]:.2f}"])
    return table(["sets", "classifier", "mean accuracy", "mean rank"], rows, left=2)


def _shared(found: Bits, names: Sequence[str]) -> list[str]:
    """Sets on which all of these were measured."""
    return sorted(set.intersection(*({*found[name]} for name in names))) if names else []


def mean_ranks(found: Bits, names: Sequence[str], places: Sequence[str]) -> dict[str, float]:
    """Mean rank of the mean accuracies on each set; equal ones share their ranks."""
    values = np.array([[statistics.mean(accuracies(found[name], place)) for name in names] for place in places])
    better = (values[:, None, :] > values[:, :, None]).sum(2)
    equal = (values[:, None, :] == values[:, :, None]).sum(2)
    means: list[float] = (better + (equal + 1) / 2).mean(0).tolist()
    return dict(zip(names, means, strict=True))


def _encoders(found: Bits, data: Data) -> str:
    """Accuracy of the encoders alone, and means less that of S3Attention over the sets on which all were trained.

    Skyformer, of which a run takes half an hour, is in no mean.
    """
    names = [name for name in (S3, *ENCODERS) if name in found]
    averaged = [name for name in names if name != SKYFORMER]
    trained = {place for name in names[1:] for place in found[name]}
    shared = [place for place in PARTS if place in _shared(found, averaged)]
    rows = []
    for place in filter(trained.__contains__, PARTS):
        rows.append([place, *(_cell(accuracies(found[name], place)) for name in names)])
    if shared:
        means, seconds = dict[str, list[float]](), dict[str, float]()
        for name in averaged:
            count = min(len(found[name][place]) for place in shared)
            means[name] = [
                statistics.mean(accuracies(found[name], place)[seed] for place in shared) for seed in range(count)
            ]
        for name in averaged[1:]:
            runs = [run for run in data["runs"] if run["kind"] == name and run["set"] in shared]
            seconds[name] = statistics.mean(run["cpu_seconds"] for run in runs)
        less = {name: statistics.mean(means[name]) - statistics.mean(means[S3]) for name in averaged[1:]}
        rows += [
            [f"mean of {len(shared)}", *(_cell(means.get(name, [])) for name in names)],
            ["less S3Attention", *(f"{less[name]:+.1f}" if name in less else "" for name in names)],
            ["processor seconds of a run", *(f"{seconds[name]:.0f}" if name in seconds else "" for name in names)],
        ]
    return table(["set", *names], rows)


def _published(found: Bits) -> str:
    """The sets of Table 3 of DBA's paper beside its figures."""
    rows = [
        [place, f"{value:.1f}", *(_cell(accuracies(found.get(name, {}), place)) for name in ("DBA", S3, BOTH))]
        for place, value in PAPER.items()
    ]
    return table(["set", "DBA, published", "DBA here", S3, BOTH], rows)


def draw(record: Record, path: Path) -> None:
    """Critical-difference diagram: mean ranks, and the smallest difference that a Nemenyi test at 5 % tells apart.

    Reference:  Demšar 2006, JMLR 7, sec. 3.2.2.
    """
    found = answers(record.data)
    names = [name for name in COLUMNS if name in found]
    places = _shared(found, names)
    ranks = mean_ranks(found, names, places)
    count = len(names)
    critical = NEMENYI[count] * (count * (count + 1) / (6 * len(places))) ** 0.5
    drawn, (axes,) = chart.figure((7, 0.5 * count + 1))
    for place, (name, rank) in enumerate(sorted(ranks.items(), key=lambda item: item[1])):
        axes.errorbar(rank, place, xerr=critical / 2, marker="o", capsize=4, color="C0")
        axes.annotate(f"{name} {rank:.2f}", (rank, place), xytext=(0, 7), textcoords="offset points", ha="center")
    axes.set(yticks=[], ylim=(count - 0.3, -0.9))
    axes.set_xlabel(f"mean rank on {len(places)} sets; bars that overlap do not differ at 5 %")
    axes.grid(alpha=0.3)
    chart.save(drawn, path)
