"""Write an IMDb file with a few reviews."""

import json
import lzma
from pathlib import Path

from model.data import imdb


def review(text: object = "fine", label: object = 1, split: object = "train", group: int = 0) -> dict[str, object]:
    """Return one row, whose file number is in the group."""
    number = group * imdb.FILES_PER_GROUP
    return {"split": split, "text": text, "label": label, "id": f"{split}/{'pos' if label == 1 else 'neg'}/{number}_7"}


def write_reviews(folder: Path, rows: list[object]) -> Path:
    """Write rows, or raw lines, and return the folder."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / imdb.IMDB.file).write_bytes(lzma.compress("".join(line + "\n" for line in lines).encode()))
    return folder
