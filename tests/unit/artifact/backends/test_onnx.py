"""The ONNX Runtime backend on a CPU: files, buckets, arena."""

import threading
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from artifact.arrays import Array
from artifact.backends.onnx import OLDEST, OnnxBackend, load_session
from artifact.errors import BadExport
from artifact.manifest import Graph
from tests.support.oversized import endless_graph
from tests.support.paths import ROOT
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
        assert list(outputs) == [spec.name for spec in graph.outputs]
        assert outputs["logits"].shape == (2, 2)
        found.append(outputs["logits"])
    assert backend.device == "cpu"
    for other in found[1:]:
        assert other == pytest.approx(found[0], abs=1e-5)
    assert not np.array_equal(found[0][0], found[0][1])


def test_file_shared_by_buckets_is_loaded_once_for_one_thread_into_the_shared_arena(
    graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = list[tuple[Path, int, str]]()
    session = onnxruntime.InferenceSession

    def load(path: Path, options: Any, *args: object, **kwargs: object) -> object:
        arena = options.get_session_config_entry("session.use_env_allocators")
        loaded.append((path, options.intra_op_num_threads, arena))
        return session(path, options, *args, **kwargs)

    monkeypatch.setattr(onnxruntime, "InferenceSession", load)
    OnnxBackend(files, graph)
    assert sorted(loaded) == sorted((path, 1, "1") for path in set(files.values()))


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


TYPE, SHAPE = onnx.TensorProto.FLOAT, [2]


def in_file(place: str) -> onnx.TensorProto:
    """A tensor `w` whose values are in another file."""
    made = onnx.TensorProto(name="w", data_type=TYPE, dims=SHAPE, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", place), ("offset", "0"), ("length", "8")):
        made.external_data.add(key=key, value=value)
    return made


def adding(weight: onnx.TensorProto, where: str) -> onnx.ModelProto:
    """A model w + w that holds its weight in one of the places for tensors."""
    helper = onnx.helper
    result = helper.make_tensor_value_info("y", TYPE, SHAPE)
    constant = helper.make_node("Constant", [], ["w"], value=weight)
    nodes = [helper.make_node("Add", ["w", "w"], ["y"])]
    opsets = [helper.make_opsetid("", 17)]
    if where == "initializer":
        graph = helper.make_graph(nodes, "g", [], [result], [weight])
    elif where == "constant":
        graph = helper.make_graph([constant, *nodes], "g", [], [result])
    elif where == "sparse":
        graph = helper.make_graph(nodes, "g", [], [result])
        indices = helper.make_tensor("i", onnx.TensorProto.INT64, SHAPE, [0, 1])
        graph.sparse_initializer.append(onnx.SparseTensorProto(values=weight, indices=indices, dims=SHAPE))
    elif where == "branch":
        branch = helper.make_graph(nodes, "b", [], [result], [weight])
        condition = helper.make_tensor("c", onnx.TensorProto.BOOL, [], [True])
        choice = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
        graph = helper.make_graph([choice], "g", [], [result], [condition])
    else:
        function = helper.make_function("d", "f", [], ["y"], [constant, *nodes], opsets)
        graph = helper.make_graph([helper.make_node("f", [], ["y"], domain="d")], "g", [], [result])
        opsets = [*opsets, helper.make_opsetid("d", 1)]
        return helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("where", ["initializer", "constant", "sparse", "branch", "function"])
def test_weights_are_taken_from_the_folder_of_the_export_only(tmp_path: Path, where: str) -> None:
    """All files there are checked by their hashes. ONNX Runtime refuses the other places."""
    folder, outside = tmp_path / "export", tmp_path / "outside"
    for made, values in ((folder, [1, 2]), (outside, [7, 8])):
        made.mkdir()
        (made / "w.bin").write_bytes(np.array(values, np.float32).tobytes())
    (folder / "link.bin").symlink_to(outside / "w.bin")
    (folder / "link").symlink_to(outside)
    path = folder / "model.onnx"
    onnx.save(adding(in_file("w.bin"), where), path)
    (found,) = load_session(path, ["CPUExecutionProvider"]).run(None, {})
    assert found.tolist() == [2, 4]
    for place in ("../outside/w.bin", str(outside / "w.bin"), "link.bin", "link/w.bin", "*/_ORT_MEM_ADDR_/*"):
        path.write_bytes(adding(in_file(place), where).SerializeToString())
        with pytest.raises(BadExport, match=r"^model\.onnx cannot be loaded: "):
            load_session(path, ["CPUExecutionProvider"])


def test_runtime_that_takes_weights_from_anywhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = "{}.{}".format(*OLDEST)
    for extra in ("cpu", "gpu"):
        assert f">={lowest}," in project["optional-dependencies"][extra][0]
    monkeypatch.setattr(onnxruntime, "__version__", "1.26.1")
    with pytest.raises(BadExport, match=rf"^onnxruntime 1\.26\.1 is too old; install {lowest} or later$"):
        load_session(tmp_path / "model.onnx", [])


def test_sessions_share_one_arena(graph: Graph, files: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
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
