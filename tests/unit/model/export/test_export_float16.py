"""`export --float16`: blocks that compute in float16, beside the export in float32."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import artifact
import model.export.export
from artifact.backends import create_backend
from artifact.backends.base import output_error
from artifact.errors import BadExport
from artifact.exports import read_manifest
from artifact.loading import load_export
from artifact.tasks.classification import ClassifierManifest
from tests.support.commands import call
from tests.unit.model.conftest import tracing_once

FILES = [
    "README.md",
    "golden.float16.npz",
    "golden.npz",
    "manifest.json",
    "model.float16.onnx",
    "model.onnx",
    "model.ts",
]


@pytest.fixture(scope="module")
def folder(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of the run with float16."""
    out = tmp_path_factory.mktemp("exports")
    with tracing_once(run, tmp_path_factory):
        assert call("export", run, "--out", out, "--device", "cpu", "--float16") == 0
    return out / "synthetic" / "1"


@pytest.fixture(scope="module")
def both(folder: Path) -> ClassifierManifest:
    manifest = read_manifest(folder)
    assert isinstance(manifest, ClassifierManifest)
    return manifest


def test_float16_has_files_of_its_own(folder: Path, both: ClassifierManifest) -> None:
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert both.precision == "float32"
    half = both.in_precision("float16")
    assert (half.precision, half.weights_from) == ("float16", "model.onnx")
    assert [file.path for file in half.files] == ["model.float16.onnx"]
    assert half.fixed_shapes is not None
    assert half.fixed_shapes.path == "model.float16.onnx"
    assert half.golden.path == "golden.float16.npz"
    assert (half.inputs, half.outputs, half.labels) == (both.inputs, both.outputs, both.labels)


def test_only_blocks_are_stored_in_float16(folder: Path) -> None:
    graph = onnx.load(folder / "model.float16.onnx", load_external_data=False).graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    embedding = tensors["encoder.byte_embedding.weight"]
    assert embedding.data_type == TensorProto.FLOAT
    assert {entry.key: entry.value for entry in embedding.external_data}["location"] == "model.onnx"
    assert tensors["encoder.blocks.blocks.0.attention_norm.weight"].data_type == TensorProto.FLOAT16


def test_float16_is_measured_on_the_whole_test_split(both: ClassifierManifest) -> None:
    half = both.in_precision("float16")
    kinds = [[(r.metric, r.condition, r.split, r.examples) for r in manifest.results] for manifest in (both, half)]
    assert kinds[0] == kinds[1]
    assert half.results != both.results  # such as the calibration error


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_evaluate_measures_what_the_manifest_states(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    precision: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("evaluate", folder, "--device", "cpu", "--precision", precision) == 0
    assert Path("evaluation-synthetic-1-float16.json").exists() == (precision == "float16")
    rows = re.findall(r"^accuracy .* (\d\.\d{4}) +(\d\.\d{4})$", capsys.readouterr().out, re.MULTILINE)
    assert rows
    for value, stated in rows:
        assert value == stated


def test_golden_outputs_are_those_in_float16(folder: Path, both: ClassifierManifest) -> None:
    half = both.in_precision("float16")
    with np.load(folder / both.golden.path) as float32, np.load(folder / half.golden.path) as float16:
        assert sorted(float32) == sorted(float16)
        assert np.array_equal(float32["bytes"], float16["bytes"])
        assert half.tolerance == pytest.approx(10 * output_error(float16["logits"], float32["logits"]))
        run = create_backend(half, folder, device="cpu").run
        inputs = {name: float16[name] for name in ("bytes", "lengths")}
        assert output_error(run(inputs)["logits"], float16["logits"]) <= half.tolerance


def test_loading_chooses_the_precision(folder: Path, exported: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert load_export(folder, device="cpu").manifest.precision == "float32"
    assert load_export(folder, device="cpu", precision="float16").manifest.precision == "float16"
    assert load_export(exported, device="cpu", precision="float16").manifest.precision == "float32"
    assert [re.findall(r"\(onnx, cpu, (\w+)\)$", line) for line in caplog.messages] == [
        ["float32"],
        ["float16"],
        ["float32"],
    ]


def test_precision_is_checked(folder: Path) -> None:
    with pytest.raises(BadExport, match=r"^precision 'half' is none of float32, float16$"):
        artifact.load(folder, precision="half")  # type: ignore[arg-type]  # not one of the literals
    message = "^precision float16: torchscript computes in float32 only; use onnx$"
    with pytest.raises(BadExport, match=message):
        artifact.load(folder, format="torchscript", precision="float16")


@pytest.mark.usefixtures("traced_once")
def test_output_that_differs_too_much_is_an_error(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model.export.export, "MAX_TOLERANCE", 1e-9)
    assert call("export", run, "--out", tmp_path, "--device", "cpu", "--float16") == 2
    error = r"error: float16 differs from float32 by \d\.\d\de-0\d; allowed 1e-09\n$"
    assert re.search(error, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_model_without_blocks_has_no_float16(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The export ends before it has written anything."""
    monkeypatch.setattr("model.tasks.graphs.with_float16_blocks", lambda _: None)  # as for a model of n-grams
    monkeypatch.setattr(model.export.export, "_write_graphs", None)
    assert call("export", run, "--out", tmp_path, "--device", "cpu", "--float16") == 2
    assert (
        "error: synthetic has no encoder, or training has not kept it; export it without --float16\n"
        in capsys.readouterr().err
    )
    assert list(tmp_path.iterdir()) == []


def test_evaluate_needs_the_precision_that_it_is_given(
    run: Path, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("evaluate", exported, "--device", "cpu", "--precision", "float16") == 2
    assert f"error: {exported} was exported without --float16\n" in capsys.readouterr().err
    assert call("evaluate", run, "--device", "cpu", "--precision", "float16") == 2
    assert f"error: --precision float16: {run} is a run; give the folder of an export\n" in capsys.readouterr().err
