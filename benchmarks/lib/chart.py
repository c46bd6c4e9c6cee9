"""Matplotlib figures without pyplot, saved as WebP."""

import io
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

DPI = 110
COLOURS = 256


def figure(
    size: tuple[float, float], columns: int = 1, *, rows: int = 1, share_y: bool | Literal["row"] = False
) -> tuple[Figure, list[Axes]]:
    """Create a figure of `size` inches; returns it and its axes row by row."""
    drawn = Figure(figsize=size, layout="constrained")
    return drawn, list(drawn.subplots(rows, columns, sharey=share_y, squeeze=False).flat)


def save(drawn: Figure, path: Path) -> None:
    """Write a lossless WebP with at most COLOURS colours; deterministic, so that equal figures give equal bytes."""
    stream = io.BytesIO()
    drawn.savefig(stream, dpi=DPI)
    with Image.open(stream) as image:
        few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).convert("RGB")
        few.save(path, format="WEBP", lossless=True)
