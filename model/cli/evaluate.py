"""`python -m model evaluate`: results on the test split, which nothing else reads."""

import argparse
import json
from pathlib import Path

import numpy as np

from artifact.backends.base import Device
from artifact.manifest import (
    ClassifierManifest,
    ForecasterManifest,
    Manifest,
    Result,
    newest_version,
    read_manifest,
)
from artifact.series import Calibration
from model.cli.arguments import add_shared_arguments
from model.config.stored import from_stored
from model.tasks import task_of
from model.tasks.base import backend_run, module_runs
from model.tasks.forecasting import Forecasting
from model.training.device import choose_device
from model.training.trained import load_trained


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate`."""
    add_shared_arguments(parser)
    parser.add_argument("folder", help="a run folder, or an export below exports/")
    parser.add_argument("--out", help="JSON file to write for an export (default: in the current folder)")


def run(args: argparse.Namespace) -> None:
    """Measure a run's best checkpoint or an export on the test split; print a table and write JSON.

    Raises: BadExport if the folder is neither, or a damaged export.
    """
    folder = Path(args.folder)
    data_dir = Path(args.data or args.data_dir)
    if (folder / "best.pt").is_file():
        results = evaluate_run(folder, data_dir, args.device)
        target = folder / "evaluation.json"
        manifest = None
    else:
        folder = newest_version(folder)
        manifest = read_manifest(folder)
        results = evaluate_export(manifest, folder, data_dir, args.device)
        target = Path(args.out or f"evaluation-{manifest.name}-{manifest.version}.json")
    target.write_text(json.dumps([result.model_dump() for result in results], indent=2) + "\n")
    width = max(len(r.condition) for r in results)
    print(f"{'metric':<12}  {'condition':<{width}}  {'split':<6}  {'n':>6}  {'value':>8}  {'manifest':>8}")
    stated = {(r.metric, r.condition): r.value for r in manifest.results} if manifest else {}
    for r in results:
        known = stated.get((r.metric, r.condition))
        text = "" if known is None else f"{known:.4f}"
        print(f"{r.metric:<12}  {r.condition:<{width}}  {r.split:<6}  {r.examples:>6}  {r.value:>8.4f}  {text:>8}")
    print(f"written to {target}")


def evaluate_run(folder: Path, data: Path, device: str) -> tuple[Result, ...]:
    """Measure a run's best checkpoint with PyTorch."""
    best = load_trained(folder, data)
    return best.task.measure(module_runs(best.task.graphs(best.model), choose_device(device)), data)


def evaluate_export(manifest: Manifest, folder: Path, data_dir: Path, device: Device) -> tuple[Result, ...]:
    """Measure an export with the backend that serves it."""
    task = task_of(from_stored(manifest.training.recipe))
    if isinstance(manifest, ClassifierManifest):
        task.restore({"labels": list(manifest.labels)})
    if isinstance(manifest, ForecasterManifest) and isinstance(task, Forecasting):
        with np.load(folder / manifest.calibration.path, allow_pickle=False) as arrays:
            task.shipped = Calibration(arrays["levels"], arrays["errors"], manifest.calibration_examples)
        keys = ("channels", "mean", "scale", "frequency")
        task.restore({key: getattr(manifest, key) for key in keys})
    return task.measure([backend_run(graph, folder, device) for graph in manifest.graphs], data_dir)
