import errno
import math
import os
import re
import shutil
import zipfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import model.export.export
import model.export.graphs
from artifact.backends import create_backend
from artifact.backends.base import largest_error
from artifact.backends.torchscript import SHARED
from artifact.documents import pad_rows
from artifact.exports import read_manifest
from artifact.manifest import Format
from artifact.tasks.classification import ClassifierManifest
from model.config.run import from_dict
from model.data.own import DataFiles
from model.errors import ExportMismatch
from model.nn.classifier import PaperClassifier
from model.runs.load import load_trained
from model.tasks.graphs import ExportGraph, golden_documents
from model.training import checkpoint
from tests.support.commands import call
from tests.support.disk import full_beyond
from tests.support.exported import repeated_weights

Inputs = dict[str, np.ndarray]

ROUNDING = 1e-6
"""Single-precision rounding: the last bits depend on where arrays are in memory."""
FORMATS = ["onnx", "torchscript"]
FILES = ["README.md", "golden.npz", "manifest.json", "model.onnx", "model.ts"]


@pytest.fixture(scope="module")
def classifier(run: Path) -> PaperClassifier:
    """The exported model: the best checkpoint, calibrated."""
    classifier = load_trained(run, DataFiles()).finished.model
    assert isinstance(classifier, PaperClassifier)
    return classifier


def eager(classifier: PaperClassifier, inputs: Inputs) -> np.ndarray:
    source = ExportGraph("model", classifier, inputs, ("logits",), (inputs["bytes"].shape[1],))
    return model.export.graphs.eager(source)["logits"]


def random_documents(count: int, seq_len: int) -> Inputs:
    generator = np.random.default_rng(count)
    rows = [generator.bytes(int(generator.integers(1, seq_len + 1))) for _ in range(count)]
    padded, lengths = pad_rows(rows, seq_len)
    return {"bytes": padded, "lengths": lengths}


def test_export_writes_files_that_its_manifest_lists_and_a_card(exported: Path, manifest: ClassifierManifest) -> None:
    assert sorted(path.name for path in exported.iterdir()) == FILES
    assert {file.format: file.path for file in manifest.files} == {"onnx": "model.onnx", "torchscript": "model.ts"}
    assert manifest.golden.path == "golden.npz"
    assert [path.name for path in exported.parent.iterdir()] == ["1"]


def test_weights_are_stored_once(exported: Path) -> None:
    assert repeated_weights(exported / "model.ts") == []
    assert (exported / "model.ts").stat().st_size < (exported / "model.onnx").stat().st_size


@pytest.mark.usefixtures("traced_once")
def test_concurrent_exports_get_different_versions(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another export publishes versions 1 and 2 after this one has started."""
    rename, versions = os.rename, tmp_path / "synthetic"

    def rename_late(source: Path, target: Path) -> None:
        monkeypatch.undo()
        for taken in ("1", "2"):
            shutil.copytree(source, versions / taken)
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_late)
    assert call("export", run, "--out", tmp_path, "--device", "cpu") == 0
    assert read_manifest(versions / "3").version == 3
    assert sorted(path.name for path in versions.iterdir()) == ["1", "2", "3"]


@pytest.mark.usefixtures("traced_once")
def test_export_that_cannot_be_renamed_leaves_no_files(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "rename", fail)
    assert call("export", run, "--out", tmp_path, "--device", "cpu") == 2
    assert "Read-only file system" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("traced_once")
def test_export_to_a_full_disk_leaves_no_files(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with full_beyond(1000):
        assert call("export", run, "--out", tmp_path, "--device", "cpu") == 2
    assert re.search(rf"(^|\r)error: {tmp_path}/synthetic cannot be written: .*\n$", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("name", ["model.ts", "golden.npz", "manifest.json"])
def test_disk_that_becomes_full_does_not_change_other_versions(
    run: Path,
    exported: Path,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def when_full(write: Any) -> Any:
        def write_or_fail(path: Path, *arguments: Any) -> Any:
            with full_beyond(100) if path.name == name else nullcontext():
                return write(path, *arguments)

        return write_or_fail

    shutil.copytree(exported, tmp_path / "synthetic" / "1")
    for method in ("write_bytes", "write_text"):
        monkeypatch.setattr(Path, method, when_full(getattr(Path, method)))
    assert call("export", run, "--out", tmp_path, "--device", "cpu") == 2
    assert "synthetic cannot be written: " in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "synthetic").iterdir()] == ["1"]
    read_manifest(tmp_path / "synthetic" / "1")


def test_export_manifest_describes_the_run(run: Path, manifest: ClassifierManifest) -> None:
    config, progress, facts, _ = checkpoint.load(run / "best.pt")
    assert (manifest.name, manifest.version) == ("synthetic", 1)
    assert facts == {"labels": list(manifest.labels), "metric": "accuracy"}
    assert from_dict(manifest.training.recipe) == config
    assert (manifest.max_length, manifest.window_overlap) == (128, 16)
    assert [spec.shape for spec in (*manifest.inputs, *manifest.outputs)] == [(-1, 128), (-1,), (-1, 2)]
    assert manifest.training.validation.metric == "accuracy"
    assert manifest.training.validation.value == round(progress.best or 0, 4)
    assert (manifest.training.device, manifest.training.revision) == (progress.device, progress.revision)
    expected = {("accuracy", "windows"), ("macro_f1", "windows"), ("ece", "windows"), ("accuracy", "head")}
    assert {(result.metric, result.condition) for result in manifest.results} >= expected


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("format", FORMATS)
def test_backend_agrees_with_pytorch_at_other_batch_sizes(
    exported: Path, manifest: ClassifierManifest, classifier: PaperClassifier, format: Format, count: int
) -> None:
    inputs = random_documents(count, manifest.max_length)
    got = create_backend(manifest, exported, format=format, device="cpu").run(inputs)["logits"]
    assert largest_error(got, eager(classifier, inputs)) <= manifest.tolerance


@pytest.mark.parametrize("format", FORMATS)
def test_backend_output_does_not_depend_on_the_rest_of_the_batch(
    exported: Path, manifest: ClassifierManifest, format: Format
) -> None:
    backend = create_backend(manifest, exported, format=format, device="cpu")
    inputs = random_documents(6, manifest.max_length)
    together = backend.run(inputs)["logits"]
    assert np.ptp(together, axis=0).min() > 100 * manifest.tolerance
    for i in range(6):
        alone = backend.run({name: array[i : i + 1] for name, array in inputs.items()})["logits"]
        assert largest_error(alone, together[i : i + 1]) <= manifest.tolerance


def test_golden_outputs_of_the_export_equal_those_of_pytorch(exported: Path, classifier: PaperClassifier) -> None:
    with np.load(exported / "golden.npz", allow_pickle=False) as golden:
        assert sorted(golden) == ["bytes", "lengths", "logits"]
        inputs = {name: golden[name] for name in ("bytes", "lengths")}
        assert largest_error(eager(classifier, inputs), golden["logits"]) <= ROUNDING


def test_export_onnx_is_self_contained_standard_operators(exported: Path) -> None:
    graph = onnx.load(exported / "model.onnx", load_external_data=False)
    onnx.checker.check_model(graph, full_check=True)
    assert {node.domain for node in graph.graph.node} == {""}
    assert not graph.functions
    assert all(tensor.data_location == onnx.TensorProto.DEFAULT for tensor in graph.graph.initializer)


def test_export_has_no_code_except_torchscript(exported: Path) -> None:
    with zipfile.ZipFile(exported / "model.ts") as archive:
        names = [name.partition("/")[2] for name in archive.namelist()]
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    tables = {"data.pkl", "constants.pkl", "byteorder", ".data/version", ".data/serialization_id", f"extra/{SHARED}"}
    others = [name for name in names if name not in tables and not re.fullmatch(r"constants/\d+", name)]
    assert others
    assert all(re.fullmatch(r"code/__torch__/model/(\w+/)*\w+\.py", name) for name in others)
    with zipfile.ZipFile(exported / "golden.npz") as archive:
        assert sorted(archive.namelist()) == ["bytes.npy", "lengths.npy", "logits.npy"]


def test_export_contains_no_paths_of_the_machine(exported: Path) -> None:
    contents = [path.read_bytes() for path in exported.iterdir()]
    with zipfile.ZipFile(exported / "model.ts") as archive:
        contents += [archive.read(name) for name in archive.namelist()]
    for place in (Path(model.export.graphs.__file__).parents[1], Path(torch.__file__).parents[1]):
        assert not any(str(place).encode() in content for content in contents)


@pytest.mark.usefixtures("traced_once")
def test_second_export_is_the_next_version(run: Path, exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "synthetic" / "9")
    (tmp_path / "synthetic" / "notes").mkdir()
    assert call("export", run, "--out", tmp_path, "--device", "cpu") == 0
    assert read_manifest(tmp_path / "synthetic" / "10").version == 10
    assert sorted(path.name for path in (tmp_path / "synthetic").iterdir()) == ["10", "9", "notes"]


def test_check_agreement_returns_the_measured_error(
    exported: Path, manifest: ClassifierManifest, classifier: PaperClassifier
) -> None:
    golden = golden_documents(manifest.max_length)
    logits = eager(classifier, golden)
    model.export.graphs.check_agreement(manifest, exported, golden, {"logits": logits})
    tampered = logits.copy()
    tampered[3, 1] += 0.5
    error = largest_error(logits, tampered)
    with pytest.raises(ExportMismatch, match=rf"^onnx in one batch differs from eager by {error:.2e}; allowed 1e-05$"):
        model.export.graphs.check_agreement(manifest, exported, golden, {"logits": tampered})


@pytest.mark.usefixtures("traced_once")
def test_export_that_disagrees_with_pytorch_is_rejected_and_leaves_no_files(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = model.export.graphs.eager
    shifted = {"logits": np.float32(0.25)}
    monkeypatch.setattr(
        model.export.export, "eager", lambda source: {name: right(source)[name] + by for name, by in shifted.items()}
    )
    assert call("export", run, "--out", tmp_path, "--device", "cpu") == 2
    assert re.search(
        r"(^|\r)error: onnx in one batch differs from eager by \d\.\d\de-0\d; allowed", capsys.readouterr().err
    )
    assert list(tmp_path.iterdir()) == []


def test_interrupted_export_does_not_change_older_versions(
    run: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Any, __: Any, folder: Path) -> None:
        (folder / "model.onnx").write_bytes(b"half")
        raise KeyboardInterrupt

    shutil.copytree(exported, tmp_path / "synthetic" / "1")
    monkeypatch.setattr(model.export.export, "write_graph", interrupt)
    assert call("export", run, "--out", tmp_path, "--device", "cpu") == 130
    assert [path.name for path in (tmp_path / "synthetic").iterdir()] == ["1"]
    read_manifest(tmp_path / "synthetic" / "1")


def test_export_of_a_folder_without_checkpoint_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("export", tmp_path / "nosuch", "--out", tmp_path / "exports") == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/nosuch does not exist\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("traced_once")
def test_run_whose_manifest_is_not_valid_is_one_error(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, progress, facts, state = checkpoint.load(run / "best.pt")
    checkpoint.save(tmp_path / "best.pt", config, replace(progress, best=math.nan), facts, state)
    assert call("export", tmp_path, "--out", tmp_path / "exports", "--device", "cpu") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {config.name} cannot be exported: ")
    assert error.endswith("training.validation.value: Input should be a finite number, not nan\n")
    assert list((tmp_path / "exports").iterdir()) == []


@pytest.mark.usefixtures("traced_once")
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("command", ["evaluate run", "evaluate export", "export run"])
def test_unavailable_cuda_is_an_error(
    command: str, run: Path, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, what = command.split()
    folder = run if what == "run" else exported
    assert call(name, folder, "--out", tmp_path / "out", "--device", "cuda") == 2
    assert re.search(r"(^|\r)error: .*device cuda: .*\n$", capsys.readouterr().err)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_read_only_folder_is_an_error(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for command in (["export", run, "--out"], ["train", "synthetic", "--device", "cpu", "--runs"]):
        assert call(*command, tmp_path / "file") == 2
        assert re.search(rf"(^|\r)error: .*{tmp_path}/file.*\n$", capsys.readouterr().err)
