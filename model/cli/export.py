"""`python -m model export`: export a run to exports/<name>/<version>/ and check every backend."""

import argparse
import errno
import io
import json
import logging
import math
import os
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor, nn

from artifact.backends import create_backend
from artifact.backends.base import Device, InferenceBackend, output_error
from artifact.backends.onnx import OnnxBackend
from artifact.backends.torchscript import SHARED, SHARED_TENSORS
from artifact.defaults import DEFAULTS, add_default
from artifact.exports import is_version, parse_manifest, sha256_of
from artifact.manifest import (
    MANIFEST,
    MAX_TOLERANCE,
    SCHEMA_VERSION,
    ArrayFile,
    ExportManifest,
    FixedShapes,
    Float16,
    Format,
    Graph,
    ModelFile,
    Precision,
    TensorSpec,
)
from artifact.tasks.classification import ClassifierManifest
from model.cli.arguments import add_held_out_arguments, add_shared_arguments, held_out
from model.cli.operators import check_operators, check_script
from model.cli.results import print_results
from model.cli.weights import share_constants, share_weights
from model.config.schema import explain
from model.errors import ExportMismatch, UserError, writing
from model.tasks.base import FINGERPRINT, Arrays, ExportGraph, backend_run, module_outputs, module_runs, write_arrays
from model.tasks.classification import NGRAMS
from model.training.plot import plot_reliability
from model.training.trained import Trained, find_run, load_trained, unfinished

TOLERANCE = 1e-5
"""Maximum difference between backends in float32, as `output_error`."""
FLOAT16_MARGIN = 10
"""The tolerance in float16 is this many times the difference between the golden outputs in float16 and in float32."""
TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
"""errno values of renaming a folder to one that exists."""
GOLDEN, GOLDEN_FLOAT16 = "golden.npz", "golden.float16.npz"
DATATYPES = {"uint8": "UINT8", "int32": "INT32", "float32": "FP32"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `export`."""
    add_shared_arguments(parser)
    add_held_out_arguments(parser)
    parser.add_argument("run_folder", metavar="RUN", help="folder of the run")
    parser.add_argument("--out", default="exports", help="folder of the exports (default: %(default)s)")
    parser.add_argument(
        "--float16", action="store_true", help="also export encoder blocks in float16, for LONGDOC_PRECISION"
    )


def run(args: argparse.Namespace) -> Path:
    """Export a run's best checkpoint as the next version; returns the version folder.

    The files are written to a temporary folder beside the versions, which is renamed at the end.

    Raises: UserError, also if --data is missing, the disk is full, or --float16 is given for a model without blocks;
        BadExport if a backend cannot load the export; ExportMismatch if the outputs of eager PyTorch, TorchScript and
        ONNX Runtime differ, or those in float16 from those in float32.

    """
    given, run_folder = Path(args.data or args.data_dir), find_run(Path(args.run_folder))
    best = load_trained(run_folder, given, is_own=args.data is not None, held_out=held_out(args))
    versions = Path(args.out) / best.config.name
    versions.mkdir(parents=True, exist_ok=True)
    version = 1 + max((int(p.name) for p in versions.iterdir() if is_version(p)), default=0)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=versions))
    partial.chmod(0o755)
    try:
        with writing(versions):
            if args.float16:
                _in_float16(best, best.model)  # fails before anything is written
            graphs = _write_graphs(best, partial)
            float16 = _write_float16(best, partial, graphs, args.device) if args.float16 else None
            manifest = _manifest(best, version, graphs, float16, partial, args.device)
            folder = _publish(partial, manifest, versions)
    except BaseException:
        shutil.rmtree(partial)
        if not any(versions.iterdir()):
            versions.rmdir()
        raise
    print_results(manifest.results, best.task.notes)
    if manifest.float16 is not None:
        print("in float16:")
        print_results(manifest.float16.results)
    print(f"exported {folder}")
    if warning := unfinished(run_folder):
        print(warning)
    if isinstance(manifest, ClassifierManifest):
        with writing(path := run_folder / "reliability.png"):
            plot_reliability(manifest.reliability, path)
    if add_default(Path(args.out), manifest.task, manifest.name):
        print(f"{Path(args.out) / DEFAULTS}: {manifest.name} is the default model for requests without a model name")
    return folder


def _write_graphs(best: Trained, folder: Path) -> list[Graph]:
    """Write golden.npz and all graphs, and check each on every backend; returns the descriptions of the graphs.

    Raises: ExportMismatch; UserError if CUDA does not compute an operator; OSError.
    """
    golden: Arrays = {}
    graphs = []
    for source in best.task.graphs(best.model if best.final is None else best.final):
        outputs = eager(source)
        golden |= {**source.golden, **outputs}
        graphs.append(write_graph(source, outputs, folder))
        _check(source, graphs[-1], outputs, folder, TOLERANCE)
    write_arrays(folder / GOLDEN, golden)
    return graphs


def _write_float16(best: Trained, folder: Path, graphs: Sequence[Graph], device: Device) -> Float16:
    """Write the first graph in float16 and its golden outputs, check and evaluate it.

    Raises: UserError if the model has no blocks; otherwise as `_write_graphs`.
    """
    source = _in_float16(best, best.model if best.final is None else best.final)
    outputs, path = eager(source), folder / GOLDEN_FLOAT16
    with np.load(folder / GOLDEN) as golden:
        difference = max(output_error(outputs[name], golden[name]) for name in outputs)
        write_arrays(path, {**golden, **outputs})
    if not difference <= MAX_TOLERANCE:
        raise ExportMismatch(f"float16 differs from float32 by {difference:.2e}; allowed {MAX_TOLERANCE}")
    tolerance = min(MAX_TOLERANCE, max(TOLERANCE, FLOAT16_MARGIN * difference))
    graph = write_float16(source, outputs, graphs[0], folder)
    _check(source, graph, outputs, folder, tolerance)
    if best.final is None:
        runs = [backend_run(one, folder, device) for one in (graph, *graphs[1:])]
    else:  # the exported model has seen the test split
        runs = module_runs([_in_float16(best, best.model), *best.task.graphs(best.model)[1:]], torch.device("cpu"))
    assert graph.fixed_shapes is not None
    assert graph.weights_from is not None
    return Float16(
        files=graph.files,
        fixed_shapes=graph.fixed_shapes,
        weights_from=graph.weights_from,
        golden=ArrayFile(path=path.name, sha256=sha256_of(path)),
        tolerance=tolerance,
        results=best.task.measure(runs, best.data),
    )


def _in_float16(best: Trained, model: nn.Module) -> ExportGraph:
    """The first graph of a model in float16. Raises: UserError if the model has no blocks."""
    source = best.task.graphs(model)[0].in_float16()
    if source is None:
        raise UserError(f"{best.config.name} has no encoder, or training has not kept it; export it without --float16")
    return source


def _check(source: ExportGraph, graph: Graph, outputs: Arrays, folder: Path, tolerance: float) -> None:
    """Check that CUDA computes every operator; compare the backends in every bucket with the outputs of PyTorch."""
    assert graph.fixed_shapes is not None
    for path in sorted({graph.fixed_shapes.path, *graph.cuda_files().values()}):
        check_operators(folder / path)
    for script in sorted({file.path for file in graph.files if file.format == "torchscript"}):
        check_script(folder / script)
    for bucket in source.buckets:
        check_agreement(graph, folder, *fitting(source.golden, outputs, bucket), tolerance)


def _publish(partial: Path, manifest: ExportManifest, versions: Path) -> Path:
    """Rename the folder to the version of its manifest, or to the next one that no concurrent export has taken."""
    while True:
        (partial / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")
        folder = versions / str(manifest.version)
        try:
            os.rename(partial, folder)
        except OSError as error:
            if error.errno not in TAKEN:
                raise
            manifest = manifest.model_copy(update={"version": manifest.version + 1})
        else:
            return folder


def fitting(golden: Arrays, outputs: Arrays, bucket: int) -> tuple[Arrays, Arrays]:
    """Golden inputs and outputs of the rows that fit into a bucket, with the inputs cut to its length."""
    if "lengths" not in golden or golden["bytes"].shape[1] == bucket:
        return golden, outputs
    kept = golden["lengths"] <= bucket
    inputs = {"bytes": golden["bytes"][kept, :bucket], "lengths": golden["lengths"][kept]}
    return inputs, {name: output[kept] for name, output in outputs.items()}


def eager(source: ExportGraph) -> Arrays:
    """Outputs (B, ...) of the PyTorch module for the golden inputs, by name."""
    found = module_outputs(source.module.eval().cpu(), list(source.golden.values()), torch.device("cpu"))
    return dict(zip(source.outputs, found, strict=True))


def write_graph(source: ExportGraph, outputs: Arrays, folder: Path) -> Graph:
    """Write NAME.onnx, NAME.ts (traced, frozen) and, if it differs, NAME.fixed.onnx; returns their description.

    Weights that NAME.onnx also holds are stored there only.
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
    return _describe(source, outputs, {"onnx": path, "torchscript": script}, fixed, "float32")


def write_float16(source: ExportGraph, outputs: Arrays, float32: Graph, folder: Path) -> Graph:
    """Write the ONNX files of a graph in float16; `float32` holds the other weights. Returns their description."""
    other = float32.files_of("onnx")[source.buckets[0]].path
    path, fixed = _write_onnx_files(source, folder, folder / other)
    graph = _describe(source, outputs, {"onnx": path}, fixed, "float16")
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
    source: ExportGraph, outputs: Arrays, paths: Mapping[Format, Path], fixed: Path, precision: Precision
) -> Graph:
    """Describe a graph and its files."""
    return Graph(
        files=tuple(
            ModelFile(path=path.name, sha256=sha256_of(path), format=format, precision=precision, bucket=bucket)
            for format, path in paths.items()
            for bucket in source.buckets
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
    """Write an ONNX file for any number of rows and for all buckets; weights that `others` hold are references."""
    program = onnx_program(source, module)
    for node in program.model.graph:
        node.metadata_props.clear()  # stack traces contain local paths
    program.save(path, external_data=False)
    for other in others:
        share_weights(path, other)


def onnx_program(source: ExportGraph, module: nn.Module) -> torch.onnx.ONNXProgram:
    """ONNX program of a module of a graph; the metadata of its nodes tell the submodules that they belong to."""
    example = _example(source)
    dynamic: dict[int, Any] = {0: torch.export.Dim("batch")}
    if len(source.buckets) > 1:
        unit = math.gcd(*source.buckets)
        dynamic[1] = unit * torch.export.Dim("units", min=1, max=source.buckets[-1] // unit)
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
    """Write a TorchScript archive without its stack traces, which contain local paths."""
    kept = io.BytesIO()
    with zipfile.ZipFile(script) as source, zipfile.ZipFile(kept, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                target.writestr(entry, source.read(entry))
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


def _manifest(
    best: Trained,
    version: int,
    graphs: Sequence[Graph],
    float16: Float16 | None,
    folder: Path,
    device: Device,
) -> ExportManifest:
    """Evaluate the export and create its manifest. Raises: UserError naming the key that is not valid."""
    config, progress, task = best.config, best.progress, best.task
    if best.final is None:
        runs = [backend_run(graph, folder, device) for graph in graphs]
    else:  # the exported model has seen the test split
        runs = module_runs(task.graphs(best.model), torch.device("cpu"))
    results = task.measure(runs, best.data)
    last = progress.history[-1] if progress.history else {}  # empty if the untrained model was the best
    recipe = json.loads(json.dumps(task.recipe.to_dict()))
    terms, non_commercial = task.terms()
    fields = {
        "schema_version": SCHEMA_VERSION,
        "name": config.name,
        "version": version,
        "task": recipe["task"],
        **graphs[0].model_dump(),
        **({"head": graphs[1].model_dump()} if len(graphs) > 1 else {}),
        "golden": {"path": GOLDEN, "sha256": sha256_of(folder / GOLDEN)},
        "tolerance": TOLERANCE,
        "float16": None if float16 is None else float16.model_dump(),
        **task.manifest(runs, results, best.data, folder),
        "training": {
            "recipe": recipe,
            "data": recipe["data"]["name"],
            "device": progress.device,
            "seconds": round(progress.seconds, 1),
            "examples_per_second": round(last.get("examples_per_second", 0.0), 1),
            "peak_memory_bytes": int(last.get("peak_memory_bytes", 0)),
            "validation": {"metric": task.metric, "value": round(progress.best or 0.0, 4)},
            "revision": progress.revision,
            "data_sha256": task.facts.get(FINGERPRINT),
            "ngram_view": task.facts.get(NGRAMS),
        },
        "results": [result.model_dump() for result in results],
        "data_terms": terms,
        "non_commercial": non_commercial,
    }
    try:
        return parse_manifest(fields)
    except ValidationError as error:
        raise UserError(f"{config.name} cannot be exported: {explain(error)}") from None
