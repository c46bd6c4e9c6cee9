"""The model of a run as it is evaluated and exported."""

from pathlib import Path

import pytest
import torch

from model.errors import UserError
from model.training.trained import load_trained
from tests.support.commands import train


def test_best_checkpoint_is_loaded_in_eval_mode(tmp_path: Path) -> None:
    best = load_trained(train("synthetic", tmp_path, "training.epochs=1"), Path("absent"))
    assert (best.config.name, best.progress.epoch) == ("synthetic", 1)
    assert best.task.facts["labels"] == ["minus", "plus"]
    assert not best.model.training
    best.task.load(Path("absent"))
    assert best.task.validate(best.model, torch.device("cpu")) == best.progress.best


def test_error_names_the_missing_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^{tmp_path}/best.pt does not exist$"):
        load_trained(tmp_path, Path("absent"))
