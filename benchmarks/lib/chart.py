"""Matplotlib figures without pyplot, saved as PNG."""

from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

DPI = 110


def figure(
    size: tuple[float, float], columns: int = 1, *, rows: int = 1, share_y: bool | Literal["row"] = False
) -> tuple[Figure, list[Axes]]:
    """Create a figure of `size` inches; returns it and its axes row by row."""
    drawn = Figure(figsize=size, layout="constrained")
    return drawn, list(drawn.subplots(rows, columns, sharey=share_y, squeeze=False).flat)


def save(drawn: Figure, path: Path) -> None:
    """Write a PNG; deterministic, so that equal figures give equal bytes."""
    drawn.savefig(path, dpi=DPI, metadata={"Software": None})
