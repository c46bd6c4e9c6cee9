"""The ONNX Runtime backend: files, buckets, devices."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from artifact.backends import onnx as backend_onnx
from artifact.backends.base import Array, Tensors
from artifact.backends.onnx import OnnxBackend, padded_rows
from artifact.errors import BadExport
from artifact.manifest import Graph, read_manifest, version_folder
from tests.support.paths import EXPORTS

FOLDER = version_folder(EXPORTS / "imdb-s3")
TEXT = b"A good film, and a long one; the end is bad."
PROVIDERS = ["CUDAExecutionProvider", "CPUExecutionProvider"]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return read_manifest(FOLDER)


@pytest.fixture(scope="module")
def files(graph: Graph) -> dict[int, Path]:
    return {bucket: FOLDER / file.path for bucket, file in graph.files_of("onnx").items()}


def test_batch_of_each_bucket_is_computed(graph: Graph, files: dict[int, Path]) -> None:
    """Padding changes nothing: a row gets the same output in every bucket."""
    backend = OnnxBackend(files, graph, device="cpu")
    found = []
    for bucket in sorted(files)[:3]:
        rows = np.zeros((2, bucket), np.uint8)
        rows[:, : len(TEXT)] = np.frombuffer(TEXT, np.uint8)
        outputs = backend.run({"bytes": rows, "lengths": np.array([len(TEXT), 20], np.int32)})
        assert list(outputs) == ["logits", "contributions"]
        assert outputs["logits"].shape == (2, 2)
        found.append(outputs["logits"])
    assert backend.device == "cpu"
    for other in found[1:]:
        assert other == pytest.approx(found[0], abs=1e-5)
    assert not np.array_equal(found[0][0], found[0][1])


def test_file_shared_by_buckets_is_loaded_once(
    graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = list[Path]()
    session = onnxruntime.InferenceSession

    def load(path: Path, *args: object, **kwargs: object) -> object:
        loaded.append(path)
        return session(path, *args, **kwargs)

    monkeypatch.setattr(onnxruntime, "InferenceSession", load)
    OnnxBackend(files, graph, device="cpu")
    assert loaded == [FOLDER / "model.onnx"]


def test_error_names_a_file_that_is_no_model(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(BadExport, match=r"^model\.onnx cannot be loaded: ") as caught:
        OnnxBackend({256: tmp_path / "model.onnx"}, graph, device="cpu")
    assert caught.value.reason == "backend"
    assert "\n" not in str(caught.value)


def test_cuda_without_its_runtime_is_rejected(
    graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: PROVIDERS[1:])
    with pytest.raises(BadExport, match="the installed ONNX Runtime does not support CUDA; install the extra `gpu`"):
        OnnxBackend(files, graph, device="cuda")
    assert OnnxBackend(files, graph, device="auto").device == "cpu"


class Session:
    """A session of a runtime that reports CUDA even if the machine has none."""

    found: tuple[str, ...] = tuple(PROVIDERS)
    cuda: dict[str, str]
    """Options of the last session's CUDA provider."""
    has_overlapped = False
    shape: tuple[int, ...] = ()
    """Shape of the rows of the last batch."""
    _running = threading.Semaphore(1)

    def __init__(self, path: Path, options: object, providers: list[Any], disabled_optimizers: list[str]) -> None:
        del path, options
        assert disabled_optimizers == []
        assert providers[1:] == PROVIDERS[1:]
        name, type(self).cuda = providers[0]
        assert name == PROVIDERS[0]

    def get_providers(self) -> list[str]:
        return list(self.found)

    def run(self, names: list[str], inputs: Tensors) -> list[Array]:
        """Return the lengths as every output."""
        if self._running.acquire(blocking=False):
            threading.Event().wait(0.01)
            self._running.release()
        else:
            type(self).has_overlapped = True
        type(self).shape = inputs["bytes"].shape
        return [inputs["lengths"].astype(np.float32).reshape(-1, 1) for _ in names]


@pytest.fixture
def _cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the runtime has CUDA."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: PROVIDERS)
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)


@pytest.mark.usefixtures("_cuda")
def test_auto_uses_cuda_if_it_works(graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert OnnxBackend(files, graph, device="auto").device == "cuda"
    assert OnnxBackend(files, graph, device="cuda").device == "cuda"
    monkeypatch.setattr(Session, "found", tuple(PROVIDERS[1:]))
    assert OnnxBackend(files, graph, device="auto").device == "cpu"
    with pytest.raises(BadExport, match="ONNX Runtime finds no usable CUDA device or driver"):
        OnnxBackend(files, graph, device="cuda")


@pytest.mark.usefixtures("_cuda")
def test_batches_on_cuda_are_computed_one_after_another(graph: Graph, files: dict[int, Path]) -> None:
    backend = OnnxBackend(files, graph, device="cuda")
    inputs: Tensors = {"bytes": np.zeros((1, 256), np.uint8), "lengths": np.zeros(1, np.int32)}
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: backend.run(inputs), range(8)))
    assert not Session.has_overlapped


@pytest.mark.usefixtures("_cuda")
@pytest.mark.parametrize(("count", "bucket", "padded"), [(1, 256, 64), (64, 256, 64), (3, 4096, 64), (65, 512, 128)])
def test_batches_on_cuda_are_padded_to_few_sizes(
    graph: Graph, files: dict[int, Path], count: int, bucket: int, padded: int
) -> None:
    backend = OnnxBackend(files, graph, device="cuda")
    lengths = np.arange(1, 1 + count, dtype=np.int32)
    found = backend.run({"bytes": np.ones((count, bucket), np.uint8), "lengths": lengths})
    assert Session.shape == (padded, bucket)
    assert found["logits"].ravel().tolist() == lengths.tolist()


@pytest.mark.parametrize(
    ("count", "row_bytes", "padded"),
    [(1, 65_536, 4), (5, 65_536, 8), (1, 1 << 20, 1), (3, 1 << 20, 4), (256, 128, 256), (257, 128, 512)],
)
def test_padding_of_long_rows_is_bounded(count: int, row_bytes: int, padded: int) -> None:
    assert padded_rows(count, row_bytes) == padded


@pytest.mark.usefixtures("_cuda")
def test_cuda_computes_in_full_precision(graph: Graph, files: dict[int, Path]) -> None:
    OnnxBackend(files, graph, device="cuda")
    assert Session.cuda["use_tf32"] == "0"


def test_sessions_share_one_arena(graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    OnnxBackend(files, graph, device="cpu")
    created = list[object]()
    monkeypatch.setattr(onnxruntime, "create_and_register_allocator", lambda *given: created.append(given))
    shared = OnnxBackend(files, graph, device="cpu")
    assert created == []
    backend_onnx._share_arena.cache_clear()
    OnnxBackend(files, graph, device="cpu")
    assert len(created) == 1
    entry = "session.use_env_allocators"
    assert all(session.get_session_options().get_session_config_entry(entry) == "1" for session in sessions(shared))


def sessions(backend: OnnxBackend) -> list[Any]:
    """The sessions of a backend."""
    return list(backend._sessions.values())


def test_telemetry_of_the_runtime_is_off() -> None:
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
