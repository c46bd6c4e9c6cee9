"""Run `python -m model` inside the test process, which saves the seconds that each import of PyTorch takes."""

import sys
from pathlib import Path

import pytest

from model.__main__ import main
from model.config.recipes import find_recipe, load_recipe


def call(*arguments: object) -> int:
    """Run one command and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["model", *map(str, arguments)])
        return main()


def run_command(*words: str, data_dir: Path, threads: int | None = None) -> None:
    """Run one command as `benchmarks.models.runs.run_command` does, but with the threads of this process."""
    del threads
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LONGDOC_DATA", str(data_dir.resolve()))
        assert call(*words) == 0


def train(recipe: str | Path, runs: Path, *settings: str) -> Path:
    """Train on the CPU and return the folder of the run."""
    config = load_recipe(find_recipe(str(recipe)), list(settings))
    words = [word for setting in settings for word in ("--set", setting)]
    assert call("train", recipe, "--runs", runs, "--device", "cpu", *words) == 0
    return runs / f"{config.name}-seed{config.seed}"


def export(run: Path, out: Path) -> Path:
    """Export a run on the CPU as version 1 and return the folder of the export."""
    assert call("export", run, "--out", out, "--device", "cpu") == 0
    (folder,) = out.glob("*/1")
    return folder
