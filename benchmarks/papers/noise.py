"""`python -m benchmarks.papers.noise`: accuracy of each attention under pixel noise (S3Attention paper, Table 5).

Trains the recipe `lra-image` with each attention as in `benchmarks.papers.lra`, on clean images. Evaluates on test
images with uniform noise from -a to a added to the pixels (0 to 255); the paper also trains on noisy images. Each
result is recorded when its run ends; a restarted benchmark continues.
"""

import argparse
import functools
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from benchmarks.models.runs import revisions, train
from benchmarks.papers.lra import ROWS, STUDY
from benchmarks.papers.study import accuracy_of

NAME = "noise"
LEVELS = (0, 2, 4, 8, 16, 32)
PUBLISHED = {
    "softmax": (41.39, 40.29, 28.56, 28.12),
    "linformer": (38.43, 37.99, 37.04, 36.65),
    "nystrom": (41.52, 40.89, 38.39, 37.84),
    "performer": (42.66, 41.95, 39.61, 38.86),
    "s3": (57.47, 57.06, 55.32, 54.70),
}
"""Published accuracy at the first four levels."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(PUBLISHED))
    parser.add_argument("--seeds", type=int, default=1, help="default: %(default)s")
    add_data_dir(parser)


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train the missing runs and evaluate each at every one of LEVELS."""
    recipes = {row: STUDY.fingerprint("cpu", "image", row) for row in ROWS}
    runs = [run for run in earlier(NAME, args.out).get("runs", []) if run["recipe"] == recipes.get(run["row"])]
    done = {(run["row"], run["seed"]) for run in runs}
    cases = [(row, seed) for seed in range(args.seeds) for row in args.rows if (row, seed) not in done]
    for row, seed in tqdm(cases, unit="run"):
        with tempfile.TemporaryDirectory(prefix="noise-") as scratch:
            overrides = (*STUDY.overrides("cpu", "image", row), f"seed={seed}")
            folder = train("lra-image", overrides, Path(scratch), args.data_dir)
            accuracy = [accuracy_of(folder, args.data_dir, functools.partial(noisy, level=level)) for level in LEVELS]
        found = {"row": row, "seed": seed, "accuracy": accuracy, "revision": git_revision(), "recipe": recipes[row]}
        runs.append(found)
        yield {"levels": list(LEVELS), "runs": runs}


def noisy(pixels: bytes, level: int) -> bytes:
    """Add deterministic noise to an image."""
    noise = np.random.default_rng([level, *pixels[:32]]).integers(-level, level, len(pixels), endpoint=True)
    changed = np.clip(np.frombuffer(pixels, np.uint8) + noise, 0, 255).astype(np.uint8)
    return bytes(changed)


def report(record: Record) -> str:
    """Report with two rows per attention: measured and published."""
    levels, rows = record.data["levels"], []
    for row in ROWS:
        runs = [run["accuracy"] for run in record.data["runs"] if run["row"] == row]
        if not runs:
            continue
        means = [100 * statistics.mean(values) for values in zip(*runs, strict=True)]
        rows.append([f"{row} ({len(runs)})", *(f"{m:.1f} ({m / means[0] - 1:+.0%})" for m in means)])
        if row in PUBLISHED:
            first, *_ = published = PUBLISHED[row]
            cells = [f"{p:.1f} ({p / first - 1:+.0%})" for p in published]
            rows.append([f"{row}, published", *cells, *[""] * (len(levels) - len(cells))])
    return (
        "Accuracy in % on 5,000 test images (change relative to clean images). The number of seeds is in brackets "
        "after the name. Trained on clean images with the recipe `lra-image`. Published: S3Attention paper, Table 5; "
        "these models were trained longer, on noisy images, from other copies of the images.\n\n"
        f"{table(['a', *map(str, levels)], rows)}\n"
        f"{revisions(record.data['runs'])}\n"
    )


BENCHMARK = Benchmark.of("Noise in the pixels", measure, report, None, options, ("torch", "numpy"))

if __name__ == "__main__":
    BENCHMARK.main()
