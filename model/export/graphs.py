"""Files of a graph: ONNX, TorchScript, and checks that they agree with PyTorch. Used by `model.export.export`."""

import io
import logging
import math
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.backends import create_backend
from artifact.backends.base import InferenceBackend, output_error
from artifact.backends.onnx import OnnxBackend
from artifact.backends.torchscript import SHARED, SHARED_TENSORS
from artifact.exports import sha256_of
from artifact.manifest import FixedShapes, Format, Graph, ModelFile, Precision, TensorSpec
from model.errors import ExportMismatch
from model.export.operators import check_operators, check_script
from model.export.weights import leave_out_computable, share_constants, share_weights
from model.tasks.graphs import Arrays, ExportGraph, module_outputs

TOLERANCE = 1e-5
"""Maximum difference between backends in float32, as `output_error`."""
DATATYPES = {"uint8": "UINT8", "int32": "INT32", "float32": "FP32"}


def check_graph(source: ExportGraph, graph: Graph, outputs: Arrays, folder: Path, tolerance: float) -> None:
    """Check that CUDA computes every operator; compare the backends in every bucket with the outputs of PyTorch."""
    assert graph.fixed_shapes is not None
    for path in sorted({graph.fixed_shapes.path, *graph.cuda_files().values()}):
        check_operators(folder / path)
    for script in sorted({file.path for file in graph.files if file.format == "torchscript"}):
        check_script(folder / script)
    for bucket in source.buckets:
        check_agreement(graph, folder, *fitting(source.golden, outputs, bucket), tolerance)


def fitting(golden: Arrays, outputs: Arrays, bucket: int) -> tuple[Arrays, Arrays]:
    """Golden inputs and outputs of the rows that fit into a bucket, with the inputs cut to its length."""
    first, *_ = golden
    if "lengths" not in golden or golden[first].shape[1] == bucket:
        return golden, outputs
    kept = golden["lengths"] <= bucket
    inputs = {first: golden[first][kept, :bucket], "lengths": golden["lengths"][kept]}
    return inputs, {name: output[kept] for name, output in outputs.items()}


def eager(source: ExportGraph) -> Arrays:
    """Outputs (B, ...) of the PyTorch module for the golden inputs, by name."""
    found = module_outputs(source.module.eval().cpu(), list(source.golden.values()), torch.device("cpu"))
    return dict(zip(source.outputs, found, strict=True))


def write_graph(source: ExportGraph, outputs: Arrays, folder: Path) -> Graph:
    """Write NAME.onnx, NAME.ts (traced, frozen), NAME.fixed.onnx if CUDA needs it, NAME.LENGTH.onnx of short buckets.

    Returns their description. Weights that NAME.onnx also holds are stored there only.
    """
    path, fixed = _write_onnx_files(source, folder)
    script = path.with_suffix(".ts")
    # Tracing stores whether a convolution may use TF32; by default it may.
    with warnings.catch_warnings(), torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        frozen, scripted = torch.jit.freeze(torch.jit.trace(source.module, _example(source))), io.BytesIO()
        shared = SHARED_TENSORS.dump_json(share_constants(frozen, path))
        torch.jit.save(frozen, scripted, _extra_files={SHARED: shared})
    _copy_without_debug_tables(scripted, script)
    paths: dict[Format, dict[int, Path]] = {
        "onnx": dict.fromkeys(source.buckets, path),
        "torchscript": dict.fromkeys(source.buckets, script),
    }
    for length in source.buckets[:-1][: source.num_short]:
        paths["onnx"][length] = path.with_suffix(f".{length}.onnx")
        _write_onnx(source.only(length), source.module, paths["onnx"][length], path)
    return _describe(source, outputs, paths, fixed, "float32")


def write_float16(source: ExportGraph, outputs: Arrays, float32: Graph, folder: Path) -> Graph:
    """Write the ONNX files of a graph in float16; `float32` holds the other weights. Returns their description."""
    other = float32.files_of("onnx")[source.buckets[-1]].path
    path, fixed = _write_onnx_files(source, folder, folder / other)
    graph = _describe(source, outputs, {"onnx": dict.fromkeys(source.buckets, path)}, fixed, "float16")
    return graph.model_copy(update={"weights_from": other})


def _write_onnx_files(source: ExportGraph, folder: Path, *others: Path) -> tuple[Path, Path]:
    """Write NAME.onnx and, if it differs, NAME.fixed.onnx, which take weights from `others`; returns their paths."""
    path = folder / f"{source.name}.onnx"
    _write_onnx(source, source.module, path, *others)
    if source.fixed is None:
        return path, path
    fixed = folder / f"{source.name}.fixed.onnx"
    _write_onnx(source, source.fixed.eval(), fixed, *others, path)
    return path, fixed


def _describe(
    source: ExportGraph,
    outputs: Arrays,
    paths: Mapping[Format, Mapping[int, Path]],
    fixed: Path,
    precision: Precision,
) -> Graph:
    """Describe a graph and its files, which are given for each bucket."""
    return Graph(
        files=tuple(
            ModelFile(path=path.name, sha256=sha256_of(path), format=format, precision=precision, bucket=bucket)
            for format, of_format in paths.items()
            for bucket, path in of_format.items()
        ),
        inputs=tuple(_spec(name, array, 2 if len(source.buckets) > 1 else 1) for name, array in source.golden.items()),
        outputs=tuple(
            _spec(name, outputs[name], outputs[name].ndim - 1 if len(source.buckets) > 1 else 1)
            for name in source.outputs
        ),
        fixed_shapes=FixedShapes(
            path=fixed.name, sha256=sha256_of(fixed), for_all_batches=source.fixed_for_all_batches
        ),
    )


def _write_onnx(source: ExportGraph, module: nn.Module, path: Path, *others: Path) -> None:
    """Write an ONNX file for any number of rows and the buckets of a graph; weights in `others` are references."""
    program = onnx_program(source, module)
    for node in program.model.graph:
        node.metadata_props.clear()  # stack traces contain local paths
    program.save(path, external_data=False)
    leave_out_computable(path)
    for other in others:
        share_weights(path, other)


def onnx_program(source: ExportGraph, module: nn.Module) -> torch.onnx.ONNXProgram:
    """ONNX program of a module of a graph; the metadata of its nodes tell the submodules that they belong to."""
    example = _example(source)
    dynamic: dict[int, Any] = {0: torch.export.Dim("batch")}
    if len(source.buckets) > 1:
        unit = math.gcd(*source.buckets)
        shortest, longest = source.buckets[0] // unit, source.buckets[-1] // unit
        dynamic[1] = unit * torch.export.Dim("units", min=shortest, max=longest)
    for name in ("torch.onnx", "onnx_ir"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", "# The axis name: batch will not be used", UserWarning)
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        program = torch.onnx.export(
            module,
            example,
            dynamo=True,
            input_names=list(source.golden),
            output_names=list(source.outputs),
            dynamic_shapes=tuple({axis: dynamic[axis] for axis in dynamic if axis < t.ndim} for t in example),
            verbose=False,
        )
    assert program is not None
    return program


def _example(source: ExportGraph) -> tuple[Tensor, ...]:
    """Three rows of the golden inputs."""
    return tuple(torch.from_numpy(array[:3]) for array in source.golden.values())


def _spec(name: str, array: NDArray[Any], dynamic: int) -> TensorSpec:
    """Describe a tensor whose first axes, `dynamic` of them, have any size."""
    shape = (*(-1 for _ in array.shape[:dynamic]), *array.shape[dynamic:])
    return TensorSpec.model_validate({"name": name, "datatype": DATATYPES[str(array.dtype)], "shape": shape})


def _copy_without_debug_tables(script: io.BytesIO, path: Path) -> None:
    """Write a TorchScript archive, compressed, without its stack traces, which contain local paths."""
    kept = io.BytesIO()
    with zipfile.ZipFile(script) as source, zipfile.ZipFile(kept, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                target.writestr(entry, source.read(entry), zipfile.ZIP_DEFLATED)
    path.write_bytes(kept.getbuffer())


def check_agreement(graph: Graph, folder: Path, golden: Arrays, expected: Arrays, tolerance: float = TOLERANCE) -> None:
    """Compare every backend with eager PyTorch, as one batch and row by row. Raises: ExportMismatch."""
    count = len(next(iter(golden.values())))
    formats = dict.fromkeys(file.format for file in graph.files)
    backends: dict[str, InferenceBackend] = {
        format: create_backend(graph, folder, format=format, device="cpu") for format in formats
    }
    assert graph.fixed_shapes is not None
    backends["onnx with fixed shapes"] = OnnxBackend(
        dict.fromkeys(graph.files_of("onnx"), folder / graph.fixed_shapes.path), graph
    )
    for name, backend in backends.items():
        together = backend.run(golden)
        rows = [backend.run({k: v[i : i + 1] for k, v in golden.items()}) for i in range(count)]
        alone = {name: np.concatenate([row[name] for row in rows]) for name in expected}
        for what, got in (("in one batch", together), ("row by row", alone)):
            error = max(output_error(got[name], expected[name]) for name in expected)
            if not error <= tolerance:
                raise ExportMismatch(f"{name} {what} differs from eager by {error:.2e}; allowed {tolerance}")
