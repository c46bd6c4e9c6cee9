"""The TorchScript backend."""

from pathlib import Path

import numpy as np
import pytest
import torch

from artifact.backends.base import Tensors
from artifact.backends.onnx import OnnxBackend
from artifact.backends.torchscript import TorchScriptBackend
from artifact.errors import BadExport
from artifact.manifest import Format, Graph, read_manifest, version_folder
from tests.support.paths import EXPORTS

FOLDER = version_folder(EXPORTS / "imdb-s3")
TEXT = b"A good film, and a long one; the end is bad."


@pytest.fixture(scope="module")
def graph() -> Graph:
    return read_manifest(FOLDER)


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
        assert list(found) == ["logits", "contributions"]
        assert found["logits"] == pytest.approx(onnx.run(inputs)["logits"], abs=1e-5)


def test_file_that_is_no_module_is_rejected_in_one_line(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "model.ts").write_bytes(b"no module")
    with pytest.raises(BadExport, match=r"^a TorchScript file cannot be loaded: ") as caught:
        TorchScriptBackend({256: tmp_path / "model.ts"}, graph, device="cpu")
    assert caught.value.reason == "backend"
    assert "\n" not in str(caught.value)


def test_unavailable_cuda_is_rejected(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadExport, match="PyTorch finds no CUDA device"):
        TorchScriptBackend(files(graph, "torchscript"), graph, device="cuda")
