"""Generated documents for tests and the README: positive if they contain more `+` than `-`."""

import random
from pathlib import Path

LABELS = ["minus", "plus"]
TERMS = "Generated; no terms."

SIZES = {"train": 600, "test": 200}


def read(data_dir: Path, split: str) -> list[tuple[bytes, int]]:
    """Generate one split as (bytes, label); `data_dir` is ignored."""
    del data_dir
    generator = random.Random(split)
    rows = []
    for _ in range(SIZES[split]):
        label = generator.randrange(2)
        letters = generator.choices("abcdefgh ", k=generator.randint(4, 120))
        marks = generator.choices("+-"[:: -1 if label == 0 else 1], weights=(5, 1), k=len(letters) // 2 + 1)
        rows.append(("".join(generator.sample(letters + marks, len(letters) + len(marks))).encode(), label))
    return rows
