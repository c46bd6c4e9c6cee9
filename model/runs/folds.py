"""Cross-validation of a whole training: a model for each fold, measured on documents that it has not seen."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from artifact.arrays import Doubles
from model.data.documents import DocumentSet
from model.data.own import DataFiles
from model.errors import UserError, writing
from model.runs.load import finished_run
from model.tasks.classification import ClassificationTask
from model.tasks.comparison import difference
from model.tasks.graphs import module_functions
from model.tasks.link import SOFTMAX, Outputs
from model.training.checkpoint import RunFolder
from model.training.stages import run_stages

FOLDS_FILE = "folds.json"
"""File of a run folder: what cross-validation measured."""


class Fold(NamedTuple):
    """Outputs for the held-out documents of a fold."""

    ours: Outputs
    baseline: Outputs | None
    labels: NDArray[np.int64]
    groups: tuple[str, ...]


def cross_validate(
    task: ClassificationTask, data: DocumentSet, folder: RunFolder, files: DataFiles, count: int
) -> None:
    """Train on all folds but one of the training and validation documents, and measure on this one; for each fold.

    Prints the results with the paired difference to TF-IDF, which is tuned for each fold, too, and writes folds.json.
    The models stay in fold-1 and so on, where a resumed run finds them. The test split is not used.

    Raises: UserError.
    """
    if data.has_several_labels:
        raise UserError(f"--folds {count}: cross-validation of documents of any number of labels is not offered")
    config = task.config.model_copy(update={"data": task.config.data.model_copy(update={"final_fit": False})})
    task, found = replace(task, config=config), list[Fold]()
    for number, fold in enumerate(data.folds(count), 1):
        if len(set(fold.train.labels)) < 2:
            raise UserError(f"--folds {count}: fold {number} has only one label to learn from; choose another number")
        print(f"fold {number}: {len(fold.train)} training and {len(fold.test)} held-out documents", flush=True)
        found.append(_measure(task, fold, replace(folder, path=folder.path / f"fold-{number}", config=config), files))
        print(f"fold {number}: {_summary(task, found[-1:])[0]}", flush=True)
    joined, record = _summary(task, found)
    print(f"{len(found)} folds, {sum(len(fold.labels) for fold in found)} documents: {joined}")
    with writing(path := folder.path / FOLDS_FILE):
        folds = [_summary(task, [fold])[1] for fold in found]
        path.write_text(json.dumps({"folds": folds, "all": record}, indent=2) + "\n")


def _measure(task: ClassificationTask, fold: DocumentSet, folder: RunFolder, files: DataFiles) -> Fold:
    """Train on a fold, and compute the outputs of the model and of its baseline for the test split."""
    baseline = task.baseline(fold)
    run_stages(task.stages(fold), folder, task.metric)
    trained = finished_run(folder.path, files, fold)
    assert isinstance(trained.task, ClassificationTask)
    (function,) = module_functions(trained.finished.graphs, torch.device("cpu"))
    texts, labels = fold.test.texts, np.array(fold.test.labels)
    scores = None if baseline is None else baseline.scores(texts)
    return Fold(trained.task.document_logits(function, texts), scores, labels, fold.test.groups)


def _summary(task: ClassificationTask, folds: Sequence[Fold]) -> tuple[str, dict[str, float]]:
    """Results on the documents of some folds together, in words and as numbers."""
    ours, labels = _joined([fold.ours for fold in folds]), np.concatenate([fold.labels for fold in folds])
    record = {"documents": len(labels), **SOFTMAX.report(ours, labels)}
    text = f"accuracy {record['accuracy']:.4f}, macro F1 {record['macro_f1']:.4f}"
    theirs = [fold.baseline for fold in folds if fold.baseline is not None]
    if len(theirs) < len(folds):
        return text, record
    scores = _joined(theirs)
    record |= {f"baseline_{name}": value for name, value in SOFTMAX.report(scores, labels).items()}
    found = difference(task.value, ours, scores, labels, [group for fold in folds for group in fold.groups])
    record |= {f"{task.metric}_difference": found.value, f"{task.metric}_difference_error": found.error}
    text += f"; tuned TF-IDF {record['baseline_accuracy']:.4f}, {record['baseline_macro_f1']:.4f}"
    return f"{text}; difference in {task.metric} {found}{', which is behind' if found.is_behind else ''}", record


def _joined(outputs: Sequence[Outputs]) -> Doubles:
    return np.concatenate([part.astype(np.float64) for part in outputs])
