"""The profile of exported graphs: kernels, floating-point operations, shares and the report."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from benchmarks.lib.record import Data
from benchmarks.models.graph_parts import MLP, OTHER, WORDS
from benchmarks.models.graph_profile import (
    LAUNCH,
    WARM_UP,
    Kernel,
    flops,
    middle,
    overhead,
    profile,
    read_profile,
    shares,
)


@pytest.mark.parametrize(
    ("operator", "left", "right", "output", "attributes", "expected"),
    [
        ("MatMul", [5, 7], (), [5, 3], {}, 2 * 5 * 7 * 3),
        ("MatMul", [2, 4, 5, 7], (), [2, 4, 5, 3], {}, 8 * 2 * 5 * 7 * 3),
        ("FusedMatMul", [2, 7, 5], (), [2, 5, 3], {"transA": 1}, 2 * 2 * 5 * 7 * 3),
        ("FusedMatMul", [2, 5, 7], (), [2, 5, 3], {"transA": 0, "transB": 1}, 2 * 2 * 5 * 7 * 3),
        ("Gemm", [5, 7], (), [5, 3], {"transB": 1}, 2 * 5 * 7 * 3),
        ("Gemm", [7, 5], (), [5, 3], {"transA": 1}, 2 * 5 * 7 * 3),
        ("Conv", [2, 6, 1, 9], (8, 6, 1, 3), [2, 8, 1, 9], {}, 2 * 2 * 8 * 9 * 6 * 3),
        ("Conv", [2, 6, 1, 9], (6, 1, 1, 3), [2, 6, 1, 9], {"group": 6}, 2 * 2 * 6 * 9 * 3),
        ("MatMul", [0, 7], (), [0, 3], {}, 0),
    ],
)
def test_operations_of_products(
    operator: str, left: list[int], right: tuple[int, ...], output: list[int], attributes: dict[str, Any], expected: int
) -> None:
    assert flops(operator, left, right, output, attributes) == expected


def event(name: str, ts: int, dur: int, **facts: Any) -> Data:
    shapes = {"input_type_shape": [{"float": [2, 3]}], "output_type_shape": [{"float": [2, 5]}]}
    return {"cat": "Node", "name": name, "ts": ts, "dur": dur, "args": {"op_name": "MatMul", **shapes, **facts}}


def test_kernels_are_read_from_events_in_order_of_time() -> None:
    events = [
        event("a_kernel_time", 20, 7),
        event("a_kernel_time", 10, 9),
        event("a_fence_before", 5, 100),
        event("b_kernel_time", 15, 1, op_name="Shape", output_type_shape=[]),
        {"cat": "Session", "name": "model_run", "ts": 1, "dur": 50},
    ]
    assert read_profile(events) == {
        "a": Kernel("MatMul", [9, 7], [[2, 3]], [2, 5]),
        "b": Kernel("Shape", [1], [[2, 3]], []),
    }


def test_outliers_and_warm_up_do_not_count() -> None:
    assert middle([1000] * WARM_UP + [4, 5, 4, 5, 0, 0, 99, 99]) == 4.5


def test_time_of_the_profiler_is_that_of_operators_that_compute_nothing() -> None:
    times = {"a": ("Unsqueeze", 4), "b": ("Unsqueeze", 5), "c": ("Unsqueeze", 90), "d": ("MatMul", 1)}
    kernels = {name: Kernel(of, [us] * (WARM_UP + 2), [], []) for name, (of, us) in times.items()}
    assert overhead(kernels) == 5


def test_profile_of_a_graph(tmp_path: Path) -> None:
    """A convolution, whose layout ONNX Runtime changes, a product with a constant, and one of a transposed matrix."""
    generator = np.random.default_rng(0)

    def constant(name: str, *shape: int) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32), name)

    value, kind = helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "kernel"], ["image"], "conv", pads=[0, 1, 0, 1]),
            helper.make_node("Squeeze", ["image", "axis"], ["rows"], "squeeze"),
            helper.make_node("Transpose", ["rows"], ["columns"], "transpose", perm=[0, 2, 1]),
            helper.make_node("MatMul", ["columns", "weight"], ["scores"], "product"),
            helper.make_node("MatMul", ["rows", "scores"], ["gram"], "gram"),
            helper.make_node("Unsqueeze", ["gram", "axis"], ["y"], "unsqueeze"),
        ],
        "graph",
        [value("x", kind, [2, 16, 1, 9])],
        [value("y", kind, [2, 16, 1, 5])],
        [
            constant("kernel", 16, 16, 1, 3),
            constant("weight", 16, 5),
            onnx.numpy_helper.from_array(np.array([2]), "axis"),
        ],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    found = profile(path, [], {"x": np.ones((2, 16, 1, 9), np.float32)}, 4, tmp_path)
    assert found["flops"] == 2 * (2 * 16 * 9 * 16 * 3 + 2 * 9 * 16 * 5 + 2 * 16 * 9 * 5)
    assert [len(found[name]) for name in ("seconds", "profiled_seconds", "kernel_seconds")] == [4, 4, 4]
    assert list(found["parts_ms"]) == [OTHER]  # there is no export that tells the modules
    assert found["file_nodes"] == 6
    assert sum(of["nodes"] for of in found["operators"].values()) == found["nodes"]


def case(name: str, **changes: Any) -> Data:
    return {
        "graph": name,
        "length": 4096,
        "rows": 4,
        "seconds": [0.011, 0.010, 0.009],
        "profiled_seconds": [0.012, 0.012, 0.012],
        "kernel_seconds": [0.0099, 0.0090, 0.0099],
        "profiler_us": 4.25,
        "nodes": 200,
        "file_nodes": 250,
        "attributed": {"same": 200, "renumbered": 30, "between": 15},
        "guessed_ms": 0.3,
        "parts_ms": {MLP: 6.0, WORDS: 3.0},
        "operators": {"MatMul": {"nodes": 12, "ms": 6.0}, "Mod": {"nodes": 3, "ms": 3.0}},
        "flops": 240_000_000,
        "products_ms": 6.0,
        **changes,
    }


def test_shares_are_of_the_time_without_the_profiler() -> None:
    found = shares(case("aan"))
    assert (found[MLP], found[WORDS], found[OTHER]) == pytest.approx((60, 30, 0))
    assert found[LAUNCH] == pytest.approx(10)
    assert sum(found.values()) == pytest.approx(100)
