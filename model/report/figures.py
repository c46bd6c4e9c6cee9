"""Pictures of a report, as addresses that contain them. No text of the user is in a picture."""

import base64
import io
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib import pyplot, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact.arrays import Doubles
from artifact.tasks.labels import ReliabilityBin
from model.tasks.predictions import Rival

MODEL, RIVAL = "C0", "C1"
"""Colours."""
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
"""Names of programs and of addresses are left out."""


def address_of(figure: Figure) -> str:
    """The figure as SVG in an address, with a grid; closes it."""
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    stream = io.BytesIO()
    # Texts as texts, which is short; and the same file for the same content.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "report"}):
        figure.savefig(stream, format="svg", metadata=NO_METADATA)
    pyplot.close(figure)
    return f"data:image/svg+xml;base64,{base64.b64encode(stream.getvalue()).decode()}"


def drawn(draw: Callable[[Axes], None], *, width: float = 4.6, height: float = 3.4) -> str:
    """A picture with one pair of axes, on which `draw` draws."""
    figure, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
    draw(axes)
    return address_of(figure)


def reliability(bins: Sequence[ReliabilityBin], others: Sequence[ReliabilityBin], of: str = "the answer") -> str:
    """How often `of` is right against its score, for the model and, if it has probabilities, for the baseline."""

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color="gray", linestyle="--", label="score = fraction")
        for parts, name, colour in ((bins, "model", MODEL), (others, "baseline", RIVAL)):
            if parts:
                scores, accuracies = [part.score for part in parts], [part.accuracy for part in parts]
                axes.plot(scores, accuracies, marker="o", color=colour, label=name)
        axes.set(xlabel=f"score of {of}", ylabel=f"fraction in which {of} is right", xlim=(0, 1), ylim=(0, 1))
        axes.legend(loc="upper left")

    return drawn(draw)


def bars(names: Sequence[str], model: Sequence[float], rival: Sequence[float], label: str, unit: str) -> str:
    """Values of groups, of the model and of the baseline if there is one."""

    def draw(axes: Axes) -> None:
        places, width = np.arange(len(names)), 0.4 if rival else 0.8
        axes.bar(places, model, width, color=MODEL, label="model")
        if rival:
            axes.bar(places + width, rival, width, color=RIVAL, label="baseline")
            axes.legend(loc="lower right")
        axes.set(xlabel=unit, ylabel=label, ylim=(0, 1), xticks=places + (width / 2 if rival else 0))
        axes.set_xticklabels(names, rotation=30, ha="right")

    return drawn(draw, width=6.4)


def roc(curves: Sequence[tuple[str, Doubles]]) -> str:
    """ROC curves: names, and rates (2, points) of false and true positives."""

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color="gray", linestyle="--")
        for number, (name, rates) in enumerate(curves):
            axes.plot(*rates, color=f"C{number}", label=name)
        axes.set(xlabel="false positives / negatives", ylabel="true positives / positives", xlim=(0, 1), ylim=(0, 1))
        axes.legend(loc="lower right")

    return drawn(draw)


def histogram(no: Doubles, yes: Doubles, label: str, threshold: float) -> str:
    """Scores of pairs that do not belong together, and of those that do."""

    def draw(axes: Axes) -> None:
        edges = np.linspace(min(0.0, *no, *yes), max(1.0, *no, *yes), 31)
        axes.hist([no, yes], edges.tolist(), label=["label 0", "label 1"], color=["C3", "C2"])
        axes.axvline(threshold, color="gray", linestyle="--", label="threshold")
        axes.set(xlabel=label, ylabel="pairs")
        axes.legend(loc="upper center")

    return drawn(draw)


def forecast(past: Doubles, truth: Doubles, band: Doubles, others: Sequence[Rival]) -> str:
    """A series (n,), its truth (horizon,), a forecast between its bounds (3, horizon), and other forecasts."""

    def draw(axes: Axes) -> None:
        low, middle, high = band
        steps = np.arange(len(truth))
        axes.plot(np.arange(-len(past), 0), past, color="black", linewidth=0.8)
        axes.plot(steps, truth, color="black", linewidth=0.8, alpha=0.5, label="truth")
        axes.plot(steps, middle, color=MODEL, label="model")
        axes.fill_between(steps, low, high, color=MODEL, alpha=0.25, linewidth=0)
        for number, other in enumerate(others, 1):
            axes.plot(steps, other.scores, color=f"C{number}", linewidth=0.8, linestyle="--", label=other.name)
        axes.set(xlabel="steps from the end of the known values")
        axes.legend(loc="upper left", fontsize="small")

    return drawn(draw, width=6.4, height=2.6)


def lines(values: Doubles, first: int = 0, spans: Sequence[tuple[int, int, float]] = ()) -> str:
    """The channels of a recording (steps, channels).

    Args:
        values: the recording, or a part of it.
        first: its first step.
        spans: first and last step of each part, and how much it speaks for the answer, -1 to 1.

    """

    def draw(axes: Axes) -> None:
        last = first + len(values)
        for start, end, shade in spans:
            if start < last and first < end:
                colour = MODEL if shade > 0 else RIVAL
                axes.axvspan(max(start, first), min(end, last), color=colour, alpha=0.35 * abs(shade), linewidth=0)
        axes.plot(np.arange(first, last), values, linewidth=0.8)

    return drawn(draw, width=6.4, height=1.8)
