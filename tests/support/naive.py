"""A forecaster that repeats the last value: every answer can be computed by hand."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from artifact.manifest import sha256_of

CONTEXT, HORIZON = 4, 3
MEAN, SCALE = 10.0, 2.0
LEVELS = (0.1, 0.5, 0.9)
"""Of nine calibration errors; the errors are -1, 0 and 2 deviations at every step."""
ERRORS = (-1.0, 0.0, 2.0)


def write_naive_forecaster(exports: Path, name: str, channels: Sequence[str]) -> None:
    folder = exports / name / "1"
    folder.mkdir(parents=True)
    count = len(channels)
    windows = np.arange(2 * CONTEXT * count, dtype=np.float32).reshape(2, CONTEXT, count)
    np.savez(folder / "golden.npz", series=windows, forecast=np.repeat(windows[:, -1:], HORIZON, axis=1))
    errors = np.broadcast_to(np.array(ERRORS, np.float32)[:, None, None], (len(LEVELS), HORIZON, count))
    np.savez(folder / "calibration.npz", levels=np.array(LEVELS), errors=errors)
    onnx.save(_graph(count), folder / "model.onnx")
    (folder / "manifest.json").write_text(json.dumps(_manifest(folder, name, channels)))


def _graph(count: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["series", "last"], ["forecast"], axis=1)],
        "repeat_last",
        [helper.make_tensor_value_info("series", TensorProto.FLOAT, ["batch", CONTEXT, count])],
        [helper.make_tensor_value_info("forecast", TensorProto.FLOAT, ["batch", HORIZON, count])],
        [numpy_helper.from_array(np.full(HORIZON, CONTEXT - 1), "last")],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def _manifest(folder: Path, name: str, channels: Sequence[str]) -> dict[str, Any]:
    count = len(channels)

    def file(path: str, **more: object) -> dict[str, object]:
        return {"path": path, "sha256": sha256_of(folder / path), **more}

    return {
        "schema_version": 2,
        "name": name,
        "version": 1,
        "task": "forecasting",
        "files": [file("model.onnx", format="onnx", precision="float32", bucket=CONTEXT)],
        "inputs": [{"name": "series", "datatype": "FP32", "shape": [-1, CONTEXT, count]}],
        "outputs": [{"name": "forecast", "datatype": "FP32", "shape": [-1, HORIZON, count]}],
        "golden": file("golden.npz"),
        "tolerance": 1e-6,
        "training": {
            "recipe": {},
            "data": "none",
            "device": "none",
            "seconds": 0,
            "examples_per_second": 0,
            "peak_memory_bytes": 0,
            "validation": {"metric": "none", "value": 0},
            "revision": "none",
        },
        "results": [],
        "data_terms": "None.",
        "non_commercial": False,
        "channels": list(channels),
        "mean": [MEAN] * count,
        "scale": [SCALE] * count,
        "context_length": CONTEXT,
        "horizon": HORIZON,
        "min_observations": 2,
        "frequency": "1h",
        "calibration": file("calibration.npz"),
        "calibration_source": "validation",
        "calibration_examples": 9,
        "quantiles_reliable": True,
    }
