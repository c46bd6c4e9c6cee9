"""Write an IMDb file with a few reviews."""

import json
import lzma
from pathlib import Path

from model.data import imdb


def review(text: object = "fine", label: object = 1, split: object = "train") -> dict[str, object]:
    """Return one row."""
    return {"split": split, "text": text, "label": label}


def write_reviews(folder: Path, rows: list[object]) -> Path:
    """Write rows, or raw lines, and return the folder."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / imdb.FILE).write_bytes(lzma.compress("".join(line + "\n" for line in lines).encode()))
    return folder
