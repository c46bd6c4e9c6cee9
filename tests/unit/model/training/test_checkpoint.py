from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from model.config.attentions import S3Options
from model.config.recipes import find_recipe, load_recipe
from model.config.run import RunConfig
from model.errors import UserError
from model.training import checkpoint
from model.training.checkpoint import Progress
from tests.support.disk import full_beyond


@pytest.fixture
def config() -> RunConfig:
    return load_recipe(find_recipe("synthetic"))


def save(path: Path, config: RunConfig, state: dict[str, Any]) -> None:
    checkpoint.save(path, config, Progress(epoch=2, best=0.5, history=[{"epoch": 1.0}]), {"labels": ["a"]}, state)


def test_load_returns_the_saved_state(tmp_path: Path, config: RunConfig) -> None:
    model = nn.Linear(2, 3)
    save(tmp_path / "last.pt", config, {"model": model.state_dict()})
    stored, progress, facts, state = checkpoint.load(tmp_path / "last.pt")
    assert stored == config
    assert progress == Progress(epoch=2, best=0.5, history=[{"epoch": 1.0}])
    assert facts == {"labels": ["a"]}
    other = nn.Linear(2, 3)
    checkpoint.load_weights(other, state, tmp_path / "last.pt")
    assert torch.equal(other.weight, model.weight)
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


def test_save_on_a_full_disk_keeps_the_old_file(tmp_path: Path, config: RunConfig) -> None:
    path = tmp_path / "last.pt"
    save(path, config, {"model": {}})
    before = path.read_bytes()
    with full_beyond(1000), pytest.raises(UserError, match=rf"^{path} cannot be written: "):
        save(path, config, {"model": {"weight": torch.zeros(1000)}})
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


def test_checkpoint_with_a_recipe_in_the_old_format_is_read(tmp_path: Path, config: RunConfig) -> None:
    """The options of s3 are directly in `model.encoder`."""
    path = tmp_path / "last.pt"
    save(path, config, {"model": {}})
    content = torch.load(path, weights_only=True)
    encoder = content["config"]["model"]["encoder"]
    encoder |= encoder.pop("options")
    assert encoder.keys() >= S3Options.model_fields.keys()
    torch.save(content, path)
    assert checkpoint.load(path)[0] == config


def test_weights_of_another_shape_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"last\.pt does not fit its own recipe: "):
        checkpoint.load_weights(nn.Linear(2, 3), {"model": nn.Linear(3, 3).state_dict()}, tmp_path / "last.pt")
    with pytest.raises(UserError, match=r"last\.pt does not fit its own recipe: "):
        checkpoint.load_weights(nn.Linear(2, 3), {}, tmp_path / "last.pt")
