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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.backends import create_backend
from artifact.backends.base import Device, InferenceBackend, output_error
from artifact.backends.onnx import OnnxBackend
from artifact.defaults import DEFAULTS, add_default
from artifact.manifest import (
    MANIFEST,
    SCHEMA_VERSION,
    ClassifierManifest,
    FixedShapes,
    Format,
    Graph,
    Manifest,
    ModelFile,
    TensorSpec,
    is_version,
    parse_manifest,
    sha256_of,
)
from model.cli.arguments import add_held_out_arguments, add_shared_arguments, held_out
from model.cli.operators import check_operators
from model.cli.results import print_results
from model.cli.weights import share_weights
from model.errors import ExportMismatch, writing
from model.tasks.base import FINGERPRINT, Arrays, ExportGraph, backend_run, module_outputs, module_runs, write_arrays
from model.tasks.classification import NGRAMS
from model.training.plot import plot_reliability
from model.training.trained import Trained, find_run, load_trained, unfinished

TOLERANCE = 1e-5
TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
"""errno values of renaming a folder to one that exists."""
SUFFIX: dict[Format, str] = {"onnx": "onnx", "torchscript": "ts"}
DATATYPES = {"uint8": "UINT8", "int32": "INT32", "float32": "FP32"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `export`."""
    add_shared_arguments(parser)
    add_held_out_arguments(parser)
    parser.add_argument("run_folder", metavar="RUN", help="folder of the run")
    parser.add_argument("--out", default="exports", help="folder of the exports (default: %(default)s)")


def run(args: argparse.Namespace) -> Path:
    """Export a run's best checkpoint as the next version; returns the version folder.

    The files are written to a temporary folder beside the versions, which is renamed at the end.

    Raises: UserError, also if --data is missing or the disk is full; BadExport if a backend cannot load the export;
        ExportMismatch if the outputs of eager PyTorch, TorchScript and ONNX Runtime differ.

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
            graphs = _write_graphs(best, partial)
            manifest = _manifest(best, version, graphs, partial, args.device)
            folder = _publish(partial, manifest, versions)
    except BaseException:
        shutil.rmtree(partial)
        if not any(versions.iterdir()):
            versions.rmdir()
        raise
    print_results(manifest.results, best.task.notes)
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
        graph = write_graph(source, outputs, folder)
        assert graph.fixed_shapes is not None
        graphs.append(graph)
        for path in sorted({graph.fixed_shapes.path, *graph.cuda_files().values()}):
            check_operators(folder / path)
        for bucket in source.buckets:
            check_agreement(graphs[-1], folder, *fitting(source.golden, outputs, bucket))
    write_arrays(folder / "golden.npz", golden)
    return graphs


def _publish(partial: Path, manifest: Manifest, versions: Path) -> Path:
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
    """Write NAME.onnx, NAME.ts (traced, frozen) and, if it differs, NAME.fixed.onnx; returns their description."""
    names = list(source.golden)
    paths: dict[Format, Path] = {format: folder / f"{source.name}.{suffix}" for format, suffix in SUFFIX.items()}
    fixed = paths["onnx"]
    _write_onnx(source, source.module, paths["onnx"])
    if source.fixed is not None:
        fixed = folder / f"{source.name}.fixed.onnx"
        _write_onnx(source, source.fixed.eval(), fixed)
        share_weights(fixed, paths["onnx"])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        traced = torch.jit.trace(source.module, _example(source))
        scripted = io.BytesIO()
        torch.jit.save(torch.jit.freeze(traced), scripted)
    _copy_without_debug_tables(scripted, paths["torchscript"])
    return Graph(
        files=tuple(
            ModelFile(path=path.name, sha256=sha256_of(path), format=format, precision="float32", bucket=bucket)
            for format, path in paths.items()
            for bucket in source.buckets
        ),
        inputs=tuple(_spec(name, source.golden[name], 2 if len(source.buckets) > 1 else 1) for name in names),
        outputs=tuple(
            _spec(name, outputs[name], outputs[name].ndim - 1 if len(source.buckets) > 1 else 1)
            for name in source.outputs
        ),
        fixed_shapes=FixedShapes(
            path=fixed.name, sha256=sha256_of(fixed), for_all_batches=source.fixed_for_all_batches
        ),
    )


def _write_onnx(source: ExportGraph, module: nn.Module, path: Path) -> None:
    """Write an ONNX file with embedded weights, for any number of rows and for all buckets."""
    program = onnx_program(source, module)
    for node in program.model.graph:
        node.metadata_props.clear()  # stack traces contain local paths
    program.save(path, external_data=False)


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


def check_agreement(graph: Graph, folder: Path, golden: Arrays, expected: Arrays) -> None:
    """Compare every backend with eager PyTorch, as one batch and row by row. Raises: ExportMismatch."""
    count = len(next(iter(golden.values())))
    backends: dict[str, InferenceBackend] = {
        format: create_backend(graph, folder, format=format, device="cpu") for format in SUFFIX
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
            if not error <= TOLERANCE:
                raise ExportMismatch(f"{name} {what} differs from eager by {error:.2e}; allowed {TOLERANCE}")


def _manifest(
    best: Trained,
    version: int,
    graphs: list[Graph],
    folder: Path,
    device: Device,
) -> Manifest:
    """Evaluate the export and create its manifest."""
    config, progress, task = best.config, best.progress, best.task
    if best.final is None:
        runs = [backend_run(graph, folder, device) for graph in graphs]
    else:  # the exported model has seen the test split
        runs = module_runs(task.graphs(best.model), torch.device("cpu"))
    results = task.measure(runs, best.data)
    last = progress.history[-1] if progress.history else {}  # empty if the untrained model was the best
    recipe = json.loads(json.dumps(config.to_dict()))
    terms, non_commercial = task.terms()
    return parse_manifest(
        {
            "schema_version": SCHEMA_VERSION,
            "name": config.name,
            "version": version,
            "task": recipe["task"],
            **graphs[0].model_dump(),
            **({"head": graphs[1].model_dump()} if len(graphs) > 1 else {}),
            "golden": {"path": "golden.npz", "sha256": sha256_of(folder / "golden.npz")},
            "tolerance": TOLERANCE,
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
    )
