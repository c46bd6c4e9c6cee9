"""The benchmark of stretches, with a model whose contributions can be computed by hand."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from artifact.backends.base import Array, Tensors
from artifact.loading import LoadedModel
from artifact.local import Model
from artifact.manifest import ClassifierManifest, Stretches, read_manifest, version_folder
from benchmarks.lib.record import Data, Record
from benchmarks.models import stretches
from benchmarks.models.stretches import DOCUMENTS, by_contribution, drops, measure_model, report, without
from model.config.data import DocumentsConfig
from model.data.documents import Documents
from tests.support.models import classifier
from tests.support.paths import EXPORTS


def test_stretches_are_removed_in_any_order() -> None:
    assert without(b"abcdefgh", [(6, 8), (0, 2), (2, 3)]) == b"def"
    assert without(b"abc", []) == b"abc"


def test_largest_contribution_to_the_label_is_first() -> None:
    values = [("a", 0, 2), ("b", 2, 4), ("c", 4, 5)]
    found = [
        {"start": start, "end": end, "contributions": {"x": value, "y": -value}}
        for (_, start, end), value in zip(values, (0.5, 2.0, -1.0), strict=True)
    ]
    assert by_contribution({"label": "x", "stretches": found}) == [(2, 4), (0, 2), (4, 5)]
    assert by_contribution({"label": "y", "stretches": found}) == [(4, 5), (0, 2), (2, 4)]


class Backend:
    """Each plus in a stretch of two bytes adds 1 to the logit of `positive`."""

    device: Literal["cpu", "cuda"] = "cpu"

    def run(self, inputs: Tensors, limit_s: float | None = None) -> dict[str, Array]:
        """Compute one batch."""
        del limit_s
        pluses = (inputs["bytes"] == ord("+")).reshape(len(inputs["bytes"]), -1, 2).sum(axis=2)
        contributions = np.stack((np.zeros(pluses.shape), pluses), axis=2).astype(np.float32)
        return {"logits": contributions.sum(axis=1), "contributions": contributions}


TEXT = b"..++....++.+...."
DROP = 1 / (1 + np.exp(-5)) - 0.5
"""Drop of the score of TEXT without its three stretches with pluses."""


def divided_model() -> LoadedModel:
    loaded = classifier()
    assert isinstance(loaded.manifest, ClassifierManifest)
    spec = loaded.manifest.outputs[0].model_copy(update={"name": "contributions", "shape": (-1, -1, 2)})
    changes = {
        "outputs": (*loaded.manifest.outputs, spec),
        "stretches": Stretches(length=2, base=(0.0, 0.0)),
        "training": read_manifest(version_folder(EXPORTS / "imdb-s3")).training,
    }
    return replace(loaded, manifest=loaded.manifest.model_copy(update=changes), backend=Backend())


def test_drops_are_those_of_the_removed_stretches() -> None:
    largest, others = drops(Model(divided_model()), [TEXT, TEXT], random.Random(0))
    assert largest == pytest.approx([DROP] * 2, abs=1e-6)
    assert len(others) == 2
    assert all(0 <= drop <= largest[0] for drop in others)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[LoadedModel, list[bytes]], Data]:
    """A function that measures a model with made-up test documents."""

    def measure(model: LoadedModel, texts: list[bytes]) -> Data:
        def read(config: DocumentsConfig, data_dir: Path, labels: list[str]) -> Documents:
            assert (config.name, data_dir, labels) == ("20newsgroups", tmp_path, ["negative", "positive"])
            return Documents(texts, [0] * len(texts))

        monkeypatch.setattr(stretches, "load_export", lambda *_, **__: model)
        monkeypatch.setattr(stretches, "load_test", read)
        return measure_model(EXPORTS / "imdb-s3", "20newsgroups", tmp_path)

    return measure


def test_documents_of_too_few_stretches_or_several_windows_are_left_out(
    measured: Callable[[LoadedModel, list[bytes]], Data],
) -> None:
    found = measured(divided_model(), [TEXT[:14], TEXT[:15], TEXT, TEXT + b"."])
    assert (found["documents"], found["model"]) == ("20newsgroups", "mood/1")
    assert found["largest"] == pytest.approx([DROP] * 2, abs=1e-6)
    assert len(found["random"]) == 2


def test_at_most_the_stated_number_of_documents_is_measured(
    measured: Callable[[LoadedModel, list[bytes]], Data],
) -> None:
    found = measured(divided_model(), [TEXT] * (DOCUMENTS + 5))
    assert len(found["largest"]) == len(found["random"]) == DOCUMENTS


def test_model_or_documents_that_cannot_be_measured_are_rejected(
    measured: Callable[[LoadedModel, list[bytes]], Data],
) -> None:
    with pytest.raises(ValueError, match="returns no contributions"):
        measured(classifier(), [TEXT, TEXT])
    with pytest.raises(ValueError, match="20newsgroups has 1 documents of 15 to 16 bytes"):
        measured(divided_model(), [TEXT, TEXT[:14]])


def test_report_has_means_with_their_errors() -> None:
    found = {"documents": "films", "model": "m/1", "revision": "r", "largest": [0.5, 0.3], "random": [0.1, 0.1]}
    record = Record("stretches", "p", "c", "d", "r", {"cpu": "x"}, {}, {}, {"sets": [found]})
    assert "| films" in (text := report(record))
    assert "0.400 ± 0.100 | 0.100 ± 0.000 | 0.300 ± 0.100" in text
