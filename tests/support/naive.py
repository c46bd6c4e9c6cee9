"""Exports of models of `tests.support.models`, whose answers can be computed by hand."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from artifact.arrays import Array
from artifact.exports import sha256_of
from artifact.loading import LoadedModel
from artifact.tasks.forecasting import Forecasting
from artifact.univariate import features as univariate
from tests.support.models import (
    AXES,
    CONTEXT,
    GESTURES,
    HORIZON,
    LABELS,
    MAX_LENGTH,
    QUANTILES,
    STEPS,
    TOKENS,
    any_series,
    classifier,
    forecaster,
    gesture_logits,
    outputs_of,
    series_classifier,
)


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
    _write_manifest(folder, model)


def write_any_series(exports: Path, name: str) -> None:
    """Write `tests.support.models.any_series` to a folder of exports."""
    model, folder = any_series(name), exports / name / "1"
    folder.mkdir(parents=True)
    tokens = np.zeros((2, TOKENS[-1], univariate.WIDTH), np.float32)
    tokens[:, 0, 0] = 0.5, 1.0
    np.savez(
        folder / "golden.npz", tokens=tokens, lengths=np.array([20, TOKENS[-1]], np.int32), quantiles=outputs_of(tokens)
    )
    onnx.save(_any_series_graph(), folder / "model.onnx")
    _write_manifest(folder, model)


def write_tagger(exports: Path, name: str, thresholds: Sequence[float]) -> None:
    """Write `tests.support.models.classifier` with thresholds to a folder of exports."""
    model, folder = classifier(name, thresholds=thresholds), exports / name / "1"
    folder.mkdir(parents=True)
    documents = np.zeros((2, MAX_LENGTH), np.uint8)
    documents[0, :3], documents[1] = (43, 45, 43), 45  # two pluses and a minus; minuses
    logits = np.log1p(np.array([[1, 2], [MAX_LENGTH, 0]], np.float32))
    np.savez(folder / "golden.npz", bytes=documents, lengths=np.array([3, MAX_LENGTH], np.int32), logits=logits)
    onnx.save(_tagger_graph(), folder / "model.onnx")
    _write_manifest(folder, model)


def write_series_classifier(exports: Path, name: str) -> None:
    """Write `tests.support.models.series_classifier` to a folder of exports."""
    model, folder = series_classifier(name), exports / name / "1"
    folder.mkdir(parents=True)
    series = np.linspace(-1, 1, 2 * STEPS * len(AXES), dtype=np.float32).reshape(2, STEPS, len(AXES))
    inputs: dict[str, Array] = {"stretched": series[::-1], "series": series, "lengths": np.array([STEPS, 3], np.int32)}
    golden = {**inputs, "logits": gesture_logits(inputs).astype(np.float32)}
    np.savez(folder / "golden.npz", allow_pickle=False, **golden)
    onnx.save(_series_classifier_graph(), folder / "model.onnx")
    _write_manifest(folder, model)


def _write_manifest(folder: Path, model: LoadedModel) -> None:
    manifest = model.manifest.model_dump(mode="json")
    archives = (manifest[key] for key in ("golden", "calibration") if key in manifest)
    for file in (*manifest["files"], *archives):
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


def _any_series_graph() -> onnx.ModelProto:
    first = [("starts", [0, 0]), ("ends", [1, 1]), ("axes", [1, 2])]
    graph = helper.make_graph(
        [
            helper.make_node("Slice", ["tokens", "starts", "ends", "axes"], ["statistic"]),
            helper.make_node("Add", ["statistic", "one"], ["factor"]),
            helper.make_node("Mul", ["factor", "of_all"], ["quantiles"]),
        ],
        "any_series",
        [
            helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["batch", "tokens", univariate.WIDTH]),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]),
        ],
        [helper.make_tensor_value_info("quantiles", TensorProto.FLOAT, ["batch", *QUANTILES.shape])],
        [
            *(numpy_helper.from_array(np.array(values), name) for name, values in first),
            numpy_helper.from_array(np.ones(1, np.float32), "one"),
            numpy_helper.from_array(QUANTILES.astype(np.float32), "of_all"),
        ],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def _tagger_graph() -> onnx.ModelProto:
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["bytes"], ["codes"], to=TensorProto.INT32),
            helper.make_node("Unsqueeze", ["codes", "last"], ["columns"]),
            helper.make_node("Equal", ["columns", "signs"], ["found"]),
            helper.make_node("Cast", ["found"], ["ones"], to=TensorProto.FLOAT),
            helper.make_node("ReduceSum", ["ones", "bytes_axis"], ["counts"], keepdims=0),
            helper.make_node("Add", ["counts", "one"], ["odds"]),
            helper.make_node("Log", ["odds"], ["logits"]),
        ],
        "tagger",
        [
            helper.make_tensor_value_info("bytes", TensorProto.UINT8, ["batch", "length"]),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]),
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(LABELS)])],
        [
            numpy_helper.from_array(np.array([2]), "last"),
            numpy_helper.from_array(np.array([ord("-"), ord("+")], np.int32), "signs"),
            numpy_helper.from_array(np.array([1]), "bytes_axis"),
            numpy_helper.from_array(np.ones(1, np.float32), "one"),
        ],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def _series_classifier_graph() -> onnx.ModelProto:
    rows: list[str | int | None] = ["batch", STEPS, len(AXES)]
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["series", "first"], ["x"], axis=2),
            helper.make_node("ReduceSum", ["x", "steps"], ["sum"]),
            helper.make_node("Cast", ["lengths"], ["counts"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["counts", "steps"], ["columns"]),
            helper.make_node("Div", ["sum", "columns"], ["mean"]),
            helper.make_node("Slice", ["stretched", "starts", "ends"], ["corner"]),
            helper.make_node("Squeeze", ["corner", "steps"], ["last"]),
            helper.make_node("Add", ["mean", "last"], ["wave"]),
            helper.make_node("Mul", ["wave", "shares"], ["logits"]),
        ],
        "gestures",
        [
            helper.make_tensor_value_info("stretched", TensorProto.FLOAT, rows),
            helper.make_tensor_value_info("series", TensorProto.FLOAT, rows),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]),
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(GESTURES)])],
        [
            numpy_helper.from_array(np.zeros(1, np.int64)[0], "first"),
            numpy_helper.from_array(np.ones(1, np.int64), "steps"),
            numpy_helper.from_array(np.array([0, STEPS - 1, 1]), "starts"),
            numpy_helper.from_array(np.array([2**31, STEPS, 2]), "ends"),
            numpy_helper.from_array(np.array([0, 1], np.float32), "shares"),
        ],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
