"""`python -m model evaluate`: results on the test split, which nothing else reads."""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from artifact.backends import create_backend
from artifact.backends.base import Device
from artifact.manifest import (
    ClassifierManifest,
    ForecasterManifest,
    Graph,
    Manifest,
    Result,
    newest_version,
    read_manifest,
)
from artifact.series import Calibration
from model.config.run import from_dict
from model.errors import UserError
from model.tasks import task_of
from model.tasks.base import Run, module_runs
from model.tasks.forecasting import Forecasting
from model.training import checkpoint


def evaluate(args: argparse.Namespace) -> None:
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


def evaluate_run(folder: Path, data_dir: Path, device: str) -> tuple[Result, ...]:
    """Measure a run's best checkpoint with PyTorch."""
    config, _, facts, state = checkpoint.load(folder / "best.pt")
    task = task_of(config)
    task.restore(facts)
    model = task.build()
    checkpoint.load_weights(model, state, folder / "best.pt")
    model.eval()
    task.finish(model, data_dir)
    return task.measure(module_runs(task.graphs(model), choose_device(device)), data_dir)


def evaluate_export(manifest: Manifest, folder: Path, data_dir: Path, device: Device) -> tuple[Result, ...]:
    """Measure an export with the backend that serves it."""
    task = task_of(from_dict(manifest.training.recipe))
    if isinstance(manifest, ClassifierManifest):
        task.restore({"labels": list(manifest.labels)})
    if isinstance(manifest, ForecasterManifest) and isinstance(task, Forecasting):
        with np.load(folder / manifest.calibration.path, allow_pickle=False) as arrays:
            task.shipped = Calibration(arrays["levels"], arrays["errors"], manifest.calibration_examples)
        keys = ("channels", "mean", "scale", "frequency")
        task.restore({key: getattr(manifest, key) for key in keys})
    return task.measure([backend_run(graph, folder, device) for graph in manifest.graphs], data_dir)


def backend_run(graph: Graph, folder: Path, device: Device) -> Run:
    """A graph of an export, computed by the backend that serves it."""
    backend = create_backend(graph, folder, device=device)
    output = graph.outputs[0].name
    return lambda inputs: backend.run(inputs)[output]


def choose_device(name: str) -> torch.device:
    """Resolve `auto`; refuse `cuda` where there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no CUDA device is available")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
