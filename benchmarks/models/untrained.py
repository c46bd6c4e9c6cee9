"""Exports a classifier of a recipe with random weights, to measure its speed."""

import tempfile
from pathlib import Path

import torch

from artifact.backends import create_backend
from artifact.backends.base import InferenceBackend
from model.cli.export import eager, write_graph
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ClassificationRun
from model.tasks.classification import Classification


def load(recipe: str, *overrides: str) -> InferenceBackend:
    """The classifier of two classes in ONNX Runtime. Overrides are those of `python -m model train --set`."""
    config = load_recipe(find_recipe(recipe), list(overrides))
    assert isinstance(config, ClassificationRun)
    task = Classification(config)
    task.restore({"labels": ["negative", "positive"]})
    torch.manual_seed(0)
    source = task.graphs(task.build().eval())[0]
    with tempfile.TemporaryDirectory() as folder:
        return create_backend(write_graph(source, eager(source), Path(folder)), Path(folder), device="cpu")
