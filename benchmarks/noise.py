"""`python -m benchmarks.noise`: what noise in the pixels costs each attention (S3Attention paper, Table 5).

Trains the recipe `lra-image` with each attention as `benchmarks.lra` does, on clean images, and measures on test images
to whose pixels (0 to 255) uniform noise from -a to a is added; the paper trains on noisy images, too. Writes
`noise.json`, `.md` and `.png` into `benchmarks/results/`, after each run; started again, it goes on.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from tqdm import tqdm

from benchmarks.inference_paths import cpu_name
from benchmarks.lra import ROWS, STUDY
from benchmarks.served import RESULTS, table
from benchmarks.study import measure, train
from model.training.provenance import git_revision

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

NAME = "noise"
LEVELS = (0, 2, 4, 8, 16, 32)
CHOSEN = ("softmax", "linformer", "nystrom", "performer", "s3")
PUBLISHED = {
    "softmax": (41.39, 40.29, 28.56, 28.12),
    "linformer": (38.43, 37.99, 37.04, 36.65),
    "nystrom": (41.52, 40.89, 38.39, 37.84),
    "performer": (42.66, 41.95, 39.61, 38.86),
    "s3": (57.47, 57.06, 55.32, 54.70),
}
"""Accuracy at the first four levels."""


def main() -> None:
    """Do what is missing; write the table after each run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.noise", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(CHOSEN))
    parser.add_argument("--seeds", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    args = parser.parse_args()
    path = RESULTS / f"{NAME}.json"
    found: list[dict[str, object]] = json.loads(path.read_text()) if path.exists() else []
    recipes = {row: STUDY.recipe("cpu", "image", row) for row in ROWS}
    records = [record for record in found if record["recipe"] == recipes.get(str(record["row"]))]
    done = {(record["row"], record["seed"]) for record in records}
    cases = [(row, seed) for seed in range(args.seeds) for row in args.rows if (row, seed) not in done]
    for row, seed in tqdm(cases, unit="run"):
        with tempfile.TemporaryDirectory(prefix="noise-") as runs:
            overrides = (*STUDY.overrides("cpu", "image", row), f"seed={seed}")
            folder = train("lra-image", overrides, Path(runs), args.data_dir)
            levels = [measure(folder, args.data_dir, lambda text, a=level: noisy(text, a)) for level in LEVELS]  # type: ignore[misc]
        record = {"row": row, "seed": seed, "accuracy": levels, "revision": git_revision(), "recipe": recipes[row]}
        records.append(record)
        path.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n")
        _write(records)


def noisy(pixels: bytes, level: int) -> bytes:
    """An image with noise that is the same each time."""
    noise = np.random.default_rng([level, *pixels[:32]]).integers(-level, level, len(pixels), endpoint=True)
    changed = np.clip(np.frombuffer(pixels, np.uint8) + noise, 0, 255).astype(np.uint8)
    return bytes(changed)


def _write(records: Sequence[dict[str, object]]) -> None:
    rows = []
    figure, axis = pyplot.subplots(figsize=(6, 4))
    for row in ROWS:
        found = [np.array(record["accuracy"]) * 100 for record in records if record["row"] == row]
        if not found:
            continue
        means = [statistics.mean(float(values[i]) for values in found) for i in range(len(LEVELS))]
        rows.append([f"{row} ({len(found)})", *(f"{m:.1f} ({m / means[0] - 1:+.0%})" for m in means)])
        axis.plot(LEVELS, means, "o-", label=row)
        if row in PUBLISHED:
            first, *_ = published = PUBLISHED[row]
            rows.append([f"{row}, published", *(f"{p:.1f} ({p / first - 1:+.0%})" for p in published), "", ""])
    axis.set(xlabel="noise a", ylabel="accuracy, %", title="Pixels with noise from -a to a")
    axis.legend()
    axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{NAME}.png", dpi=110)
    pyplot.close(figure)
    text = [
        "# Noise in the pixels",
        "",
        "Accuracy in % on 5,000 test images (change against clean ones); in brackets behind a name: seeds. Trained on "
        "clean images by `lra-image`. Published: S3Attention paper, Table 5, trained with the noise, longer, on other "
        "copies of the images.",
        "",
        f"- {cpu_name()}; revisions {', '.join(sorted({str(record['revision']) for record in records}))}",
        "- command: `python -m benchmarks.noise`",
        "",
        table(["a", *map(str, LEVELS)], rows),
    ]
    (RESULTS / f"{NAME}.md").write_text("\n".join(text))


if __name__ == "__main__":
    main()
