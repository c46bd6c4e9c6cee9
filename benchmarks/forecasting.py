"""`python -m benchmarks.forecasting`: our forecasters beside the published table, on all test windows.

Trains what is not there yet into `runs/forecasting/`: three seeds of each recipe, one of the paper's own forecaster
(about half an hour on one core; interrupted, it goes on). Measures every run once and writes `forecasting.md` and
`.png` into `benchmarks/results/`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import matplotlib
from tqdm import tqdm

from model.config.data import SeriesName
from model.tasks.forecasting import PUBLISHED
from model.training.provenance import git_revision

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

LITERAL = ("model.kind=paper", "model.patch_length=1", "training.learning_rate=1e-3", "model.encoder.num_layers=2")
"""What makes a recipe train the paper's forecaster: one token a step, channels mixed, Fourier extrapolation."""
STEPS = {"ili": 36}
"""Input length, by default 96."""
KINDS = {"ours": 3, "literal": 1}
"""Seeds of each kind."""

Figures = dict[tuple[str, str, int], list[dict[str, float]]]
"""Kind, set, horizon -> one dict of metrics a seed."""


def main() -> None:
    """Train and measure what is missing; print and write table and chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    parser.add_argument("--runs", default="runs/forecasting", type=Path)
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    args = parser.parse_args()
    jobs = [(kind, name, seed) for kind, seeds in KINDS.items() for name in PUBLISHED for seed in range(seeds)]
    figures: Figures = {}
    for kind, name, seed in tqdm(jobs, unit="run"):
        for horizon, metrics in run(kind, name, seed, args).items():
            figures.setdefault((kind, name, horizon), []).append(metrics)
    text = (
        f"# Forecasting: ours mean ± sd over {KINDS['ours']} seeds, literal {KINDS['literal']}\n\n"
        "MSE on scaled data over all test windows; input 96, ILI 36; one model a set for all its horizons. Splits: "
        "ETTm2 12/4/4 months, the others 7:1:2. Chosen on the first half of validation, the recipe of Exchange on "
        "the end of the training rows. `literal` is the paper's forecaster, trained by us; S3Attention and "
        "FEDformer are quoted (Wang et al. 2024, arXiv:2408.08567, Table 2); repeat-last and linear map are in "
        "`forecasting_yardsticks.md`.\n\n"
        f"- revision {git_revision()}\n- command: `python -m benchmarks.forecasting`\n\n{table(figures, args.out)}\n"
    )
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "forecasting.md").write_text(text)
    chart(figures, args.out / "forecasting.png")


def run(kind: str, name: SeriesName, seed: int, args: argparse.Namespace) -> dict[int, dict[str, float]]:
    """Metrics by horizon of one run, trained and measured if need be."""
    runs = args.runs / kind
    folder = runs / f"{name}-seed{seed}"
    if not (folder / "evaluation.json").is_file():
        settings = [f"seed={seed}"]
        if kind == "literal":
            settings += [*LITERAL, f"model.encoder.seq_len={STEPS.get(name, 96)}"]
        resume = ["--resume"] if (folder / "last.pt").is_file() else []
        overrides = [part for setting in settings for part in ("--set", setting)]
        command(args, "train", f"{name}-s3", "--runs", str(runs), *overrides, *resume)
        command(args, "evaluate", str(folder))
    found: dict[int, dict[str, float]] = {}
    for result in json.loads((folder / "evaluation.json").read_text()):
        horizon = int(result["condition"].split()[-1])
        found.setdefault(horizon, {})[result["metric"]] = result["value"]
    return found


def command(args: argparse.Namespace, *words: str) -> None:
    """Run a command of `model` in a process of its own."""
    subprocess.run([sys.executable, "-m", "model", *words, "--data-dir", str(args.data_dir)], check=True)


def spread(figures: Figures, key: tuple[str, str, int], metric: str) -> str:
    """Mean ± sd of a metric over seeds."""
    values = [metrics[metric] for metrics in figures[key]]
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation}"


def table(figures: Figures, results: Path) -> str:
    """Markdown, aligned, with how many rows are at or below each of the others."""
    names = ("ours MSE", "ours MAE", "80 % band covers", "literal MSE", "S3Attention", "FEDformer")
    widths = (13, 13, 16, 13, 11, 9, 11, 10)
    heads = [f"{head:>{width}}" for head, width in zip((*names, "repeat-last", "linear map"), widths, strict=True)]
    rules = [f"{'-' * (width - 1)}:" for width in widths]
    lines = [f"| set      | horizon | {' | '.join(heads)} |", f"| -------- | ------: | {' | '.join(rules)} |"]
    others = yardsticks(results)
    wins = dict.fromkeys(("S3Attention", "FEDformer", "repeat-last", "linear map"), 0)
    for name, rows in PUBLISHED.items():
        for horizon, published in rows.items():
            ours = ("ours", name, horizon)
            compared = dict(zip(wins, (*published, *others[name, horizon]), strict=True))
            mean = statistics.mean(metrics["mse"] for metrics in figures[ours])
            for other, value in compared.items():
                wins[other] += round(mean, 3) <= value
            cells = " | ".join(
                f"{value:>{width}.3f}" for value, width in zip(compared.values(), widths[4:], strict=True)
            )
            literal = spread(figures, ("literal", name, horizon), "mse")
            lines.append(
                f"| {name:<8} | {horizon:>7} | {spread(figures, ours, 'mse'):>13} | {spread(figures, ours, 'mae'):>13} "
                f"| {spread(figures, ours, 'coverage_80'):>16} | {literal:>13} | {cells} |"
            )
    counts = ", ".join(f"{other} {count}" for other, count in wins.items())
    return "\n".join([*lines, "", f"Rows of 16 in which ours (mean, 3 decimals) is at or below: {counts}."])


def yardsticks(results: Path) -> dict[tuple[str, int], tuple[float, float]]:
    """MSE of repeat-last and the linear map, from the table of `benchmarks.forecasting_yardsticks`."""
    rows = [line.split("|")[1:-1] for line in (results / "forecasting_yardsticks.md").read_text().splitlines()]
    cells = [[cell.strip() for cell in row] for row in rows if len(row) == 9]
    return {(c[0], int(c[1])): (float(c[3]), float(c[5])) for c in cells if c[1].isdigit()}


def chart(figures: Figures, path: Path) -> None:
    """MSE over that of the published S3Attention, with sd over seeds: below 1 is better than it."""
    figure, axes = pyplot.subplots(figsize=(11, 3.8), layout="constrained")
    keys = [(name, horizon) for name, rows in PUBLISHED.items() for horizon in rows]
    for offset, kind in zip((-0.2, 0.2), KINDS, strict=True):
        ratios = [
            [metrics["mse"] / PUBLISHED[name][horizon][0] for metrics in figures[kind, name, horizon]]
            for name, horizon in keys
        ]
        means = [statistics.mean(values) for values in ratios]
        deviations = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in ratios]
        axes.bar([i + offset for i in range(len(keys))], means, 0.4, yerr=deviations, capsize=2, label=kind)
    axes.axhline(1, color="black", linewidth=1, label="S3Attention, published")
    axes.set(ylabel="MSE / published MSE", xticks=range(len(keys)), ylim=(0, 2))
    axes.set_xticklabels([f"{name}\n{horizon}" for name, horizon in keys], fontsize=7)
    axes.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
