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


@pytest.fixture
def config() -> RunConfig:
    return load_recipe(find_recipe("synthetic"))


def save(path: Path, config: RunConfig, state: dict[str, Any]) -> None:
    checkpoint.save(path, config, Progress(epoch=2, best=0.5, history=[{"epoch": 1.0}]), {"labels": ["a"]}, state)


def test_load_gives_what_was_saved(tmp_path: Path, config: RunConfig) -> None:
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


def test_save_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.pt"
    save(path, config, {"model": {}})
    before = path.read_bytes()

    def fill(_: object, partial: Path) -> None:
        partial.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", fill)
    with pytest.raises(OSError, match="no space left"):
        save(path, config, {"model": {}})
    assert path.read_bytes() == before


def test_checkpoint_with_an_older_recipe_is_read(tmp_path: Path, config: RunConfig) -> None:
    """Options of s3 in `model.encoder` itself."""
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
