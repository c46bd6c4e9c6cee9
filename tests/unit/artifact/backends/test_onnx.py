"""The ONNX Runtime backend on a CPU: files, buckets, arena."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from artifact.arrays import Array
from artifact.backends.onnx import OnnxBackend
from artifact.errors import BadExport
from artifact.manifest import Graph
from tests.support.oversized import endless_graph
from tests.support.waiting import wait_until

TEXT = b"A good film, and a long one; the end is bad."


def test_batch_of_each_bucket_is_computed(graph: Graph, files: dict[int, Path]) -> None:
    """Padding changes nothing: a row gets the same output in every bucket."""
    backend = OnnxBackend(files, graph)
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


def test_file_shared_by_buckets_is_loaded_once_into_the_shared_arena(
    folder: Path, graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = list[tuple[Path, str]]()
    session = onnxruntime.InferenceSession

    def load(path: Path, options: Any, *args: object, **kwargs: object) -> object:
        loaded.append((path, options.get_session_config_entry("session.use_env_allocators")))
        return session(path, options, *args, **kwargs)

    monkeypatch.setattr(onnxruntime, "InferenceSession", load)
    OnnxBackend(files, graph)
    assert loaded == [(folder / "model.onnx", "1")]


def test_error_names_a_file_that_is_no_model(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(BadExport, match=r"^model\.onnx cannot be loaded: ") as caught:
        OnnxBackend({256: tmp_path / "model.onnx"}, graph)
    assert caught.value.reason == "backend"
    assert "\n" not in str(caught.value)


def test_custom_operator_is_rejected(tmp_path: Path, graph: Graph) -> None:
    value = onnx.helper.make_tensor_value_info
    tensors = [value(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "y")]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Run", ["x"], ["y"], domain="custom")], "g", tensors[:1], tensors[1:]
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("custom", 1)],
    )
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(BadExport, match=r"model\.onnx cannot be loaded: .*custom"):
        OnnxBackend({256: tmp_path / "model.onnx"}, graph)


def test_arena_is_registered_once(graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    OnnxBackend(files, graph)
    created = list[object]()
    monkeypatch.setattr(onnxruntime, "create_and_register_allocator", lambda *given: created.append(given))
    OnnxBackend(files, graph)
    assert created == []


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("endless") / "model.onnx"
    onnx.save(endless_graph(), path)
    return path


INPUTS: dict[str, Array] = {"bytes": np.zeros((1, 256), np.uint8), "lengths": np.ones(1, np.int32)}


def test_batch_that_never_ends_is_stopped_at_its_limit(graph: Graph, endless: Path) -> None:
    with pytest.raises(TimeoutError, match=r"^more than 0\.2 s$"):
        OnnxBackend({256: endless}, graph).run(INPUTS, 0.2)


def test_limit_changes_neither_outputs_nor_errors(graph: Graph, files: dict[int, Path]) -> None:
    backend = OnnxBackend(files, graph)
    limited, unlimited = backend.run(INPUTS, 3600.0), backend.run(INPUTS)
    assert all(np.array_equal(limited[name], unlimited[name]) for name in unlimited)
    with pytest.raises(Exception, match="Unexpected input data type"):
        backend.run({**INPUTS, "lengths": np.ones(1, np.int64)}, 3600.0)
    wait_until(lambda: not any(thread.name == "limit" for thread in threading.enumerate()))


def test_pause_of_the_process_counts_as_one_tick(graph: Graph, endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout is None:  # of the start of a thread
                return super().wait()
            waited.append(timeout)
            return False

    monkeypatch.setattr(threading, "Event", Event)
    with pytest.raises(TimeoutError):
        OnnxBackend({256: endless}, graph).run(INPUTS, 3.0)
    assert waited == [1.0] * 3
