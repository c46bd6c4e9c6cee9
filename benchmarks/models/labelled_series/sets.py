"""Sets of labelled series, and answers packed for the record. Needs no PyTorch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifact.tables.recordings import RecordingFile, read_recordings

COMPOSED = {
    "EOG": ("EOGHorizontalSignal", "EOGVerticalSignal"),
    "Pig": ("PigAirwayPressure", "PigArtPressure", "PigCVP"),
}
"""Set -> sets of one channel each, of the same recordings."""
JAPANESE = "JapaneseVowels"
AEON = "MiniRocket of aeon"
"""Classifier that `benchmarks.models.labelled_series.aeon` adds to the record."""


def sets_of(data_dir: Path) -> list[str]:
    """Names of the sets, in alphabetical order."""
    parts = {part for names in COMPOSED.values() for part in names}
    found = {path.name.removesuffix("_TRAIN.ts.gz") for path in (data_dir / "series").glob("*_TRAIN.ts.gz")}
    return sorted({*(found - parts), *COMPOSED, JAPANESE}, key=str.lower)


def read_split(name: str, split: str, data_dir: Path) -> RecordingFile:
    """Read a published split, TRAIN or TEST, of a set."""
    if name not in COMPOSED:
        folder = data_dir if name == JAPANESE else data_dir / "series"
        return read_recordings(folder / f"{name}_{split}.ts.gz")
    parts = [read_split(part, split, data_dir) for part in COMPOSED[name]]
    joined = tuple(
        replace(same[0], values=np.concatenate([one.values for one in same], axis=1))
        for same in zip(*(part.recordings for part in parts), strict=True)
    )
    channels = tuple(f"{place}-{channel}" for place, part in enumerate(parts) for channel in part.channels)
    return replace(parts[0], channels=channels, recordings=joined)


def packed(correct: NDArray[np.bool_]) -> str:
    """Whether each answer is correct, in hexadecimal."""
    return np.packbits(correct).tobytes().hex()


def unpacked(bits: str, examples: int) -> NDArray[np.bool_]:
    """Inverse of `packed`."""
    return np.unpackbits(np.frombuffer(bytes.fromhex(bits), np.uint8), count=examples).astype(bool)
