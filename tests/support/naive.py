"""An export of a forecaster that repeats the last value: every answer can be computed by hand."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from artifact.exports import sha256_of
from artifact.tasks.forecasting import Forecasting
from tests.support.models import CONTEXT, HORIZON, forecaster


def write_naive_forecaster(exports: Path, name: str, channels: Sequence[str]) -> None:
    """Write `tests.support.models.forecaster` to a folder of exports."""
    model, folder, count = forecaster(name, channels=channels), exports / name / "1", len(channels)
    task = model.task
    assert isinstance(task, Forecasting)
    folder.mkdir(parents=True)
    windows = np.arange(2 * CONTEXT * count, dtype=np.float32).reshape(2, CONTEXT, count)
    np.savez(folder / "golden.npz", series=windows, forecast=np.repeat(windows[:, -1:], HORIZON, axis=1))
    np.savez(folder / "calibration.npz", levels=task.calibration.levels, errors=task.calibration.errors)
    onnx.save(_graph(count), folder / "model.onnx")
    manifest = model.manifest.model_dump(mode="json")
    for file in (*manifest["files"], manifest["golden"], manifest["calibration"]):
        file["sha256"] = sha256_of(folder / file["path"])
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _graph(count: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["series", "last"], ["forecast"], axis=1)],
        "repeat_last",
        [helper.make_tensor_value_info("series", TensorProto.FLOAT, ["batch", CONTEXT, count])],
        [helper.make_tensor_value_info("forecast", TensorProto.FLOAT, ["batch", HORIZON, count])],
        [numpy_helper.from_array(np.full(HORIZON, CONTEXT - 1), "last")],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
