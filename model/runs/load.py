"""Loads what was trained: the best checkpoint of a run, or an export; with the data that it is evaluated on."""

import glob
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from artifact.manifest import ExportManifest
from model.config.data import OWN
from model.config.stored import from_stored
from model.data.own import DataFiles
from model.errors import UserError
from model.tasks import task_of
from model.tasks.base import FINGERPRINT, SPLITS, Finished, TrainingTask
from model.training.checkpoint import BEST, FINAL, LAST, Progress, load, load_weights


@dataclass(frozen=True, kw_only=True)
class Evaluable:
    """A task with the data that are measured."""

    task: TrainingTask[Any, Any, Any]
    data: Any
    """In splits, as the task loads it."""
    files: DataFiles
    file: Path | None = None
    """File of user data other than the training data; all of its rows are measured."""


@dataclass(frozen=True, kw_only=True)
class Trained(Evaluable):
    """Best checkpoint of a run, finished for evaluation and export."""

    progress: Progress
    finished: Finished


def find_run(folder: Path) -> Path:
    """Folder of a run, which may be given without `-seedN` if there is one seed.

    Raises: UserError, also if the run has no model yet.
    """
    found = [folder]
    if not folder.exists():
        pattern = f"{glob.escape(folder.name)}-seed*"
        found = sorted({path.parent for name in (BEST, LAST) for path in folder.parent.glob(f"{pattern}/{name}")})
        if len(found) > 1:
            raise UserError(f"{folder} has several runs; choose one of {', '.join(map(str, found))}")
        if not found:
            raise UserError(f"{folder} does not exist{_others(folder.parent)}")
    if (found[0] / LAST).is_file() and not (found[0] / BEST).is_file():
        raise UserError(f"{found[0]} has not finished training; repeat its `train` command with --resume")
    return found[0]


def unfinished(folder: Path) -> str:
    """Warning about a run that was interrupted; empty if it has ended."""
    path = folder / LAST
    if not path.is_file():
        return ""
    last = load(path)
    epochs = last.config.training.epochs
    if last.progress.epoch >= epochs or last.progress.is_stuck:
        return ""
    return (
        f"warning: {folder} was interrupted after {last.progress.epoch} of {epochs} epochs; --resume trains the others"
    )


def _others(folder: Path) -> str:
    """The run folders and exports in a folder, for an error."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    return f"; in {folder} there are {', '.join(names)}" if names else ""


def load_trained(folder: Path, files: DataFiles, *, may_be_new: bool = False) -> Trained:
    """Load best.pt of a run folder, and finish its model.

    Args:
        folder: folder of the run.
        files: where the data are; user data that are not given are read from where they were in training.
        may_be_new: whether `files.data` may be other user data than that of training, all of which is then measured.

    Raises: UserError naming the file.

    """
    best = load(folder / BEST)
    task, test = task_of(best.config, best.facts), None
    task.check_code(folder / BEST)
    given = files.data
    if best.config.data.name in OWN:
        files = _with_stored(files, best.progress)
        _check_files(best.config.name, files)
    source = task.read(files, is_new=may_be_new)
    if may_be_new and is_new(task, source, best.facts.get(FINGERPRINT, "")):
        test, stored = source, DataFiles(data=Path(best.progress.data))
        _check_files(best.config.name, stored)
        source = task.read(stored).with_held_out(test)
    data = task.load(source)
    task, finished = _finished(task, folder, best.state, data)
    if test is not None:
        data = task.with_test(data, test)
    file = None if test is None else given
    return Trained(task=task, data=data, files=files, file=file, progress=best.progress, finished=finished)


def finished_run(folder: Path, files: DataFiles, data: Any) -> Trained:
    """The best checkpoint of a run that was trained on these data, finished. Raises: UserError naming the file."""
    best = load(folder / BEST)
    task = task_of(best.config, best.facts)
    task, finished = _finished(task, folder, best.state, data)
    return Trained(task=task, data=data, files=files, progress=best.progress, finished=finished)


def _finished(
    task: TrainingTask[Any, Any, Any], folder: Path, state: dict[str, Any], data: Any
) -> tuple[TrainingTask[Any, Any, Any], Finished]:
    """The task with the facts that the calibration gives, and the finished model of the run.

    Raises: UserError.
    """
    model, final = task.build(), None
    load_weights(model, state, folder / BEST)
    if getattr(task.config.data, "final_fit", False):
        if not (path := folder / FINAL).is_file():
            raise UserError(f"{path} does not exist; train with --resume to fit it")
        final = task.build()
        load_weights(final, load(path).state, path)
        final.eval()
    finished = task.finish(model.eval(), final, data)
    return task.knowing(**finished.facts), finished


def is_new(task: TrainingTask[Any, Any, Any], source: Any, fingerprint: str) -> bool:
    """Whether user data are not those with this fingerprint; False for an unknown fingerprint."""
    return fingerprint != "" and task.fingerprint(source) != fingerprint


def _with_stored(files: DataFiles, progress: Progress) -> DataFiles:
    """The files of a run, except those that are given."""
    stored = {name: Path(text) for name in ("data", "validation", "test") if (text := getattr(progress, name))}
    given = {name: path for name in stored if (path := getattr(files, name)) is not None}
    return replace(files, **{**stored, **given})


def _check_files(name: str, files: DataFiles) -> None:
    """Check that the files of a run exist. Raises: UserError naming the option that gives the new place."""
    for option, path in (("--data", files.data), ("--validation", files.validation), ("--test", files.test)):
        if path is not None and not path.exists():
            raise UserError(f"{name} was trained on {path}, which does not exist; give its new place with {option}")


def load_exported(manifest: ExportManifest, folder: Path, files: DataFiles) -> Evaluable:
    """Load the task of an export and the data on which it is evaluated.

    Raises: UserError if its test split is not a part of `files.data`, the file that it was trained on; if that file has
        other splits now; or if it was trained on user data and none are given, because exports do not store their path.
    """
    task = task_of_export(manifest, folder)
    config = task.config.data
    if config.name not in OWN:
        return Evaluable(task=task, data=task.load(task.read(files)), files=files)
    if files.data is None:
        raise UserError(f"{manifest.name} was trained on data of your own; pass it, or a held-out file, with --data")
    source = task.read(files, is_new=True)
    if is_new(task, source, manifest.training.data_sha256 or ""):
        return Evaluable(task=task, data=task.with_test(None, source), files=files, file=files.data)
    if getattr(config, "final_fit", False):
        raise UserError(
            f"{manifest.name} was trained on all rows of {files.data}; give a held-out file, or evaluate the run"
        )
    if getattr(config, "validation_file", False) or getattr(config, "test_file", False):
        raise UserError(f"{manifest.name} was trained on {files.data}; give its test file, or evaluate the run")
    if splits := manifest.training.splits_sha256:
        task = task.knowing(**{SPLITS: splits})
    return Evaluable(task=task, data=task.load(source), files=files)


def task_of_export(manifest: ExportManifest, folder: Path) -> TrainingTask[Any, Any, Any]:
    """Create the task of an export, with the facts and the calibration stored in it."""
    return task_of(from_stored(manifest.training.recipe)).of_export(manifest, folder)
