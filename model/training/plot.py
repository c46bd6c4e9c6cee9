"""Plots of a run. Called by `model.train`."""

from pathlib import Path

import matplotlib

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
