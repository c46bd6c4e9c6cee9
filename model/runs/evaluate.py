"""Evaluation on the test split, which is used for nothing else, or on held-out data."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from artifact.backends.base import Device
from artifact.exports import read_manifest, version_folder
from artifact.manifest import Precision, Result
from model.config.data import OWN
from model.data.own import DataFiles
from model.data.own_recipe import name_of
from model.errors import UserError, writing
from model.report.page import Report, write_report
from model.runs.load import Evaluable, Trained, find_run, load_exported, load_trained, unfinished
from model.runs.report import report_of_export, report_of_run
from model.tasks.base import Measurement
from model.tasks.graphs import GraphFunction, backend_function, module_functions
from model.training.checkpoint import BEST
from model.training.device import choose_device

HELD_OUT = "held-out"
"""Split of results on user data that the model was not trained on."""
NO_BASELINE = "no TF-IDF baseline: an export holds no training data; evaluate the run to compare"
EVALUATION, REPORT, PREDICTIONS = "evaluation.json", "report.html", "predictions.csv"
"""Files of a run folder: results on the test split, what a person looks at, and the answer to each example."""


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
    report: Path | None = None


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
    report: Path | None = None
    """HTML file for a report; the predictions are written beside it. None for none."""


def evaluate(request: EvaluationRequest) -> Evaluation:
    """Evaluate a run's best checkpoint with PyTorch, or an export with the backend that serves it; write JSON.

    User data other than that of training is measured whole; of the training data, the test split is measured.

    Raises: BadExport if the folder is neither, or the export is damaged; UserError, also if user data are missing.
    """
    folder = find_run(request.folder)
    if not (folder / BEST).is_file():
        return _evaluate_export(version_folder(folder), request)
    if request.precision != "float32":
        raise UserError(f"--precision {request.precision}: {folder} is a run; give the folder of an export")
    best, device = load_trained(folder, request.files, may_be_new=True), choose_device(request.device)
    measured, found = _measure(best, module_functions(best.finished.graphs, device))
    name = EVALUATION if best.file is None else f"evaluation-{name_of(best.file, HELD_OUT)}.json"
    found = _written(replace(found, warning=unfinished(folder)), folder / name)
    if request.report is None:
        return found
    return _reported(found, report_of_run(folder, best, measured, device), *_beside(request.report))


def evaluate_run(folder: Path, trained: Trained, device: torch.device) -> Evaluation:
    """Evaluate a run that has ended on its test split; write results, report and predictions into its folder."""
    measured, found = _measure(trained, module_functions(trained.finished.graphs, device))
    found = _written(found, folder / EVALUATION)
    return _reported(found, report_of_run(folder, trained, measured, device), folder / REPORT, folder / PREDICTIONS)


def _evaluate_export(folder: Path, request: EvaluationRequest) -> Evaluation:
    """Evaluate an export. Raises: as `evaluate`."""
    files, precision = request.files, request.precision
    manifest = read_manifest(folder).in_precision(precision)
    if manifest.precision != precision:
        raise UserError(f"{folder} was exported without --float16")
    export = load_exported(manifest, folder, files)
    measured, found = _measure(export, [backend_function(one, folder, request.device) for one in manifest.graphs])
    if export.file is not None:
        found = replace(found, notes=(*found.notes, NO_BASELINE))
    elif files.data is not None:
        found = replace(found, results=_compared(found.results, manifest.results))
    suffix = "" if precision == "float32" else f"-{precision}"
    target = request.out or Path(f"evaluation-{manifest.name}-{manifest.version}{suffix}.json")
    found = _written(replace(found, stated=manifest.results), target)
    if request.report is None:
        return found
    report = report_of_export(export.task, manifest, measured, folder, request.device)
    return _reported(found, report, *_beside(request.report))


def _compared(results: Sequence[Result], stated: Sequence[Result]) -> tuple[Result, ...]:
    """The results with the baselines of a manifest, which are of the same test split."""
    known = {(result.metric, result.condition): result for result in stated}
    beside = [known.get((result.metric, result.condition), result) for result in results]
    return tuple(
        result.model_copy(update={"compared_with": other.compared_with, "baselines": other.baselines})
        for result, other in zip(results, beside, strict=True)
    )


def _measure(model: Evaluable, functions: Sequence[GraphFunction]) -> tuple[Measurement, Evaluation]:
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
    return measured, Evaluation(results, measured.notes, source)


def _written(evaluation: Evaluation, path: Path) -> Evaluation:
    """Write the results of an evaluation."""
    with writing(path):
        path.write_text(json.dumps([result.model_dump() for result in evaluation.results], indent=2) + "\n")
    return replace(evaluation, written=path)


def _beside(report: Path) -> tuple[Path, Path]:
    """A report that the user names, and the predictions beside it."""
    return report, report.with_name(f"{report.stem}-{PREDICTIONS}")


def _reported(found: Evaluation, report: Report, page: Path, table: Path) -> Evaluation:
    """Write a report of what was found, and the predictions. Raises: UserError, OSError."""
    report = replace(report, results=found.results, notes=found.notes, source=found.source, warning=found.warning)
    write_report(report, page, table)
    return replace(found, report=page)
