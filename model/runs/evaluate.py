"""Evaluation on the test split, which is used for nothing else, or on held-out data."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from artifact.backends.base import Device
from artifact.exports import read_manifest, version_folder
from artifact.manifest import Precision, Result
from model.config.data import OWN
from model.data.own import DataFiles
from model.data.own_recipe import name_of
from model.errors import UserError, writing
from model.runs.load import Evaluable, find_run, load_exported, load_trained, unfinished
from model.tasks.graphs import GraphFunction, backend_function, module_functions
from model.training.checkpoint import BEST
from model.training.device import choose_device

HELD_OUT = "held-out"
"""Split of results on user data that the model was not trained on."""
NO_BASELINE = "no TF-IDF baseline: an export holds no training data; evaluate the run to compare"


@dataclass(frozen=True)
class Evaluation:
    """Results, where they come from, and where they were written."""

    results: tuple[Result, ...]
    notes: tuple[str, ...]
    source: str = ""
    """What was measured, for user data."""
    stated: tuple[Result, ...] | None = None
    """Results in the manifest of an export."""
    warning: str = ""
    """That the run was interrupted."""
    written: Path = Path()


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate, and on what."""

    folder: Path
    """A run, as for `find_run`, or an export."""
    files: DataFiles
    device: Device
    precision: Precision = "float32"
    """Precision of an export."""
    out: Path | None = None
    """JSON file for the results of an export; None for one in the current folder."""


def evaluate(request: EvaluationRequest) -> Evaluation:
    """Evaluate a run's best checkpoint with PyTorch, or an export with the backend that serves it; write JSON.

    User data other than that of training is measured whole; of the training data, the test split is measured.

    Raises: BadExport if the folder is neither, or the export is damaged; UserError, also if user data are missing.
    """
    folder, files, precision = find_run(request.folder), request.files, request.precision
    if (folder / BEST).is_file():
        if precision != "float32":
            raise UserError(f"--precision {precision}: {folder} is a run; give the folder of an export")
        best = load_trained(folder, files, may_be_new=True)
        found = _measure(best, module_functions(best.finished.graphs, choose_device(request.device)))
        name = "evaluation" if best.file is None else f"evaluation-{name_of(best.file, HELD_OUT)}"
        return _written(replace(found, warning=unfinished(folder)), folder / f"{name}.json")
    folder = version_folder(folder)
    manifest = read_manifest(folder).in_precision(precision)
    if manifest.precision != precision:
        raise UserError(f"{folder} was exported without --float16")
    export = load_exported(manifest, folder, files)
    found = _measure(export, [backend_function(graph, folder, request.device) for graph in manifest.graphs])
    if export.file is not None:
        found = replace(found, notes=(*found.notes, NO_BASELINE))
    elif files.data is not None:
        compared = {(r.metric, r.condition): r.compared_with for r in manifest.results}  # on the same test split
        results = tuple(
            r.model_copy(update={"compared_with": compared.get((r.metric, r.condition), r.compared_with)})
            for r in found.results
        )
        found = replace(found, results=results)
    suffix = "" if precision == "float32" else f"-{precision}"
    target = request.out or Path(f"evaluation-{manifest.name}-{manifest.version}{suffix}.json")
    return _written(replace(found, stated=manifest.results), target)


def _measure(model: Evaluable, functions: Sequence[GraphFunction]) -> Evaluation:
    """Measure a model on the test split of its data, or on all rows of another file."""
    measured = model.task.measure(functions, model.data)
    results, config, files = measured.results, model.task.config, model.files
    unit = "recordings" if config.reads == "recordings" else "rows"
    if model.file is not None:
        results = tuple(result.model_copy(update={"split": HELD_OUT}) for result in results)
        source = f"all {results[0].examples} labelled {unit} of {model.file}, which is not the training data"
    elif config.data.name not in OWN or config.reads == "series":
        source = ""
    else:
        source = f"{files.test or files.data}: {results[0].examples} {unit} of the test split"
    return Evaluation(results, measured.notes, source)


def _written(evaluation: Evaluation, path: Path) -> Evaluation:
    """Write the results of an evaluation."""
    with writing(path):
        path.write_text(json.dumps([result.model_dump() for result in evaluation.results], indent=2) + "\n")
    return replace(evaluation, written=path)
