"""`python -m model evaluate`: evaluate on the test split, which is used for nothing else, or on held-out data."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from artifact.backends.base import Device
from artifact.exports import read_manifest, version_folder
from artifact.manifest import ExportManifest, Result
from model.cli.arguments import add_shared_arguments
from model.cli.results import print_results
from model.config.data import OWN
from model.data.own_recipe import name_of
from model.errors import UserError, writing
from model.tasks.base import Run, Task, TextTask, backend_run, module_runs
from model.training.device import choose_device
from model.training.trained import find_run, is_new, load_trained, refuse_own, task_of_export, unfinished

HELD_OUT = "held-out"
"""Split of results on user data that the model was not trained on."""
NO_BASELINE = "no TF-IDF baseline: an export holds no training data; evaluate the run to compare"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate`."""
    add_shared_arguments(parser)
    parser.add_argument("folder", help="a run folder, or an export below exports/")
    parser.add_argument("--out", help="JSON file for the results of an export (default: in the current folder)")
    parser.add_argument("--precision", default="float32", choices=["float32", "float16"], help="precision of an export")


def run(args: argparse.Namespace) -> None:
    """Evaluate a run's best checkpoint or an export; print a table and write JSON.

    User data other than that of training is measured whole; of the training data, the test split is measured.

    Raises: BadExport if the folder is neither, or the export is damaged; UserError, also if --data is missing.
    """
    folder = find_run(Path(args.folder))
    data = Path(args.data) if args.data is not None else None
    stated, warning = None, ""
    if (folder / "best.pt").is_file():
        if args.precision != "float32":
            raise UserError(f"--precision {args.precision}: {folder} is a run; give the folder of an export")
        found = evaluate_run(folder, Path(args.data_dir), data, args.device)
        name = "evaluation" if found.file is None else f"evaluation-{name_of(found.file, HELD_OUT)}"
        target, warning = folder / f"{name}.json", unfinished(folder)
    else:
        folder = version_folder(folder)
        manifest = read_manifest(folder).in_precision(args.precision)
        if manifest.precision != args.precision:
            raise UserError(f"{folder} was exported without --float16")
        found = evaluate_export(manifest, folder, Path(args.data_dir), data, args.device)
        stated = manifest.results
        suffix = "" if args.precision == "float32" else f"-{args.precision}"
        target = Path(args.out or f"evaluation-{manifest.name}-{manifest.version}{suffix}.json")
    with writing(target):
        target.write_text(json.dumps([result.model_dump() for result in found.results], indent=2) + "\n")
    if found.source:
        print(found.source)
    print_results(found.results, found.notes, stated)
    if warning:
        print(warning)
    print(f"written to {target}")


@dataclass(frozen=True)
class Evaluation:
    """Results and where they come from."""

    results: tuple[Result, ...]
    source: str = ""
    """What was measured, for user data."""
    notes: tuple[str, ...] = ()
    file: Path | None = None
    """File other than the training data that was measured."""


def evaluate_run(folder: Path, data_dir: Path, data: Path | None, device: str) -> Evaluation:
    """Evaluate a run's best checkpoint with PyTorch."""
    best = load_trained(folder, data or data_dir, is_own=data is not None, may_be_new=True)
    runs = module_runs(best.task.graphs(best.model), choose_device(device))
    return _measure(best.task, runs, best.data)


def evaluate_export(
    manifest: ExportManifest, folder: Path, data_dir: Path, data: Path | None, device: Device
) -> Evaluation:
    """Evaluate an export with the backend that serves it.

    Raises: UserError if its test split is not a part of `data`, the file that it was trained on.
    """
    task = task_of_export(manifest, folder)
    if data is None:
        refuse_own(task.config)
    elif is_new(task, data, manifest.training.data_sha256 or ""):
        task.test_file = data
    elif isinstance(task, TextTask) and task.config.data.final_fit:
        raise UserError(f"{manifest.name} was trained on all rows of {data}; give a held-out file, or evaluate the run")
    elif getattr(task.config.data, "validation_file", False) or getattr(task.config.data, "test_file", False):
        raise UserError(f"{manifest.name} was trained on {data}; give its test file, or evaluate the run")
    found = _measure(task, [backend_run(graph, folder, device) for graph in manifest.graphs], data or data_dir)
    if task.test_file is not None:
        return replace(found, notes=(*found.notes, NO_BASELINE))
    if data is None:
        return found
    compared = {(r.metric, r.condition): r.compared_with for r in manifest.results}  # on the same test split
    return replace(
        found,
        results=tuple(
            r.model_copy(update={"compared_with": compared.get((r.metric, r.condition), r.compared_with)})
            for r in found.results
        ),
    )


def _measure(task: Task[Any], runs: Sequence[Run], data: Path) -> Evaluation:
    """Measure a task on the test split of `data`, or on all rows of its test file."""
    results = task.measure(runs, data)
    if task.test_file is not None:
        results = tuple(result.model_copy(update={"split": HELD_OUT}) for result in results)
        source = f"all {results[0].examples} labelled rows of {task.test_file}, which is not the training data"
        return Evaluation(results, source, task.notes, task.test_file)
    if task.config.data.name not in OWN or task.config.task == "forecasting":
        return Evaluation(results, notes=task.notes)
    file = task.held_out.test
    source = f"{file or data}: {results[0].examples} rows of the test split"
    return Evaluation(results, source, task.notes)
