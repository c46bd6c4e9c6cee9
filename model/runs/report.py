"""Reports of a run and of an export: where the model is from, what was measured, and what it predicts."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from artifact.backends import create_backend
from artifact.backends.base import Device
from artifact.manifest import ExportManifest
from model.config.recipes import flat
from model.report.page import Report
from model.runs.load import Trained
from model.tasks.base import BASELINE, FINGERPRINT, KIND, LENGTH, Measurement, TrainingTask
from model.tasks.graphs import module_outputs
from model.tasks.predictions import AllOutputs
from model.tasks.two_views import NGRAMS
from model.training.checkpoint import METRICS, Progress


def report_of_run(folder: Path, best: Trained, measured: Measurement, device: torch.device) -> Report:
    """The report of a run, which has a learning curve."""
    main, progress, task = best.finished.graphs[0], best.progress, best.task

    def compute(inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        return module_outputs(main.module, [inputs[name] for name in main.golden], device)

    return _report(task, measured, compute, _facts_of_run(task, progress), read_metrics(folder))


def report_of_export(
    task: TrainingTask[Any, Any, Any], manifest: ExportManifest, measured: Measurement, folder: Path, device: Device
) -> Report:
    """The report of an export."""
    backend = create_backend(manifest.graphs[0], folder, device=device)
    names = [spec.name for spec in manifest.outputs]

    def compute(inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        found = backend.run(inputs)
        return [found[name] for name in names]

    training = manifest.training
    facts = {
        "version": str(manifest.version),
        "data": training.data,
        "fingerprint of the data": training.data_sha256 or "",
        "terms of the data": manifest.data_terms,
        f"validation {training.validation.metric}": f"{training.validation.value:.4f}",
        "device": training.device,
        "training": f"{training.seconds:,.0f} seconds",
        "revision of the code": training.revision,
    }
    return _report(task, measured, compute, facts, [])


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The records of the epochs or stages of a run; empty before the first."""
    path = folder / METRICS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _report(
    task: TrainingTask[Any, Any, Any],
    measured: Measurement,
    compute: AllOutputs,
    facts: Mapping[str, str],
    history: Sequence[Mapping[str, Any]],
) -> Report:
    return Report(
        name=task.config.name,
        task=task.config.task,
        results=measured.results,
        notes=measured.notes,
        facts=facts,
        settings=flat(task.recipe.to_dict()),
        predictions=measured.predictions,
        explain=lambda example: task.stretches(compute, example),
        metric=task.metric,
        history=history,
    )


def _facts_of_run(task: TrainingTask[Any, Any, Any], progress: Progress) -> dict[str, str]:
    """Where the model of a run is from."""
    baseline = task.facts.get(BASELINE)
    return {
        "data": progress.data or task.config.data.name,
        "validation file": progress.validation,
        "test file": progress.test,
        "fingerprint of the data": task.facts.get(FINGERPRINT, ""),
        "terms of the data": task.terms()[0],
        f"validation {task.metric}": "" if progress.best is None else f"{progress.best:.4f}",
        f"validation {task.metric} of the baseline": f"{baseline['value']:.4f}, {baseline['name']}" if baseline else "",
        "words or bytes": task.facts.get(KIND, {}).get("reason", ""),
        "windows or whole": task.facts.get(LENGTH, {}).get("reason", ""),
        "n-gram view": task.facts.get(NGRAMS, {}).get("reason", ""),
        "device": progress.device,
        "training": f"{progress.seconds:,.0f} seconds",
        "revision of the code": progress.revision,
    }
