"""Plots of a run. Used by `model.training.stages`, `model.report` and `model.export`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from artifact.arrays import Doubles
from artifact.tasks.labels import ReliabilityBin

matplotlib.use("Agg")
from matplotlib import pyplot  # after the choice of the backend
from matplotlib.figure import Figure

from model.errors import writing


@dataclass(frozen=True)
class Panel:
    """A series and its forecast."""

    title: str
    past: Doubles
    """(n,)."""
    future: Doubles
    """(horizon,)."""
    quantiles: Doubles
    """10 %, 50 % and 90 %, (3, horizon)."""


def plot_history(history: Sequence[Mapping[str, Any]], metric: str, folder: Path) -> None:
    """Plot the metrics of a run to learning_curve.png, over its epochs, or to stages.png. Raises: UserError."""
    is_of_epochs = "epoch" in history[0]
    _save(history_figure(history, metric), folder / ("learning_curve.png" if is_of_epochs else "stages.png"))


def history_figure(history: Sequence[Mapping[str, Any]], metric: str) -> Figure:
    """The metrics of a run over its epochs or stages."""
    is_of_epochs = "epoch" in history[0]
    x = [record["epoch" if is_of_epochs else "stage"] for record in history]
    curves = [(f"validation_{metric}", f"validation {metric}")]
    if is_of_epochs:
        curves.insert(0, ("training_loss", "training loss"))
    else:
        curves.append(("validation_cross_entropy", "validation cross-entropy, nats"))
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for number, (axes, (key, label)) in enumerate(zip(panels, curves, strict=True)):
        axes.plot(x, [record[key] for record in history], marker="o", color=f"C{number}")
        axes.set(xlabel="epoch" if is_of_epochs else "", ylabel=label)
        if is_of_epochs:
            axes.xaxis.get_major_locator().set_params(integer=True)
    return figure


def plot_reliability(bins: Sequence[ReliabilityBin], path: Path) -> None:
    """Plot accuracy against score on the test split, and the number of documents by score, to a PNG."""
    scores = [part.score for part in bins]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot([0, 1], [0, 1], color="gray", linestyle="--", label="score = accuracy")
    left.plot(scores, [part.accuracy for part in bins], marker="o", label="test documents")
    left.set(xlabel="score of the answer", ylabel="fraction of correct answers", xlim=(0, 1), ylim=(0, 1))
    left.legend(loc="upper left")
    right.bar(scores, [part.examples for part in bins], width=0.04, color="C1")
    right.set(xlabel="score of the answer", ylabel="test documents", xlim=(0, 1))
    _save(figure, path)


def plot_forecasts(panels: Sequence[Panel], path: Path) -> None:
    """Plot forecasts of series, with their 80 % bands, to a PNG."""
    columns = 3
    figure, grid = pyplot.subplots(
        -(-len(panels) // columns), columns, figsize=(12, 2.4 * -(-len(panels) // columns)), layout="constrained"
    )
    for axes, panel in zip(grid.flat, panels, strict=False):
        steps, (low, median, high) = np.arange(len(panel.future)), panel.quantiles
        axes.plot(np.arange(-len(panel.past), 0), panel.past, color="black", linewidth=0.8)
        axes.plot(steps, panel.future, color="black", linewidth=0.8, alpha=0.4)
        axes.plot(steps, median, color="C0")
        axes.fill_between(steps, low, high, color="C0", alpha=0.25, linewidth=0)
        axes.set_title(panel.title, fontsize=9)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    with writing(path):
        figure.savefig(path, dpi=110)
    pyplot.close(figure)
