"""`python -m benchmarks.papers.ablation`: S3Attention without each of its parts, and with other r, s1 and s2.

Each result is recorded when its run ends; a restarted benchmark continues.
"""

import statistics
from collections.abc import Sequence

from benchmarks.lib.record import Data
from benchmarks.lib.table import table
from benchmarks.papers.lra import GPU, TASKS
from benchmarks.papers.study import Study, accuracy_cell

PARTS = {
    "without Fourier convolution": "use_fourier",
    "without convolution stem": "use_stem",
    "without column attention": "use_columns",
    "without row attention": "use_rows",
}
SIZES = {"r": ("num_segments", (1, 16, 32)), "s1": ("num_rows", (32, 128)), "s2": ("num_columns", (1, 4, 16, 32))}
WHOLE = "r = s1 = s2 = 8"
ROWS = {
    WHOLE: (),
    **{name: (f"model.encoder.options.{key}=false",) for name, key in PARTS.items()},
    **{
        f"{name} = {size}": (f"model.encoder.options.{key}={size}",)
        for name, (key, sizes) in SIZES.items()
        for size in sizes
    },
}
PUBLISHED_TASKS = ("listops", "text", "retrieval", "image")
PUBLISHED = {
    "without Fourier convolution": (-0.47, -4.04, -13.98, -5.64),
    "without convolution stem": (-0.13, -0.55, -1.51, -1.76),
    "without column attention": (-1.16, -8.00, -9.16, -10.63),
    "without row attention": (-0.38, -1.92, -1.97, -2.64),
    "r = 1": (-1.00, -4.02, -4.61, -2.54),
    "r = 16": (0.32, 0.75, -0.05, 0.30),
    "r = 32": (-0.11, 0.00, -1.21, -0.17),
    "s1 = 32": (0.14, 1.58, 0.15, 1.02),
    "s1 = 128": (-0.97, -0.03, -1.68, -4.82),
    "s2 = 1": (-0.98, -13.99, -25.89, -12.93),
    "s2 = 4": (-0.48, -17.22, -10.68, -7.16),
    "s2 = 16": (-0.53, 0.97, 0.16, 0.21),
    "s2 = 32": (-0.68, -0.95, -3.15, -2.24),
}
"""Difference to WHOLE in percentage points (S3Attention paper, Tables 6 and 7)."""


def differences(study: Study, runs: Sequence[Data]) -> str:
    """Differences of the variants to WHOLE, at scale cpu and in the paper."""
    parts = []
    for column in study.columns:
        found = {
            row: [run for run in runs if (run["scale"], run["column"], run["row"]) == ("cpu", column, row)]
            for row in ROWS
        }
        if not found[WHOLE]:
            continue
        means = {row: 100 * statistics.mean(run["accuracy"] for run in found[row]) for row in ROWS if found[row]}
        lines = [[WHOLE, accuracy_cell(found[WHOLE]), "", ""]]
        for row, of_paper in PUBLISHED.items():
            difference = f"{means[row] - means[WHOLE]:+.1f}" if row in means else ""
            published = f"{of_paper[PUBLISHED_TASKS.index(column)]:+.2f}"
            lines.append([row, accuracy_cell(found[row]), difference, published])
        parts += [
            f"## Differences to {WHOLE} on {column}, scale cpu\n",
            table(["", "test accuracy, %", "difference", "published difference"], lines),
        ]
    paper = [[row, *(f"{value:+.2f}" for value in values)] for row, values in PUBLISHED.items()]
    parts += [
        f"## Published (S3Attention paper, Tables 6 and 7), difference to {WHOLE}\n",
        table(["", *PUBLISHED_TASKS], paper),
    ]
    return "\n".join(parts)


STUDY = Study(
    name="ablation",
    title="Ablation of S3Attention",
    text="The recipes of `benchmarks.papers.lra`, length-aware.",
    columns=TASKS,
    rows=ROWS,
    scales={"cpu": {}, "gpu": GPU},
    appendix=differences,
)
BENCHMARK = STUDY.benchmark()

if __name__ == "__main__":
    BENCHMARK.main()
