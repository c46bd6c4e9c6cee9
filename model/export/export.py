"""Exports a run to exports/<name>/<version>/ and checks every backend."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from artifact.backends.base import Device, output_error
from artifact.defaults import add_default
from artifact.exports import CARD, is_version, parse_manifest, sha256_of
from artifact.manifest import MANIFEST, MAX_TOLERANCE, SCHEMA_VERSION, ArrayFile, ExportManifest, Float16, Graph
from artifact.tasks.classification import ClassifierManifest
from model.config.schema import explain
from model.data.own import DataFiles
from model.errors import ExportMismatch, UserError, writing
from model.export.card import card_of
from model.export.graphs import TOLERANCE, check_graph, eager, write_float16, write_graph
from model.runs.load import Trained, find_run, load_trained, unfinished
from model.tasks.base import FINGERPRINT, SPLITS, Measurement
from model.tasks.graphs import Arrays, ExportGraph, GraphFunction, backend_function, module_functions, write_arrays
from model.tasks.two_views import NGRAMS
from model.training.plot import plot_reliability

FLOAT16_MARGIN = 10
"""The tolerance in float16 is this many times the difference between the golden outputs in float16 and in float32."""
TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
"""errno values of renaming a folder to one that exists."""
GOLDEN, GOLDEN_FLOAT16 = "golden.npz", "golden.float16.npz"


@dataclass(frozen=True)
class Exported:
    """A new version."""

    folder: Path
    manifest: ExportManifest
    notes: tuple[str, ...]
    """Notes about the measurement."""
    warning: str
    """That the run was interrupted; empty if it has ended."""
    is_default: bool
    """Whether it has become the default model of its task."""


@dataclass(frozen=True)
class ExportRequest:
    """What to export, and where to."""

    run: Path
    """Folder of the run, as for `find_run`."""
    files: DataFiles
    """Calibration and test data, as for `load_trained`."""
    out: Path
    """Folder of the exports."""
    device: Device
    """Device that measures."""
    has_float16: bool = False
    """Whether to export encoder blocks also in float16."""


def export_run(request: ExportRequest) -> Exported:
    """Export a run's best checkpoint as the next version, to a temporary folder beside the versions that is renamed.

    Prints a line for each step.

    Raises: UserError, also if user data are missing, the disk is full, or there are no blocks for float16; BadExport if
        a backend cannot load the export; ExportMismatch if the outputs of eager PyTorch, TorchScript and ONNX Runtime
        differ, or those in float16 from those in float32.

    """
    run, device, has_float16 = find_run(request.run), request.device, request.has_float16
    best = load_trained(run, request.files)
    versions = request.out / best.task.config.name
    versions.mkdir(parents=True, exist_ok=True)
    version = 1 + max((int(p.name) for p in versions.iterdir() if is_version(p)), default=0)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=versions))
    partial.chmod(0o755)
    try:
        with writing(versions):
            if has_float16:
                _in_float16(best, best.finished.graphs)  # fails before anything is written
            print("writing ONNX and TorchScript, and comparing both with PyTorch", flush=True)
            graphs, golden = _write_graphs(best.finished.exported, partial)
            float16 = _write_float16(best, partial, graphs, device) if has_float16 else None
            print("measuring on the test split", flush=True)
            measured = best.task.measure(_functions(best, graphs, partial, device), best.data)
            manifest = _manifest(best, version, graphs, golden, float16, measured, partial)
            folder = _publish(partial, manifest, versions)
    except BaseException:
        shutil.rmtree(partial)
        if not any(versions.iterdir()):
            versions.rmdir()
        raise
    if isinstance(manifest, ClassifierManifest):
        plot_reliability(manifest.reliability, run / "reliability.png")
    is_default = add_default(request.out, manifest.task, manifest.name)
    return Exported(folder, manifest, measured.notes, unfinished(run), is_default)


def _write_graphs(sources: Sequence[ExportGraph], folder: Path) -> tuple[list[Graph], Arrays]:
    """Write golden.npz and all graphs, and check each on every backend; returns their descriptions, golden arrays.

    Raises: ExportMismatch; UserError if CUDA does not compute an operator; OSError.
    """
    golden: Arrays = {}
    graphs = []
    for source in sources:
        outputs = eager(source)
        golden |= {**source.golden, **outputs}
        graphs.append(write_graph(source, outputs, folder))
        check_graph(source, graphs[-1], outputs, folder, TOLERANCE)
    write_arrays(folder / GOLDEN, golden)
    return graphs, golden


def _functions(best: Trained, graphs: Sequence[Graph], folder: Path, device: Device) -> list[GraphFunction]:
    """What is measured: the export; or PyTorch's model, if the exported one has seen the test split."""
    if best.finished.final is not None:
        return module_functions(best.finished.graphs, torch.device("cpu"))
    return [backend_function(graph, folder, device) for graph in graphs]


def _write_float16(best: Trained, folder: Path, graphs: Sequence[Graph], device: Device) -> Float16:
    """Write the first graph in float16 and its golden outputs, check and evaluate it.

    Raises: UserError if the model has no blocks; otherwise as `_write_graphs`.
    """
    source = _in_float16(best, best.finished.exported)
    outputs, path = eager(source), folder / GOLDEN_FLOAT16
    with np.load(folder / GOLDEN) as golden:
        difference = max(output_error(outputs[name], golden[name]) for name in outputs)
        write_arrays(path, {**golden, **outputs})
    if not difference <= MAX_TOLERANCE:
        raise ExportMismatch(f"float16 differs from float32 by {difference:.2e}; allowed {MAX_TOLERANCE}")
    tolerance = min(MAX_TOLERANCE, max(TOLERANCE, FLOAT16_MARGIN * difference))
    graph = write_float16(source, outputs, graphs[0], folder)
    check_graph(source, graph, outputs, folder, tolerance)
    if best.finished.final is not None:  # the exported model has seen the test split
        sources = [_in_float16(best, best.finished.graphs), *best.finished.graphs[1:]]
        functions = module_functions(sources, torch.device("cpu"))
    else:
        functions = [backend_function(one, folder, device) for one in (graph, *graphs[1:])]
    assert graph.fixed_shapes is not None
    assert graph.weights_from is not None
    return Float16(
        files=graph.files,
        fixed_shapes=graph.fixed_shapes,
        weights_from=graph.weights_from,
        golden=ArrayFile(path=path.name, sha256=sha256_of(path)),
        tolerance=tolerance,
        results=best.task.measure(functions, best.data).results,
    )


def _in_float16(best: Trained, graphs: Sequence[ExportGraph]) -> ExportGraph:
    """The first graph in float16. Raises: UserError if it has no blocks."""
    source = graphs[0].in_float16()
    if source is None:
        name = best.task.config.name
        raise UserError(f"{name} has no encoder, or training has not kept it; export it without --float16")
    return source


def _publish(partial: Path, manifest: ExportManifest, versions: Path) -> Path:
    """Rename the folder to the version of its manifest, or to the next one that no concurrent export has taken."""
    while True:
        (partial / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")
        (partial / CARD).write_text(card_of(manifest), encoding="utf-8")
        folder = versions / str(manifest.version)
        try:
            os.rename(partial, folder)
        except OSError as error:
            if error.errno not in TAKEN:
                raise
            manifest = manifest.model_copy(update={"version": manifest.version + 1})
        else:
            return folder


def _manifest(
    best: Trained,
    version: int,
    graphs: Sequence[Graph],
    golden: Arrays,
    float16: Float16 | None,
    measured: Measurement,
    folder: Path,
) -> ExportManifest:
    """Write the archives of the measurement and create the manifest. Raises: UserError naming the key at fault."""
    progress, task = best.progress, best.task
    archives = dict[str, Any]()
    for key, arrays in measured.archives.items():
        path = folder / f"{key}.npz"
        write_arrays(path, arrays)
        archives[key] = ArrayFile(path=path.name, sha256=sha256_of(path)).model_dump()
    last = progress.history[-1] if progress.history else {}  # empty if the untrained model was the best
    recipe = json.loads(json.dumps(task.recipe.to_dict()))
    terms, non_commercial = task.terms()
    fields = {
        "schema_version": SCHEMA_VERSION,
        "name": recipe["name"],
        "version": version,
        "task": recipe["task"],
        **graphs[0].model_dump(),
        **({"head": graphs[1].model_dump()} if len(graphs) > 1 else {}),
        "golden": {"path": GOLDEN, "sha256": sha256_of(folder / GOLDEN)},
        "tolerance": TOLERANCE,
        "float16": None if float16 is None else float16.model_dump(),
        **task.manifest(golden),
        **best.finished.keys,
        **measured.keys,
        **archives,
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
            "splits_sha256": task.facts.get(SPLITS),
            "ngram_view": task.facts.get(NGRAMS),
        },
        "results": [result.model_dump() for result in measured.results],
        "data_terms": terms,
        "non_commercial": non_commercial,
    }
    try:
        return parse_manifest(fields)
    except ValidationError as error:
        raise UserError(f"{task.config.name} cannot be exported: {explain(error)}") from None
