from pathlib import Path
from typing import Any

import pytest

from model.config.recipes import load_recipe

RECIPE = """
name = "tiny"
task = "text-classification"
seed = 3

[data]
name = "synthetic"

[model]
kind = "paper"

[model.encoder]
seq_len = 64
dim = 16

[model.encoder.dropout]
hidden = 0.1

[training]
epochs = 2
batch_size = 4
learning_rate = 1
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def table(recipe: Path) -> dict[str, Any]:
    return load_recipe(recipe).to_dict()
