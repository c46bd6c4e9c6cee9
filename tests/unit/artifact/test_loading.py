"""Finding, checking and loading exports, and computing batches with them."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from artifact import loading
from artifact.arrays import Array
from artifact.backends.base import Tensors
from artifact.errors import BadExport
from artifact.exports import version_folder, versions_of
from artifact.loading import find_exports, find_versions, load_export
from artifact.tasks.forecasting import Forecasting
from artifact.tasks.matching import MatcherManifest
from tests.support.models import Backend, classifier, forecaster, head_of, matcher
from tests.support.paths import EXPORTS


def test_highest_version_of_each_name_is_found(tmp_path: Path) -> None:
    for place in ("b/2", "b/10", "b/09", "b/.partial-11", "a/1", "empty", ".hidden/1", "c/one"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "a/2").write_text("a file")
    assert find_exports(tmp_path) == [tmp_path / "a/1", tmp_path / "b/10"]


def test_folder_without_exports_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for folder, words in ((tmp_path, "holds no export"), (tmp_path / "none", "is not a folder")):
        with pytest.raises(BadExport, match=words) as caught:
            find_exports(folder)
        assert caught.value.reason == "missing"


def test_unreadable_folder_is_reported_and_the_others_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("a/1", "locked/2"):
        (tmp_path / place).mkdir(parents=True)

    def list_versions(folder: Path) -> list[Path]:
        if folder.name == "locked":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return versions_of(folder)

    monkeypatch.setattr(loading, "versions_of", list_versions)
    found = find_versions(tmp_path)
    assert found.versions == {"a": [tmp_path / "a/1"]}
    assert {name: (str(error), error.reason) for name, error in found.unreadable.items()} == {
        "locked": ("locked: its folder cannot be listed: Permission denied", "unreadable")
    }
    assert find_exports(tmp_path) == [tmp_path / "a/1"]


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\x1b[2J", b"A model", b"x" * 65])
def test_invalid_folder_name_is_reported_in_escaped_form(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "a" / "1").mkdir(parents=True)
    (tmp_path / os.fsdecode(name) / "1").mkdir(parents=True)
    found = find_versions(tmp_path)
    assert found.versions == {"a": [tmp_path / "a/1"]}
    ((reported, error),) = found.unreadable.items()
    assert reported.isascii()
    assert reported.isprintable()
    assert str(error) == f"{reported}: the name of an export has lower-case letters, digits, '.', '_' and '-' only"


@pytest.mark.parametrize("name", ["aan", "ettm2"])
def test_export_is_loaded_with_everything_its_task_needs(name: str) -> None:
    model = load_export(version_folder(EXPORTS / name), device="cpu")
    manifest = model.manifest
    assert (manifest.name, model.format, model.backend.device) == (name, "onnx", "cpu")
    assert model.load_seconds > 0
    assert (model.head is not None) == isinstance(manifest, MatcherManifest) == model.task.has_head
    if name == "ettm2":
        assert isinstance(model.task, Forecasting)
        assert model.task.calibration.count == model.task.manifest.calibration_examples


def test_batch_of_the_warm_up_that_never_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_backend(*_: object, **__: object) -> Backend:
        raise TimeoutError("more than 60 s")

    folder = version_folder(EXPORTS / "ettm2")
    monkeypatch.setattr(loading, "create_backend", create_backend)
    with pytest.raises(BadExport, match=f"^ettm2/{folder.name}: computing a batch takes more than 60 s$") as caught:
        load_export(folder, device="cpu")
    assert caught.value.reason == "timeout"


def test_lengths_of_rows_are_in_bytes() -> None:
    assert classifier().row_lengths == [8, 16]
    assert forecaster().row_lengths == [4 * 4 * 2]  # float32, steps, channels


def test_documents_are_padded_to_their_bucket() -> None:
    seen = list[Tensors]()

    def compute(inputs: Tensors) -> Array:
        seen.append(inputs)
        return np.zeros((2, 2))

    model = replace(classifier(), backend=Backend("logits", compute))
    assert model.run([b"ab", b"c"], 8).shape == (2, 2)
    (inputs,) = seen
    assert inputs["bytes"].tolist() == [[97, 98, 0, 0, 0, 0, 0, 0], [99, 0, 0, 0, 0, 0, 0, 0]]
    assert inputs["lengths"].tolist() == [2, 1]


def test_windows_have_the_shape_of_the_input() -> None:
    """The forecast repeats the last step."""
    windows = np.arange(16, dtype=np.float32).reshape(2, 4, 2)
    found = forecaster().run([window.tobytes() for window in windows], 32)
    assert found.tolist() == [[[6, 7]] * 3, [[14, 15]] * 3]


@pytest.mark.parametrize("count", [1, 256, 513])
def test_head_computes_chunks_of_one_size(count: int) -> None:
    model = matcher()
    a, b = np.ones((count, 2), np.float32), np.zeros((count, 2), np.float32)
    b[:, 0] = np.arange(count)
    assert model.run_head(a, b) == pytest.approx(np.log1p(np.arange(count)), rel=1e-6)
    assert head_of(model).batches == [256] * -(-count // 256)
