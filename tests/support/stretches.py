"""Checks of the stretches in an answer."""

from typing import Any

import numpy as np
import pytest

from artifact.documents import softmax
from artifact.tasks.classification import ClassifierManifest


def check_stretches(result: dict[str, Any], manifest: ClassifierManifest, size: int) -> None:
    """Check that the stretches cover what was read of a document of `size` bytes and add up to its scores."""
    found = result["stretches"]
    bounds = [(one["start"], one["end"]) for one in found]
    assert bounds == sorted(bounds)
    assert all(0 <= start < end <= size for start, end in bounds)
    covered = {position for bound in bounds for position in range(*bound)}
    read = {position for window in result["windows"] for position in range(window["start"], window["end"])}
    assert read <= covered
    assert max(end for _, end in bounds) == max(window["end"] for window in result["windows"])
    base = np.zeros(len(manifest.labels)) if manifest.stretches is None else np.array(manifest.stretches.base)
    total = base + [sum(one["contributions"][label] for one in found) for label in manifest.labels]
    scores = {score["label"]: score["score"] for score in result["scores"]}
    assert softmax(total).tolist() == pytest.approx([scores[label] for label in manifest.labels], abs=1e-5)
