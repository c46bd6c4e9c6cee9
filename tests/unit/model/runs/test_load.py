"""The model of a run as it is evaluated and exported."""

from pathlib import Path

import pytest
import torch

from model.data.own import DataFiles
from model.errors import UserError
from model.runs.load import find_run, load_trained, unfinished
from model.tasks.classification import ClassificationTask, PaperLearner
from model.training import checkpoint
from tests.support.commands import call, train


def test_best_checkpoint_is_loaded_in_eval_mode(tmp_path: Path) -> None:
    best = load_trained(train("synthetic", tmp_path, "training.epochs=1"), DataFiles())
    assert (best.task.config.name, best.progress.epoch) == ("synthetic", 1)
    assert best.task.facts["labels"] == ["minus", "plus"]
    assert not best.finished.model.training
    assert isinstance(best.task, ClassificationTask)
    learner = PaperLearner(best.task, best.data)
    assert learner.validate(best.finished.model, torch.device("cpu")) == best.progress.best


def test_error_names_the_missing_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^{tmp_path}/best.pt does not exist$"):
        load_trained(tmp_path, DataFiles())


def test_run_that_was_interrupted_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("synthetic", tmp_path, "training.epochs=1")
    assert find_run(tmp_path / "synthetic") == run
    assert unfinished(run) == ""
    config, progress, facts, state = checkpoint.load(run / "last.pt")
    longer = config.model_copy(update={"training": config.training.model_copy(update={"epochs": 3})})
    checkpoint.save(run / "last.pt", longer, progress, facts, state)
    warning = f"warning: {run} was interrupted after 1 of 3 epochs; --resume trains the others"
    assert unfinished(run) == warning
    for command in (("evaluate", run), ("export", run, "--out", tmp_path / "exports")):
        capsys.readouterr()
        assert call(*command, "--device", "cpu") == 0
        assert warning in capsys.readouterr().out.splitlines()
    (run / "best.pt").unlink()
    for folder in (run, tmp_path / "synthetic"):
        with pytest.raises(UserError, match=rf"^{run} has not finished training; repeat its `train` command with"):
            find_run(folder)
    (run / "last.pt").unlink()
    assert unfinished(run) == ""
