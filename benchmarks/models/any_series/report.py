"""The report of a record: aligned tables."""

from collections.abc import Mapping
from itertools import chain

from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import mean_and_deviation, median_and_range, table
from benchmarks.models.any_series.forecasters import CONTEXTS, LONGEST_ETS_SEASON
from benchmarks.models.any_series.measures import ALL
from benchmarks.models.any_series.series import COMPETITIONS, CONTEXT, FILES, RUN, STARTS, TRAIN
from benchmarks.models.any_series.speed import MEASURED, STEPS

MEASURES = {
    "smape": ("sMAPE", ".2f"),
    "mae": ("MASE", ".3f"),
    "mse": ("MSE", ".3f"),
    "interval": ("interval score", ".2f"),
    "coverage": ("80 % band covers, %", ".1f"),
    "ahead": ("ahead of seasonal naive, %", ".1f"),
}
"""Measure -> its title and format."""
OF_COMPETITIONS = ("smape", "mae", "interval", "coverage", "ahead")
OF_LONG_SETS = ("mse", "interval", "coverage", "ahead")
CONTEXTS_READ = " and ".join(map(str, CONTEXTS["ETTm2"])), " and ".join(map(str, CONTEXTS["ILI"]))
INTRODUCTION = (
    "Means over series, each of which counts the same; of several seeds, mean ± standard deviation. The interval score "
    "is that of the 80 % band: its width, and 10 times the distance of values outside. MASE and the interval score are "
    "in units of the past error of seasonal naive, one season ahead; in long sets, MSE and the interval score are in "
    "units of the standard deviation of the training rows.\n\n"
    f"Competitions have their official hold-outs. Of long sets, the {CONTEXT} steps before each of {STARTS} starts in "
    f"the last fifth of the rows are given; what is trained reads the first {100 * TRAIN:.0f} % of the rows or less. "
    f"The linear maps read {CONTEXTS_READ[0]} steps (ILI {CONTEXTS_READ[1]}). AutoETS has no seasonal part for seasons "
    f"of more than {LONGEST_ETS_SEASON} steps. Differences are those of the same series, with their 95 % bootstrap "
    "interval over series; in long sets, over starts, whose forecasts overlap in ILI.\n"
)


def report(record: Record) -> str:
    """Report: the forecasters, then the ablation, each with competitions and long sets."""
    data = record.data
    costs = [f"{name} {1e3 * mean:.1f} ms ({count:,} series)" for name, (count, mean) in data["seconds"].items()]
    shared = [f"{first} and {second} {count}" for first, second, count in data["overlap"]]
    left_out = [f"{shared} of {kept + shared:,} of {name}" for name, (kept, shared) in data["left_out"].items()]
    measured = chain(data["table"].values(), data["ablation"].values(), filter(None, [data["speed"]]))
    revisions = {found["revision"] for found in measured}
    facts = {
        "Processor time of a forecast": costs,
        f"Pairs of series that share {RUN} values in a row, up to a factor": shared,
        "Series that are left out where they are added to training, because they share such values": left_out,
        "Revisions": sorted(revisions),
    }
    sections = {**tables(data["table"], ""), **tables(data["ablation"], "Ablation: ")}
    if data["speed"]:
        sections["Speed"] = speed_table(data["speed"])
    return (
        INTRODUCTION
        + "".join(f"\n## {title}\n\n{text}" for title, text in sections.items())
        + "".join(f"\n{name}: {', '.join(found)}.\n" for name, found in facts.items() if found)
    )


def tables(found: Mapping[str, Data], prefix: str) -> dict[str, str]:
    """Tables by title, of the collections that there are."""
    competitions = {name: found[name] for name in COMPETITIONS if name in found}
    long_sets = {name: found[name] for name in FILES if name in found}
    sections = dict[str, str]()
    if competitions:
        sections["All series"] = totals(competitions)
        for measure in ("smape", "mae"):
            sections[f"Difference in {MEASURES[measure][0]}"] = differences(competitions, measure)
        for measure in OF_COMPETITIONS:
            sections[f"By frequency: {MEASURES[measure][0]}"] = by_part(competitions, measure)
    if long_sets:
        for measure in OF_LONG_SETS:
            sections[f"Long sets: {MEASURES[measure][0]}"] = by_part(long_sets, measure)
        sections["Long sets: difference in MSE"] = differences(long_sets, "mse")
    return {prefix + title: text for title, text in sections.items()}


def totals(found: Mapping[str, Data]) -> str:
    """Table with a row for each competition and forecaster, and all measures."""
    rows = [
        [name, row["forecaster"], *(_mean(row, measure) for measure in OF_COMPETITIONS)]
        for name, collection in found.items()
        for row in collection["rows"]
        if row["part"] == ALL
    ]
    return table(["set", "forecaster", *(MEASURES[measure][0] for measure in OF_COMPETITIONS)], rows, left=2)


def by_part(found: Mapping[str, Data], measure: str) -> str:
    """Table of a measure with a row for each part of a collection and a column for each forecaster."""
    cells = dict[tuple[str, ...], str]()
    for name, collection in found.items():
        for row in collection["rows"]:
            cells[name, row["part"], f"{row['series']:,}", row["forecaster"]] = _mean(row, measure)
    return _pivot(["set", "part", "series"], cells)


def differences(found: Mapping[str, Data], measure: str) -> str:
    """Table of differences with a row for each forecaster and a column for each one that is subtracted."""
    form, cells = MEASURES[measure][1], dict[tuple[str, ...], str]()
    for name, collection in found.items():
        for row in collection["differences"]:
            mean, low, high = (format(value, f"+{form}") for value in row[measure])
            cells[name, row["part"], row["forecaster"], f"less {row['less']}"] = f"{mean} [{low}, {high}]"
    return _pivot(["set", "part", "forecaster"], cells)


def speed_table(found: Data) -> str:
    """Table of the time that forecasts take."""
    seconds: Mapping[str, list[list[float]]] = found["seconds"]
    rows = [
        [what.format(**found), *(median_and_range([1e3 * value for value in clock], ".1f") for clock in clocks)]
        for name, what in MEASURED.items()
        for clocks in [zip(*seconds[name], strict=True)]
    ]
    rounds, load = len(seconds["one"]), found["load_after"]
    return (
        table(["forecasts of", "processor, ms", "elapsed, ms"], rows)
        + f"\nMedian (minimum to maximum) of {rounds} rounds in turns. The forecasts are of {STEPS} steps, in M3 of "
        "the hold-outs, with two quantiles. A client sends one request at a time; the processor time is the server's. "
        f"Load of the machine at the end: {load:.1f}.\n"
    )


def _pivot(heads: list[str], cells: Mapping[tuple[str, ...], str]) -> str:
    """Table of cells by (three cells that name the row, column)."""
    columns = list(dict.fromkeys(column for *_, column in cells))
    rows = dict.fromkeys(tuple(row) for *row, _ in cells)
    return table(
        [*heads, *columns], [[*row, *(cells.get((*row, column), "") for column in columns)] for row in rows], left=3
    )


def _mean(row: Data, measure: str) -> str:
    return mean_and_deviation(row[measure], MEASURES[measure][1])
