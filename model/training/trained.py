"""Loads what was trained: the best checkpoint of a run, or an export."""

import glob
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from artifact.manifest import ExportManifest
from artifact.series import Calibration
from artifact.tasks.classification import ClassifierManifest
from artifact.tasks.forecasting import ForecasterManifest
from model.config.data import OWN
from model.config.run import RunConfig
from model.config.stored import from_stored
from model.data.own import NO_FILES, HeldOut
from model.errors import UserError
from model.tasks import task_of
from model.tasks.base import FINGERPRINT, Task, TextTask
from model.tasks.forecasting import Forecasting
from model.training import checkpoint
from model.training.checkpoint import Progress

CHECKPOINTS = ("best.pt", "last.pt")
"""Files by which the folder of a run is known; it has no best.pt before its first model."""


@dataclass(frozen=True)
class Trained:
    """Best checkpoint of a run: the model is on the CPU, calibrated and in evaluation mode."""

    config: RunConfig
    progress: Progress
    task: Task[Any]
    model: nn.Module
    data: Path
    """Folder of the data sets, or the file or folder of user data that the run was trained on."""
    final: nn.Module | None = None
    """Model that was trained on all rows, if the recipe asks for it; to be exported instead of `model`."""


def find_run(folder: Path) -> Path:
    """Folder of a run, which may be given without `-seedN` if there is one seed.

    Raises: UserError, also if the run has no model yet.
    """
    found = [folder]
    if not folder.exists():
        pattern = f"{glob.escape(folder.name)}-seed*"
        found = sorted({path.parent for name in CHECKPOINTS for path in folder.parent.glob(f"{pattern}/{name}")})
        if len(found) > 1:
            raise UserError(f"{folder} has several runs; choose one of {', '.join(map(str, found))}")
        if not found:
            raise UserError(f"{folder} does not exist{_others(folder.parent)}")
    if (found[0] / "last.pt").is_file() and not (found[0] / "best.pt").is_file():
        raise UserError(f"{found[0]} has not finished training; repeat its `train` command with --resume")
    return found[0]


def unfinished(folder: Path) -> str:
    """Warning about a run that was interrupted; empty if it has ended."""
    path = folder / "last.pt"
    if not path.is_file():
        return ""
    config, progress, _, _ = checkpoint.load(path)
    if progress.epoch >= config.training.epochs:
        return ""
    return (
        f"warning: {folder} was interrupted after {progress.epoch} of {config.training.epochs} epochs; --resume trains "
        "the others"
    )


def _others(folder: Path) -> str:
    """The run folders and exports in a folder, for an error."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    return f"; in {folder} there are {', '.join(names)}" if names else ""


def load_trained(
    folder: Path, data: Path, *, is_own: bool = True, held_out: HeldOut = NO_FILES, may_be_new: bool = False
) -> Trained:
    """Load best.pt of a run folder.

    Args:
        folder: folder of the run.
        data: calibration data: the folder of the data sets, or a file or folder of user data.
        is_own: whether `data` is user data; if not, a run on user data reads the files that it was trained on.
        held_out: files of validation and test, if they have moved since training.
        may_be_new: whether `data` may be other user data than that of training; the task then measures all its rows.

    Raises: UserError naming the file.

    """
    path = folder / "best.pt"
    config, progress, facts, state = checkpoint.load(path)
    task = task_of(config)
    task.restore(facts)
    if config.data.name in OWN:
        if is_own and may_be_new and is_new(task, data, facts.get(FINGERPRINT, "")):
            task.test_file, is_own = data, False
        data = data if is_own else Path(progress.data)
        task.held_out = HeldOut(
            held_out.validation or _path(progress.validation), held_out.test or _path(progress.test)
        )
        _check_files(config.name, data, task.held_out)
    model = task.build()
    checkpoint.load_weights(model, state, path)
    model.eval()
    task.finish(model, data)
    final = None
    if isinstance(task, TextTask) and task.config.data.final_fit:
        final = _load_final(folder / checkpoint.FINAL, task)
    return Trained(config, progress, task, model, data, final)


def _load_final(path: Path, task: TextTask[Any]) -> nn.Module:
    """Load the model that was trained on all rows and finish it like the best one. Raises: UserError."""
    if not path.is_file():
        raise UserError(f"{path} does not exist; train with --resume to fit it")
    model = task.build()
    checkpoint.load_weights(model, checkpoint.load(path)[3], path)
    model.eval()
    task.finish_final(model)
    return model


def is_new(task: Task[Any], path: Path, fingerprint: str) -> bool:
    """Whether a file has other rows than the user data with this fingerprint; False for an unknown fingerprint."""
    return fingerprint != "" and task.fingerprint(path) != fingerprint


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _check_files(name: str, data: Path, held_out: HeldOut) -> None:
    """Check that the files of a run exist. Raises: UserError naming the option that gives the new place."""
    for option, path in (("--data", data), ("--validation", held_out.validation), ("--test", held_out.test)):
        if path is not None and not path.exists():
            raise UserError(f"{name} was trained on {path}, which does not exist; give its new place with {option}")


def refuse_own(config: RunConfig) -> None:
    """Refuse to evaluate an export without --data if it was trained on user data. Raises: UserError.

    Exports do not store the path of their training data.
    """
    if config.data.name in OWN:
        raise UserError(f"{config.name} was trained on data of your own; pass it, or a held-out file, with --data")


def task_of_export(manifest: ExportManifest, folder: Path) -> Task[Any]:
    """Create the task of an export, with the facts and the calibration stored in it."""
    task = task_of(from_stored(manifest.training.recipe))
    if isinstance(manifest, ClassifierManifest):
        task.restore({"labels": list(manifest.labels)})
    if isinstance(manifest, ForecasterManifest) and isinstance(task, Forecasting):
        with np.load(folder / manifest.calibration.path, allow_pickle=False) as arrays:
            task.shipped = Calibration(arrays["levels"], arrays["errors"], manifest.calibration_examples)
        task.restore({key: getattr(manifest, key) for key in ("channels", "mean", "scale", "frequency")})
    return task
