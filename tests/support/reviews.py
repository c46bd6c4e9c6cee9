"""The IMDb file of a few reviews."""

import json
import lzma
from pathlib import Path

from model.data import imdb


def review(text: object = "fine", label: object = 1, split: object = "train") -> dict[str, object]:
    """One row."""
    return {"split": split, "text": text, "label": label}


def write_reviews(folder: Path, rows: list[object]) -> Path:
    """Write rows, or lines as they are; returns the folder."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / imdb.FILE).write_bytes(lzma.compress("".join(line + "\n" for line in lines).encode()))
    return folder
