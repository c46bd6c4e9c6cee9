"""The TorchScript backend."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from artifact.backends import create_backend
from artifact.backends.base import Tensors
from artifact.backends.onnx import OnnxBackend
from artifact.backends.torchscript import SHARED, TorchScriptBackend, load_module
from artifact.errors import BadExport
from artifact.exports import read_manifest, version_folder
from artifact.manifest import Format, Graph
from tests.support.paths import EXPORTS

TRACED = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is deprecated:DeprecationWarning")
FOLDER = version_folder(EXPORTS / "imdb-s3")
TEXT = b"A good film, and a long one; the end is bad."


def files(graph: Graph, format: Format) -> dict[int, Path]:
    return {bucket: FOLDER / file.path for bucket, file in graph.files_of(format).items()}


def test_outputs_equal_those_of_onnx_runtime(graph: Graph) -> None:
    torchscript = TorchScriptBackend(files(graph, "torchscript"), graph, device="cpu")
    onnx = OnnxBackend(files(graph, "onnx"), graph)
    assert torchscript.device == "cpu"
    for bucket in (256, 512):
        rows = np.zeros((2, bucket), np.uint8)
        rows[:, : len(TEXT)] = np.frombuffer(TEXT, np.uint8)
        inputs: Tensors = {"bytes": rows, "lengths": np.array([len(TEXT), 20], np.int32)}
        found = torchscript.run(inputs)
        assert list(found) == [spec.name for spec in graph.outputs]
        assert found["logits"] == pytest.approx(onnx.run(inputs)["logits"], abs=1e-5)


def test_file_that_is_no_module_is_rejected_in_one_line(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "model.ts").write_bytes(b"no module")
    with pytest.raises(BadExport, match=r"^model\.ts cannot be loaded: ") as caught:
        TorchScriptBackend({256: tmp_path / "model.ts"}, graph, device="cpu")
    assert caught.value.reason == "backend"
    assert "\n" not in str(caught.value)


def test_unavailable_cuda_is_rejected(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadExport, match="PyTorch finds no CUDA device"):
        TorchScriptBackend(files(graph, "torchscript"), graph, device="cuda")


def module_file(folder: Path, shared: str | None) -> Path:
    """Write a module x + w, whose weight w stands for tensor 0 of the list `shared`, if there is one."""
    weight = torch.ones(4) if shared is None else torch.empty(0, 0)
    module = torch.jit.freeze(torch.jit.trace(Sum(weight).eval(), torch.zeros(1, 4)[:, : weight.shape[-1]]))
    path = folder / "model.ts"
    torch.jit.save(module, path, _extra_files={} if shared is None else {SHARED: shared})
    return path


class Sum(torch.nn.Module):
    """x + w."""

    w: torch.Tensor

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("w", weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.w


def described(**changes: object) -> str:
    """Return a list of one tensor: four numbers, after three bytes of model.onnx."""
    tensor = {"file": "model.onnx", "offset": 3, "length": 16, "shape": [4], "stride": [1], "start": 0}
    return json.dumps([tensor | changes])


@TRACED
def test_weights_in_another_file_are_read(tmp_path: Path) -> None:
    values = np.arange(4, dtype=np.float32)
    (tmp_path / "model.onnx").write_bytes(b"abc" + values.tobytes() + b"d")
    module = load_module(module_file(tmp_path, described()), "cpu")
    assert module(torch.zeros(1, 4)).tolist() == [[0, 1, 2, 3]]
    module = load_module(module_file(tmp_path, described(shape=[2], stride=[2], start=1)), "cpu")
    assert module(torch.zeros(1, 2)).tolist() == [[1, 3]]


@TRACED
def test_file_that_holds_its_weights_is_read(tmp_path: Path) -> None:
    """Exports before weights were shared have such files."""
    assert load_module(module_file(tmp_path, None), "cpu").forward(torch.ones(1, 4)).tolist() == [[2] * 4]


@TRACED
@pytest.mark.parametrize(
    ("shared", "message"),
    [
        (described(offset=4), r"model\.ts cannot be loaded: model\.onnx has fewer than 20 bytes"),
        (described(offset=10**15), r"model\.ts cannot be loaded: model\.onnx has fewer than 1000000000000016 bytes"),
        (described(length=2**62), r"model\.ts cannot be loaded: model\.onnx has fewer than"),
        (described(file="absent.onnx"), r"model\.ts cannot be loaded: .*No such file"),
        (described(file="../model.onnx"), r"model\.ts cannot be loaded: "),
        (described(shape=[5]), r"model\.ts cannot be loaded: "),
        (described(stride=[-1]), r"model\.ts cannot be loaded: "),
        (described(length=15), r"model\.ts cannot be loaded: "),
        ("[", r"model\.ts cannot be loaded: "),
    ],
)
def test_weights_that_cannot_be_read_are_reported_in_one_line(tmp_path: Path, shared: str, message: str) -> None:
    (tmp_path / "model.onnx").write_bytes(bytes(19))
    path = module_file(tmp_path, shared)
    with pytest.raises(BadExport, match=f"^{message}") as caught:
        load_module(path, "cpu")
    assert caught.value.reason == "backend"
    assert "\n" not in str(caught.value)


def test_export_whose_onnx_file_was_cut_is_rejected(tmp_path: Path) -> None:
    """Also if it is cut after its hash was checked."""
    folder = shutil.copytree(FOLDER, tmp_path / FOLDER.name)
    os.truncate(folder / "model.onnx", 100_000)
    manifest = read_manifest(FOLDER)
    with pytest.raises(BadExport, match=r"^model\.ts cannot be loaded: model\.onnx has fewer than \d+ bytes$"):
        create_backend(manifest, folder, format="torchscript", device="cpu")
