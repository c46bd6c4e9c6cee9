"""The runs below a folder: data, results, status, and how they differ."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifact.manifest import Result
from model.config.recipes import flat
from model.errors import UserError
from model.runs.evaluate import EVALUATION, PREDICTIONS
from model.runs.load import unfinished
from model.tasks import task_of
from model.tasks.base import FINGERPRINT
from model.training.checkpoint import BEST, LAST, load

ERRORS = ("mse", "mae", "mase")
"""Metrics of which a smaller value is better."""


@dataclass(frozen=True)
class Run:
    """What is known of a run."""

    folder: Path
    status: str
    task: str = ""
    data: str = ""
    """Name of the user's file, or of the data set."""
    same: tuple[str, ...] = ()
    """Equal for runs whose results can be compared: task, data and their fingerprint."""
    settings: dict[str, Any] | None = None
    """The recipe, as dotted keys; None if it cannot be read."""
    validation: str = ""
    """Metric and value that chose the model."""
    result: Result | None = None
    """The main result on the test split; None before the end of training."""

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name


def find_runs(folder: Path) -> list[Run]:
    """The runs below a folder, by task, data and name. Raises: UserError if there are none."""
    found = [read_run(path.parent) for path in folder.glob(f"*/{LAST}")]
    if not found:
        raise UserError(f"{folder} holds no run, which is a folder with {LAST}")
    return sorted(found, key=lambda run: (run.task, run.data, run.name))


def read_run(folder: Path) -> Run:
    """Read what is known of a run."""
    try:
        last = load(folder / LAST)
        status = "finished" if (folder / BEST).is_file() and not unfinished(folder) else "unfinished"
    except UserError:
        return Run(folder, "damaged")
    task, progress = task_of(last.config, last.facts), last.progress
    best = "" if progress.best is None else f"{task.metric} {progress.best:.4f}"
    data = Path(progress.data).name if progress.data else last.config.data.name
    same = (last.config.task, data, last.facts.get(FINGERPRINT, ""))
    settings = flat(last.config.to_dict())
    return Run(folder, status, last.config.task, data, same, settings, best, _main_result(folder, task.metric))


def _main_result(folder: Path, metric: str) -> Result | None:
    """The result with the validation metric, or the first one; None without an evaluation. Raises: UserError."""
    path = folder / EVALUATION
    if not path.is_file():
        return None
    try:
        results = [Result.model_validate(one) for one in json.loads(path.read_text())]
    except (TypeError, ValueError):
        raise UserError(f"{path} is damaged; remove it, and `evaluate {folder}` writes it again") from None
    return next((one for one in results if one.metric == metric), results[0] if results else None)


def differing(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Setting -> its value in each of the runs, for those that differ; without the name, which always does."""
    known = [run.settings or {} for run in runs]
    keys = dict.fromkeys(key for settings in known for key in settings if key != "name")
    values = {key: [str(settings.get(key, "")) for settings in known] for key in keys}
    return {key: found for key, found in values.items() if len(set(found)) > 1}


def best_of(runs: Sequence[Run]) -> dict[tuple[str, ...], Run]:
    """What can be compared -> the run with the best result on it, if there are several."""
    groups: dict[tuple[str, ...], list[tuple[float, Run]]] = {}
    for run in runs:
        if run.result is not None:
            sign = -1 if run.result.metric in ERRORS else 1
            groups.setdefault(_comparable(run, run.result), []).append((sign * run.result.value, run))
    return {same: max(found, key=lambda one: one[0])[1] for same, found in groups.items() if len(found) > 1}


def difference(run: Run, best: dict[tuple[str, ...], Run]) -> str:
    """How far the result of a run is from the best one, if both can be compared.

    With its standard error, if both runs have answered the same examples and the result is their accuracy.
    """
    if run.result is None or (other := best.get(_comparable(run, run.result))) is None or other is run:
        return ""
    assert other.result is not None
    text = f"{run.result.value - other.result.value:+.4f}"
    if run.result.metric != "accuracy":
        return text
    ours, theirs = _right(run.folder / PREDICTIONS), _right(other.folder / PREDICTIONS)
    if ours.keys() != theirs.keys() or not ours:
        return text
    paired: NDArray[np.float64] = np.array([float(ours[key]) - theirs[key] for key in ours])
    return f"{text} ± {paired.std() / np.sqrt(len(paired)):.4f}"


def _comparable(run: Run, result: Result) -> tuple[str, ...]:
    return (*run.same, result.metric, result.condition, str(result.examples))


def _right(path: Path) -> dict[tuple[str, ...], bool]:
    """Row, source and label of each test example -> whether the answer is right; empty without predictions."""
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream)
        return {(row["row"], row["source"], row["label"]): row["label"] == row["predicted"] for row in rows}
