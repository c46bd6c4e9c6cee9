"""Plots of a run. Called by `model.training.run` and `model.cli.export`."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

from artifact.manifest import ReliabilityBin

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first


def learning_curve(history: list[dict[str, float]], metric: str, path: Path) -> None:
    """Training loss and the validation metric against epochs, as a PNG."""
    epochs = [record["epoch"] for record in history]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.plot(epochs, [record["training_loss"] for record in history], marker="o")
    left.set(xlabel="epoch", ylabel="training loss")
    right.plot(epochs, [record[f"validation_{metric}"] for record in history], marker="o", color="C1")
    right.set(xlabel="epoch", ylabel=f"validation {metric}")
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def reliability_diagram(bins: Sequence[ReliabilityBin], path: Path) -> None:
    """Accuracy against score on the test split, and how many documents have each score, as a PNG."""
    scores = [part.score for part in bins]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot([0, 1], [0, 1], color="gray", linestyle="--", label="score = accuracy")
    left.plot(scores, [part.accuracy for part in bins], marker="o", label="test documents")
    left.set(xlabel="score of the answer", ylabel="share of right answers", xlim=(0, 1), ylim=(0, 1))
    left.legend()
    right.bar(scores, [part.examples for part in bins], width=0.04, color="C1")
    right.set(xlabel="score of the answer", ylabel="test documents", xlim=(0, 1))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
