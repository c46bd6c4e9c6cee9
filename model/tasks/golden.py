"""Synthetic inputs that check exports, in `model.cli.export` and whenever they are loaded."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifact.documents import pad_rows


def golden_documents(length: int) -> dict[str, NDArray[Any]]:
    """Synthetic documents: minimum and maximum lengths, NUL bytes, text-like and random bytes.

    Shape:  bytes (8, length) uint8, lengths (8,) int32.
    """
    generator = np.random.default_rng(0)
    text = bytes(generator.choice(list(b"etaoin shrdlu,.\n"), length).tolist())
    noise = generator.bytes(length)
    rows = [b"a", bytes(2), text[:17], text[: length // 2], noise[: length // 2 + 1], text[:-1], text, noise]
    padded, lengths = pad_rows(rows, length)
    return {"bytes": padded, "lengths": lengths}


def golden_vectors(width: int) -> dict[str, NDArray[Any]]:
    """Random vectors: a and b, both (8, width) float32."""
    vectors = np.random.default_rng(0).standard_normal((2, 8, width)).astype(np.float32)
    return dict(zip("ab", vectors, strict=True))


def golden_windows(length: int, channels: int) -> dict[str, NDArray[Any]]:
    """Random walks, including a constant one and one that is zero except at its end: (3, length, channels) float32."""
    generator = np.random.default_rng(0)
    series = generator.standard_normal((3, length, channels)).cumsum(axis=1).astype(np.float32)
    series[0], series[1, :-1] = 3.0, 0.0
    return {"series": series}
