"""Plots of a run. Called by `model.training.run` and `model.cli.export`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

from artifact.tasks.classification import ReliabilityBin

matplotlib.use("Agg")
from matplotlib import pyplot  # after the choice of the backend


def plot_learning_curve(history: list[dict[str, float]], metric: str, path: Path) -> None:
    """Plot training loss and validation metric over the epochs to a PNG."""
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


def plot_stages(history: list[dict[str, Any]], metric: str, path: Path) -> None:
    """Plot metric and cross-entropy on the validation documents after each stage to a PNG."""
    names = [record["stage"] for record in history]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.plot(names, [record[f"validation_{metric}"] for record in history], marker="o")
    left.set(ylabel=f"validation {metric}")
    right.plot(names, [record["validation_cross_entropy"] for record in history], marker="o", color="C1")
    right.set(ylabel="validation cross-entropy, nats")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def plot_reliability(bins: Sequence[ReliabilityBin], path: Path) -> None:
    """Plot accuracy against score on the test split, and the number of documents by score, to a PNG."""
    scores = [part.score for part in bins]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot([0, 1], [0, 1], color="gray", linestyle="--", label="score = accuracy")
    left.plot(scores, [part.accuracy for part in bins], marker="o", label="test documents")
    left.set(xlabel="score of the answer", ylabel="fraction of correct answers", xlim=(0, 1), ylim=(0, 1))
    left.legend()
    right.bar(scores, [part.examples for part in bins], width=0.04, color="C1")
    right.set(xlabel="score of the answer", ylabel="test documents", xlim=(0, 1))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
