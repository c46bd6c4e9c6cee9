"""`python -m benchmarks.classification`: our classifier beside TF-IDF, what each part gives, and long documents.

Trains what is not there yet into `runs/classification/` (minutes each on one core; interrupted, it goes on), measures
every run once and writes `classification.md` and `.png` into `benchmarks/results/`. `benchmarks.text_tfidf` comes
first.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from tqdm import tqdm

from model.training.provenance import git_revision

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first


@dataclass(frozen=True)
class Kind:
    """Runs that differ in their seed alone."""

    name: str
    documents: str
    seeds: int
    recipe: str
    settings: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Of its runs."""
        return "".join(c if c.isalnum() else "-" for c in f"{self.documents}-{self.name}")


SERVED = "as served"
KINDS = (
    Kind(SERVED, "imdb", 3, "imdb-s3"),
    Kind(SERVED, "20newsgroups", 3, "newsgroups-s3"),
    Kind(SERVED, "20newsgroups-stripped", 3, "newsgroups-s3", ('data.name="20newsgroups-stripped"',)),
    Kind("without S3Attention: the stem alone", "imdb", 3, "imdb-s3", ("model.encoder.num_layers=0",)),
    Kind("without smoother", "imdb", 1, "imdb-s3", ("model.encoder.options.use_smoother=false",)),
    Kind("without Fourier convolution", "imdb", 1, "imdb-s3", ("model.encoder.options.use_fourier=false",)),
    Kind("without row attention", "imdb", 1, "imdb-s3", ("model.encoder.options.use_rows=false",)),
    Kind("without column attention", "imdb", 1, "imdb-s3", ("model.encoder.options.use_columns=false",)),
    Kind("single words", "imdb", 1, "imdb-s3", ("model.stem.longest=1",)),
    Kind("runs of two words", "imdb", 1, "imdb-s3", ("model.stem.longest=2",)),
)

Figures = dict[tuple[str, str], float]
"""Metric and condition -> value."""


def main() -> None:
    """Train and measure what is missing; print and write tables and chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    parser.add_argument("--runs", default="runs/classification", type=Path)
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    args = parser.parse_args()
    jobs = [(kind, seed) for kind in KINDS for seed in range(kind.seeds)]
    figures: dict[Kind, list[Figures]] = {}
    for kind, seed in tqdm(jobs, unit="run"):
        figures.setdefault(kind, []).append(run(kind, seed, args))
    yardstick = tfidf(args.out)
    text = (
        "# Classification\n\nAccuracy on the whole test split in %, mean ± sd over seeds; texts that are also in test "
        "are left out of training.\n\n"
        f"{results(figures, yardstick)}\n\n## What each part gives, on IMDb\n\n{parts(figures)}\n\n"
        f"## Documents longer than the model, over 4,096 bytes\n\n{long_documents(figures)}\n\n"
        f"- revision {git_revision()}\n- command: `python -m benchmarks.classification`\n"
    )
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "classification.md").write_text(text)
    chart(figures, yardstick, args.out / "classification.png")


def run(kind: Kind, seed: int, args: argparse.Namespace) -> Figures:
    """Figures of one run, trained and measured if need be."""
    parent = args.runs / kind.folder
    name = f"{'newsgroups' if kind.recipe.startswith('news') else 'imdb-s3'}-seed{seed}"
    folder = parent / name
    if not (folder / "evaluation.json").is_file():
        settings = [part for setting in (f"seed={seed}", *kind.settings) for part in ("--set", setting)]
        resume = ["--resume"] if (folder / "last.pt").is_file() else []
        data = ["--data-dir", str(args.data_dir)]
        train = ["train", kind.recipe, "--runs", str(parent), *settings, *resume]
        for words in (train, ["evaluate", str(folder)]):
            subprocess.run([sys.executable, "-m", "model", *words, *data], check=True)
    measured = json.loads((folder / "evaluation.json").read_text())
    return {(result["metric"], result["condition"]): result["value"] for result in measured}


def tfidf(results: Path) -> dict[str, float]:
    """Documents -> accuracy in %, from the table of `benchmarks.text_tfidf`."""
    rows = [line.split("|")[1:-1] for line in (results / "text_tfidf.md").read_text().splitlines()]
    cells = [[cell.strip() for cell in row] for row in rows if len(row) == 6]
    return {c[0]: float(c[4]) for c in cells if c[3].isdigit()}


def results(figures: dict[Kind, list[Figures]], yardstick: dict[str, float]) -> str:
    """Markdown, aligned: ours beside TF-IDF."""
    lines = [
        "| documents             | seeds | ours         | head alone   | macro F1     | ECE          | TF-IDF + LR |",
        "| --------------------- | ----: | -----------: | -----------: | -----------: | -----------: | ----------: |",
    ]
    wanted = (("accuracy", "windows"), ("accuracy", "head"), ("macro_f1", "windows"), ("ece", "windows"))
    for kind, runs in figures.items():
        if kind.name == SERVED:
            cells = " | ".join(f"{spread([one[key] for one in runs]):>12}" for key in wanted)
            lines.append(f"| {kind.documents:<21} | {len(runs):>5} | {cells} | {yardstick[kind.documents]:>11.2f} |")
    return "\n".join(lines)


def parts(figures: dict[Kind, list[Figures]]) -> str:
    """Markdown, aligned: the ablation on IMDb."""
    lines = [
        "| model                               | seeds | accuracy     |",
        "| ----------------------------------- | ----: | -----------: |",
    ]
    for kind, runs in figures.items():
        if kind.documents == "imdb":
            value = spread([one["accuracy", "windows"] for one in runs])
            lines.append(f"| {kind.name:<35} | {len(runs):>5} | {value:>12} |")
    return "\n".join(lines)


def long_documents(figures: dict[Kind, list[Figures]]) -> str:
    """Markdown, aligned: windows over the whole document against its head alone."""
    lines = [
        "| documents             | seeds | windows      | head alone   |",
        "| --------------------- | ----: | -----------: | -----------: |",
    ]
    for kind, runs in figures.items():
        if kind.name == SERVED:
            cells = [spread([one["accuracy", f"{c}, over 4,096 bytes"] for one in runs]) for c in ("windows", "head")]
            lines.append(f"| {kind.documents:<21} | {len(runs):>5} | {cells[0]:>12} | {cells[1]:>12} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Mean ± sd, in %."""
    mean = f"{100 * statistics.mean(values):.2f}"
    return mean + (f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else "")


def chart(figures: dict[Kind, list[Figures]], yardstick: dict[str, float], path: Path) -> None:
    """Ours against TF-IDF, and the ablation."""
    served = [(kind, runs) for kind, runs in figures.items() if kind.name == SERVED]
    imdb = [(kind, runs) for kind, runs in figures.items() if kind.documents == "imdb"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4), layout="constrained")
    for place, (kind, runs) in enumerate(served):
        values = [100 * one["accuracy", "windows"] for one in runs]
        left.bar(place, statistics.mean(values), yerr=statistics.stdev(values), capsize=3, color="C0")
        known = yardstick[kind.documents]
        left.plot([place - 0.45, place + 0.45], [known, known], color="black", label=None if place else "TF-IDF + LR")
    left.set(ylabel="accuracy, %", xticks=range(len(served)), ylim=(60, 100))
    left.set_xticklabels([kind.documents for kind, _ in served])
    left.legend()
    values = [100 * statistics.mean(one["accuracy", "windows"] for one in runs) for _, runs in imdb]
    right.barh(range(len(imdb)), values, color="C1")
    right.axvline(yardstick["imdb"], color="black", label="TF-IDF + LR")
    right.set(xlabel="accuracy on IMDb, %", yticks=range(len(imdb)), xlim=(min(values) - 1, max(values) + 0.5))
    right.set_yticklabels([kind.name for kind, _ in imdb], fontsize=8)
    right.invert_yaxis()
    right.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
