"""`python -m benchmarks.document_length`: accuracy against the length of a document, whole and by its head alone.

Reads the runs that `benchmarks.classification` left in `runs/classification/` (seed 0 of each set) and writes
`document_length.md` and `.png` into `benchmarks/results/`.
"""

import argparse
import os
from pathlib import Path

import matplotlib
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.classification import KINDS, SERVED
from model.data.documents import load_test
from model.tasks import task_of
from model.tasks.base import module_runs
from model.tasks.classification import Classification
from model.training import checkpoint
from model.training.provenance import git_revision

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

EDGES = (0, 512, 1024, 2048, 4096, 8192)
"""Lengths in bytes above which a row of the table begins."""


def main() -> None:
    """Measure each set; print and write table and chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    parser.add_argument("--runs", default="runs/classification", type=Path)
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    args = parser.parse_args()
    lines = [
        "# Accuracy against length",
        "",
        "Seed 0 of each set, accuracy in %; up to 4,096 bytes the head is the whole document.",
        "",
        "| documents             | bytes          | documents | windows | head alone |",
        "| --------------------- | -------------- | --------: | ------: | ---------: |",
    ]
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for kind in KINDS:
        if kind.name != SERVED:
            continue
        (folder,) = (args.runs / kind.folder).glob("*-seed0")
        sizes, windows, head = measure(folder, args.data_dir)
        shares = []
        for low, high in zip(EDGES, (*EDGES[1:], None), strict=True):
            chosen = (sizes > low) & (sizes <= (high or np.inf))
            shares.append(100 * windows[chosen].mean())
            label = f"{low + 1:,} to {high:,}" if high else f"over {low:,}"
            lines.append(
                f"| {kind.documents:<21} | {label:<14} | {chosen.sum():>9} | {shares[-1]:>7.2f} | "
                f"{100 * head[chosen].mean():>10.2f} |"
            )
        axes.plot(range(len(shares)), shares, marker="o", label=kind.documents)
    axes.set(xlabel="bytes, more than", ylabel="accuracy, %", xticks=range(len(EDGES)))
    axes.set_xticklabels([f"{edge:,}" for edge in EDGES])
    axes.grid(alpha=0.3)
    axes.legend()
    text = "\n".join(
        (*lines, "", f"- revision {git_revision()}", "- command: `python -m benchmarks.document_length`", "")
    )
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "document_length.md").write_text(text)
    figure.savefig(args.out / "document_length.png", dpi=110)


def measure(folder: Path, data_dir: Path) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Bytes of each test document, and whether it is right by windows and by its head."""
    config, _, facts, state = checkpoint.load(folder / "best.pt")
    task = task_of(config)
    assert isinstance(task, Classification)
    task.restore(facts)
    model = task.build()
    checkpoint.load_weights(model, state, folder / "best.pt")
    task.finish(model.eval(), data_dir)
    documents = load_test(task.config.data, data_dir, facts["labels"])
    rows = task.logits(module_runs(task.graphs(model), torch.device("cpu"))[0], documents)
    labels = np.array(documents.labels)
    windows = np.array([part.mean(0).argmax() for part in rows]) == labels
    head = np.array([part[0].argmax() for part in rows]) == labels
    return np.array([len(text) for text in documents.texts]), windows, head


if __name__ == "__main__":
    main()
