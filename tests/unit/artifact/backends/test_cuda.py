"""The CUDA backend: recorded batches, computed on the CPU without recording, and the choice of the device."""

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest

from artifact.arrays import Array
from artifact.backends import create_backend
from artifact.backends import cuda as backend_cuda
from artifact.backends.base import Tensors, output_error
from artifact.backends.cuda import CudaBackend, on_device_thread, padded_rows, recorded_rows
from artifact.backends.onnx import OnnxBackend
from artifact.documents import pad_rows
from artifact.errors import BadExport
from artifact.exports import read_manifest, version_folder
from artifact.manifest import Graph
from tests.support.oversized import endless_graph
from tests.support.paths import EXPORTS
from tests.support.waiting import PATIENCE_S

FOLDER = version_folder(EXPORTS / "imdb-s3")
PROVIDERS = ["CUDAExecutionProvider", "CPUExecutionProvider"]
TEXTS = [b"A good film, and a long one; the end is bad.", b"", b"!", b"awful " * 40, b"\xff\x00\xe2\x82", b"fine"]


@pytest.fixture(scope="module")
def files(files: dict[int, Path]) -> dict[int, Path]:
    return {bucket: path for bucket, path in files.items() if bucket <= 512}


@pytest.fixture(scope="module")
def plain(graph: Graph, files: dict[int, Path]) -> OnnxBackend:
    return OnnxBackend(files, graph)


@pytest.fixture(scope="module")
def recorded(graph: Graph, files: dict[int, Path]) -> CudaBackend:
    """A backend with batches of 1 and 4 rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend_cuda, "ROWS", (1, 4))
        return CudaBackend(files, graph, runs_on="cpu")


def test_batch_that_never_ends_is_stopped_before_it_is_recorded(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert graph.fixed_shapes is not None
    for name in ("model.onnx", graph.fixed_shapes.path):
        onnx.save(endless_graph(), tmp_path / name)
    monkeypatch.setattr(backend_cuda, "LOAD_LIMIT_S", 0.2)
    with pytest.raises(BadExport, match=r"1 rows of 256 cannot be recorded: more than 0\.2 s"):
        CudaBackend({256: tmp_path / "model.onnx"}, graph, runs_on="cpu")


def batch(texts: list[bytes], bucket: int) -> Tensors:
    return dict(zip(("bytes", "lengths"), pad_rows(texts, bucket), strict=True))


def assert_close(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        assert np.abs(found[name] - array).max() <= 1e-5


@pytest.mark.parametrize("bucket", [256, 512])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_recorded_batches_equal_plain_ones(
    recorded: CudaBackend, plain: OnnxBackend, monkeypatch: pytest.MonkeyPatch, bucket: int, count: int
) -> None:
    """For documents without words and of marks only too; the general session is not used."""
    monkeypatch.setattr(backend_cuda, "ROWS", (1, 4))
    monkeypatch.setattr(recorded, "_sessions", {})
    for texts in (TEXTS[:count], TEXTS[-count:], [b"." * bucket] * count):
        inputs = batch(texts, bucket)
        assert_close(recorded.run(inputs), plain.run(inputs))


def test_float16_is_recorded_and_close_to_float32(plain: OnnxBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded batches and, for three rows, an unrecorded one."""
    monkeypatch.setattr(backend_cuda, "ROWS", (1,))
    graph = read_manifest(FOLDER).in_precision("float16")
    files = {256: FOLDER / graph.cuda_files()[256]}
    assert files[256].name == "model.float16.onnx"
    backend = CudaBackend(files, graph, runs_on="cpu")
    for texts in (TEXTS[:1], TEXTS[-1:], TEXTS[:3]):
        inputs = batch(texts, 256)
        found, expected = backend.run(inputs), plain.run(inputs)
        errors = {name: output_error(found[name], expected[name]) for name in expected}
        assert errors.pop("known") == 0
        assert all(0 < error <= 1e-2 for error in errors.values()), errors


@pytest.mark.parametrize(("name", "path"), [("imdb-s3", "model.onnx"), ("aan", "model.fixed.onnx")])
def test_unrecorded_batches_use_a_file_that_cuda_computes(
    monkeypatch: pytest.MonkeyPatch, name: str, path: str
) -> None:
    folder, given = version_folder(EXPORTS / name), dict[int, Path]()

    class Watched:
        is_usable = True

        def __init__(self, files: dict[int, Path], _: Graph) -> None:
            given.update(files)

    monkeypatch.setattr(backend_cuda, "CudaBackend", Watched)
    monkeypatch.setattr(backend_cuda, "use_cuda", lambda _: True)
    graph = read_manifest(folder)
    create_backend(graph, folder, device="cuda")
    assert set(given) == set(graph.files_of("onnx"))
    assert given[max(given)] == folder / path


def test_batches_are_equal_if_one_file_computes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded batches and the unrecorded ones; the test before shows that they have the same file."""
    monkeypatch.setattr(backend_cuda, "ROWS", (1,))
    folder = version_folder(EXPORTS / "aan")
    graph = read_manifest(folder)
    on_cuda = CudaBackend({bucket: folder / path for bucket, path in graph.cuda_files().items()}, graph, runs_on="cpu")
    plain = create_backend(graph, folder, device="cpu")
    for texts in (TEXTS[:1], [text for text in TEXTS if text]):
        inputs = batch(texts, 4096)
        assert np.abs(on_cuda.run(inputs)["vectors"] - plain.run(inputs)["vectors"]).max() <= 1e-5


def test_outputs_outlive_the_next_batch(recorded: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_cuda, "ROWS", (1, 4))
    first = recorded.run(batch(TEXTS[:1], 256))
    kept = {name: array.copy() for name, array in first.items()}
    recorded.run(batch(TEXTS[-1:], 256))
    for name, array in kept.items():
        assert np.array_equal(first[name], array)


def test_graph_without_fixed_shapes_is_padded_to_powers_of_two() -> None:
    assert [padded_rows(count, ()) for count in (1, 2, 3, 5, 8, 17)] == [1, 2, 4, 8, 8, 32]


def test_sessions_of_a_failed_load_are_released_by_the_device_thread(
    graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    released = list[str]()

    class Watched:
        def __init__(self, session: object, *_: object) -> None:
            weakref.finalize(session, lambda: released.append(threading.current_thread().name))
            raise RuntimeError("no memory")

    monkeypatch.setattr(backend_cuda, "RecordedBatch", Watched)
    with pytest.raises(BadExport, match="no memory"):
        CudaBackend(files, graph, runs_on="cpu")
    on_device_thread(int)  # wait for the calls before
    assert released == ["cuda"]


def test_session_that_cannot_be_initialised_is_released_by_the_device_thread(
    graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    released = list[str]()

    class Session:
        def __init__(self, *_: object, **__: object) -> None:
            held = onnxruntime.SessionOptions()
            weakref.finalize(held, lambda: released.append(threading.current_thread().name))
            raise RuntimeError("out of memory")

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    with pytest.raises(BadExport, match="out of memory"):
        CudaBackend(files, graph, runs_on="cpu")
    on_device_thread(int)
    assert released == ["cuda"]


def test_backend_may_be_dropped_while_a_lock_is_held(graph: Graph, files: dict[int, Path]) -> None:
    """Garbage collection can drop it anywhere, also inside of a call to the device's thread."""
    held = [CudaBackend(files, graph.model_copy(update={"fixed_shapes": None}), runs_on="cpu")]
    session = weakref.ref(held[0]._sessions[256])
    drop = threading.Thread(target=held.clear, daemon=True)
    with backend_cuda._START_LOCK:
        drop.start()
        drop.join(PATIENCE_S)
        assert not drop.is_alive()
    on_device_thread(int)
    assert session() is None


def test_error_names_the_batch_that_cannot_be_recorded(
    graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no memory\nat 0x0")

    monkeypatch.setattr(backend_cuda.RecordedBatch, "run", fail)
    with pytest.raises(BadExport, match=r"model\.fixed\.onnx: 1 rows of 256 .* no memory$"):
        CudaBackend(files, graph, runs_on="cpu")


def test_recorded_batch_that_computes_something_else_is_rejected(
    graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = backend_cuda.RecordedBatch.run
    monkeypatch.setattr(backend_cuda.RecordedBatch, "run", lambda *given: [x + 0.01 for x in run(*given)])
    with pytest.raises(BadExport, match=r"model\.fixed\.onnx: .* 1 rows of 256 .*e-02"):
        CudaBackend(files, graph, runs_on="cpu")


@pytest.mark.parametrize(("row_bytes", "rows"), [(256, 64), (4096, 16), (65_536, 1), (8064, 4), (1 << 20, None)])
def test_recorded_batches_hold_at_most_64_kib(row_bytes: int, rows: int | None) -> None:
    assert recorded_rows(row_bytes)[-1:] == ([rows] if rows else [])


@pytest.mark.parametrize(
    ("count", "row_bytes", "padded"),
    [(1, 256, 1), (2, 256, 4), (17, 4096, 32), (65, 256, 128), (2, 65_536, 2), (1, 1 << 20, 1), (3, 1 << 20, 4)],
)
def test_rows_are_padded_to_few_numbers(count: int, row_bytes: int, padded: int) -> None:
    assert padded_rows(count, recorded_rows(row_bytes)) == padded


def test_cuda_without_its_runtime_is_rejected(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: PROVIDERS[1:])
    with pytest.raises(BadExport, match="install the extra `gpu`"):
        create_backend(graph, FOLDER, device="cuda")
    assert create_backend(graph, FOLDER, device="auto").device == "cpu"


class Session:
    """A session of a runtime that reports CUDA even if the machine has none."""

    found: tuple[str, ...] = tuple(PROVIDERS)
    used_by: ClassVar[set[int]] = set()
    """Threads that loaded a session or computed a batch."""
    options: ClassVar[list[dict[str, str]]] = []
    """Of CUDA, for each session."""

    def __init__(self, path: Path, options: object, providers: list[Any], disabled_optimizers: list[str]) -> None:
        del path, options, disabled_optimizers
        self.used_by.add(threading.get_ident())
        self.options.extend(provider[1] for provider in providers if provider not in PROVIDERS)

    def get_providers(self) -> list[str]:
        return list(self.found)

    def run(self, names: list[str], inputs: Tensors, options: object = None) -> list[Array]:
        """Return the lengths as every output."""
        del options
        self.used_by.add(threading.get_ident())
        return [inputs["lengths"].astype(np.float32).reshape(-1, 1) for _ in names]


@pytest.fixture
def _cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the runtime has CUDA."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: PROVIDERS)
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)


@pytest.fixture
def unrecorded(graph: Graph) -> Graph:
    """A graph without fixed shapes: recording needs a device."""
    return graph.model_copy(update={"fixed_shapes": None})


@pytest.mark.usefixtures("_cuda")
def test_auto_uses_cuda_if_it_works(graph: Graph, unrecorded: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    assert create_backend(unrecorded, FOLDER, device="auto").device == "cuda"
    assert create_backend(unrecorded, FOLDER, device="cuda").device == "cuda"
    monkeypatch.setattr(Session, "found", tuple(PROVIDERS[1:]))
    assert create_backend(graph, FOLDER, device="auto").device == "cpu"
    with pytest.raises(BadExport, match="no usable CUDA device"):
        create_backend(graph, FOLDER, device="cuda")


@pytest.mark.usefixtures("_cuda")
def test_batches_of_all_models_are_computed_by_one_thread(unrecorded: Graph, files: dict[int, Path]) -> None:
    Session.used_by.clear()
    backends = [CudaBackend(files, unrecorded) for _ in range(2)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda i: backends[i % 2].run(batch(TEXTS[:1], 256)), range(8)))
    assert len(Session.used_by) == 1
    assert threading.get_ident() not in Session.used_by


@pytest.mark.usefixtures("_cuda")
def test_cuda_computes_in_full_precision(unrecorded: Graph, files: dict[int, Path]) -> None:
    Session.options.clear()
    CudaBackend(files, unrecorded)
    expected = [("0", "0")] * len(set(files.values()))
    assert [(made["use_tf32"], made["enable_cuda_graph"]) for made in Session.options] == expected
