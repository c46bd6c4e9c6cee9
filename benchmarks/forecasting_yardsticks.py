"""`python -m benchmarks.forecasting_yardsticks`: what any forecaster has to beat, on all test windows.

Repeat-last and a linear map solved in closed form, beside the published figures of S3Attention and FEDformer (Wang et
al. 2024, arXiv:2408.08567, Table 2, whose `ETTh2` is ETTm2). Nothing is tuned. Writes `forecasting_yardsticks.md` and
`.png` into `benchmarks/results/`.
"""

import argparse
import os
from pathlib import Path

import matplotlib
from tqdm import tqdm

from model.config.data import SeriesConfig, SeriesName
from model.data.series import load_series
from model.tasks.baselines import errors, solve_linear_map
from model.tasks.forecasting import PUBLISHED
from model.training.provenance import git_revision

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

CONTEXT = {"ettm2": 96, "exchange": 96, "weather": 96, "ili": 36}
Row = tuple[SeriesName, int, int, tuple[float, float], tuple[float, float]]
"""Set, horizon, test windows, (MSE, MAE) of repeat-last and of the linear map."""


def main() -> None:
    """Measure all 16 rows; print and write the table and the chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    args = parser.parse_args()
    cases = [(name, horizon) for name, rows in PUBLISHED.items() for horizon in rows]
    rows = [measure(name, horizon, args.data_dir) for name, horizon in tqdm(cases, unit="row")]
    text = (
        "# Yardsticks of forecasting\n\nMSE and MAE on scaled data over all test windows. Splits: ETTm2 12/4/4 months, "
        "the others 7:1:2; input 96, ILI 36. Nothing is random or tuned.\n\n"
        f"- revision {git_revision()}\n- command: `python -m benchmarks.forecasting_yardsticks`\n\n{table(rows)}\n"
    )
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "forecasting_yardsticks.md").write_text(text)
    chart(rows, args.out / "forecasting_yardsticks.png")


def measure(name: SeriesName, horizon: int, data_dir: Path) -> Row:
    """Solve on train, measure on test."""
    series, context = load_series(SeriesConfig(name=name), data_dir), CONTEXT[name]
    linear = solve_linear_map(series.windows("train", context, horizon), context)
    test = series.windows("test", context, horizon)
    return name, horizon, len(test), errors(test, context, None), errors(test, context, linear)


def table(rows: list[Row]) -> str:
    """Markdown, aligned."""
    lines = [
        "| set      | horizon | windows | repeat-last MSE |   MAE | linear MSE |   MAE | published S3 | FEDformer |",
        "| -------- | ------: | ------: | --------------: | ----: | ---------: | ----: | -----------: | --------: |",
    ]
    for name, horizon, windows, last, linear in rows:
        s3, fed = PUBLISHED[name][horizon]
        lines.append(
            f"| {name:<8} | {horizon:>7} | {windows:>7} | {last[0]:>15.3f} | {last[1]:>5.3f} | {linear[0]:>10.3f} "
            f"| {linear[1]:>5.3f} | {s3:>12.3f} | {fed:>9.3f} |"
        )
    return "\n".join(lines)


def chart(rows: list[Row], path: Path) -> None:
    """MSE over that of the published S3Attention: below 1 is better than it."""
    figure, axes = pyplot.subplots(figsize=(10, 3.6), layout="constrained")
    labels = [f"{name}\n{horizon}" for name, horizon, *_ in rows]
    for offset, kind in ((-0.2, 3), (0.2, 4)):
        ratios = [float(row[kind][0]) / PUBLISHED[row[0]][row[1]][0] for row in rows]  # type: ignore[index]
        axes.bar([i + offset for i in range(len(rows))], ratios, 0.4, label=("repeat-last", "linear map")[kind - 3])
    axes.axhline(1, color="black", linewidth=1, label="S3Attention, published")
    axes.set(ylabel="MSE / published MSE", xticks=range(len(rows)), xticklabels=labels)
    axes.tick_params(axis="x", labelsize=7)
    axes.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
