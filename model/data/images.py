"""CIFAR-10 as sequences of gray pixels, from a JPEG-compressed copy: not comparable with published results."""

import lzma
from pathlib import Path

from model.errors import UserError

LABELS = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
TERMS = "No licence stated; made from JPEG copies of CIFAR-10 (Krizhevsky 2009)."
PIXELS = 32 * 32


def read(data_dir: Path, split: str) -> list[tuple[bytes, int]]:
    """Read one split as (one byte per pixel, row by row; label). Raises: UserError naming the file."""
    path = data_dir / f"cifar10_gray_from_jpeg_{split}.bin.xz"
    try:
        records = lzma.decompress(path.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise UserError(f"{path}: {error}") from None
    size = 1 + PIXELS
    if len(records) % size or not records or max(records[::size]) >= len(LABELS):
        raise UserError(f"{path} does not hold records of a label below {len(LABELS)} and {PIXELS} pixels")
    return [(records[i + 1 : i + size], records[i]) for i in range(0, len(records), size)]
