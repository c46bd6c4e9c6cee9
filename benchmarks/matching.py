"""`python -m benchmarks.matching`: our matcher on pairs of papers beside TF-IDF, with its ablation.

Trains what is not there yet into `runs/matching/` (a quarter of an hour each on one core; interrupted, it goes on),
measures every run once and writes `matching.md` and `.png` into `benchmarks/results/`. `benchmarks.aan_tfidf` comes
first.
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

from model.training.provenance import git_revision

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

METRICS = ("accuracy", "auc")
KINDS = {
    "all": ("all", 3, ()),
    "disjoint": ("paper-disjoint", 2, ("data.disjoint=true",)),
    "no-fourier": ("all", 1, ("model.encoder.options.use_fourier=false",)),
    "stem-alone": ("all", 1, ("model.encoder.num_layers=0",)),
}
"""Test pairs, seeds and settings of each kind of run."""

Figures = dict[str, list[dict[str, float]]]
"""Kind -> metrics of each seed."""


def main() -> None:
    """Train and measure what is missing; print and write table and chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    parser.add_argument("--runs", default="runs/matching", type=Path)
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    args = parser.parse_args()
    jobs = [(kind, seed) for kind, (_, seeds, _) in KINDS.items() for seed in range(seeds)]
    figures: Figures = {}
    for kind, seed in tqdm(jobs, unit="run"):
        figures.setdefault(kind, []).append(run(kind, seed, args))
    yardstick = tfidf(args.out)
    text = (
        f"# Pairs of ACL Anthology papers\n\nFirst 4,000 bytes of each paper, 8,717 test pairs (paper-disjoint: 772); "
        f"mean ± sd over seeds.\n\n{table(figures, yardstick)}\n\n"
        f"- revision {git_revision()}\n- command: `python -m benchmarks.matching`\n"
    )
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "matching.md").write_text(text)
    chart(figures, yardstick, args.out / "matching.png")


def run(kind: str, seed: int, args: argparse.Namespace) -> dict[str, float]:
    """Metrics of one run, trained and measured if need be."""
    folder = args.runs / kind / f"aan-seed{seed}"
    if not (folder / "evaluation.json").is_file():
        settings = [part for setting in (f"seed={seed}", *KINDS[kind][2]) for part in ("--set", setting)]
        resume = ["--resume"] if (folder / "last.pt").is_file() else []
        data = ["--data-dir", str(args.data_dir)]
        train = ["train", "aan-s3", "--runs", str(folder.parent), *settings, *resume]
        for words in (train, ["evaluate", str(folder)]):
            subprocess.run([sys.executable, "-m", "model", *words, *data], check=True)
    return {result["metric"]: result["value"] for result in json.loads((folder / "evaluation.json").read_text())}


def tfidf(results: Path) -> dict[str, dict[str, float]]:
    """Test pairs -> metrics, from the table of `benchmarks.aan_tfidf`."""
    rows = [line.split("|")[1:-1] for line in (results / "aan_tfidf.md").read_text().splitlines()]
    cells = [[cell.strip() for cell in row] for row in rows if len(row) == 5]
    return {c[0]: dict(zip(METRICS, map(float, c[3:]), strict=True)) for c in cells if c[1].isdigit()}


def table(figures: Figures, yardstick: dict[str, dict[str, float]]) -> str:
    """Markdown, aligned."""
    names = {
        "all": "ours",
        "disjoint": "ours, trained without the papers of the test",
        "no-fourier": "without Fourier convolution",
        "stem-alone": "without S3Attention: the stem alone",
    }
    lines = [
        "| model                                        | test pairs     | seeds |      accuracy |           AUC |",
        "| -------------------------------------------- | -------------- | ----: | ------------: | ------------: |",
    ]
    for kind, runs in figures.items():
        spreads = " | ".join(f"{spread([metrics[metric] for metrics in runs]):>13}" for metric in METRICS)
        lines.append(f"| {names[kind]:<44} | {KINDS[kind][0]:<14} | {len(runs):>5} | {spreads} |")
    for pairs, metrics in yardstick.items():
        values = " | ".join(f"{metrics[metric]:>13.4f}" for metric in METRICS)
        lines.append(f"| {'TF-IDF cosine':<44} | {pairs:<14} | {'':>5} | {values} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Mean ± sd."""
    return f"{statistics.mean(values):.4f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def chart(figures: Figures, yardstick: dict[str, dict[str, float]], path: Path) -> None:
    """Accuracy and AUC of every kind, TF-IDF on the same pairs as a line over each bar."""
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    for panel, metric in zip(panels, METRICS, strict=True):
        for place, (kind, runs) in enumerate(figures.items()):
            values = [metrics[metric] for metrics in runs]
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            panel.bar(place, statistics.mean(values), yerr=deviation, capsize=3, color="C0")
            known = yardstick[KINDS[kind][0]][metric]
            label = "TF-IDF" if not place else None
            panel.plot([place - 0.45, place + 0.45], [known, known], color="black", label=label)
        panel.set(ylabel=metric, xticks=range(len(figures)), ylim=(0.75, 1.0))
        panel.set_xticklabels(list(figures), fontsize=8)
        panel.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
