"""The benchmark of stretches, with a model whose contributions can be computed by hand."""

import random
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from artifact.backends.base import Array, Tensors
from artifact.local import Model
from artifact.manifest import ClassifierManifest, Stretches
from benchmarks.lib.record import Record
from benchmarks.models.stretches import by_contribution, drops, report, without
from tests.support.models import classifier


def test_stretches_are_removed_in_any_order() -> None:
    assert without(b"abcdefgh", [(6, 8), (0, 2), (2, 3)]) == b"def"
    assert without(b"abc", []) == b"abc"


def test_largest_contribution_to_the_label_is_first() -> None:
    values = [("a", 0, 2), ("b", 2, 4), ("c", 4, 5)]
    stretches = [
        {"start": start, "end": end, "contributions": {"x": value, "y": -value}}
        for (_, start, end), value in zip(values, (0.5, 2.0, -1.0), strict=True)
    ]
    assert by_contribution({"label": "x", "stretches": stretches}) == [(2, 4), (0, 2), (4, 5)]
    assert by_contribution({"label": "y", "stretches": stretches}) == [(4, 5), (0, 2), (2, 4)]


class Backend:
    """Each plus in a stretch of two bytes adds 1 to the logit of `positive`."""

    device: Literal["cpu", "cuda"] = "cpu"

    def run(self, inputs: Tensors) -> dict[str, Array]:
        """Compute one batch."""
        pluses = (inputs["bytes"] == ord("+")).reshape(len(inputs["bytes"]), -1, 2).sum(axis=2)
        contributions = np.stack((np.zeros(pluses.shape), pluses), axis=2).astype(np.float32)
        return {"logits": contributions.sum(axis=1), "contributions": contributions}


def divided_model() -> Model:
    loaded = classifier()
    assert isinstance(loaded.manifest, ClassifierManifest)
    spec = loaded.manifest.outputs[0].model_copy(update={"name": "contributions", "shape": (-1, -1, 2)})
    changes = {"outputs": (*loaded.manifest.outputs, spec), "stretches": Stretches(length=2, base=(0.0, 0.0))}
    return Model(replace(loaded, manifest=loaded.manifest.model_copy(update=changes), backend=Backend()))


def test_drops_are_those_of_the_removed_stretches() -> None:
    text = b"..++....++.+...."
    largest, others = drops(divided_model(), [text, text], random.Random(0))
    assert largest == pytest.approx([1 / (1 + np.exp(-5)) - 0.5] * 2, abs=1e-6)
    assert len(others) == 2
    assert all(0 <= drop <= largest[0] for drop in others)


def test_report_has_means_with_their_errors() -> None:
    found = {"documents": "films", "model": "m/1", "revision": "r", "largest": [0.5, 0.3], "random": [0.1, 0.1]}
    record = Record("stretches", "p", "c", "d", "r", {"cpu": "x"}, {}, {}, {"sets": [found]})
    assert "| films" in (text := report(record))
    assert "0.400 ± 0.100 | 0.100 ± 0.000 | 0.300 ± 0.100" in text
