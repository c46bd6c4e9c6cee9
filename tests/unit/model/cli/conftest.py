"""A run, its export and its manifest."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx_ir
import pytest
import torch
from torch import nn

import model.cli.export
from artifact.exports import read_manifest
from artifact.tasks.classification import ClassifierManifest
from model.tasks.base import ExportGraph
from tests.support.commands import export, train
from tests.support.shared import made_once


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short training run."""
    runs = made_once(tmp_path_factory, "synthetic", lambda folder: train("synthetic", folder, "training.epochs=1"))
    return runs / "synthetic-seed0"


@contextmanager
def tracing_once(run: Path, factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trace each ONNX program of a run in its first export only; everything else in an export runs each time."""
    trace = model.cli.export.onnx_program

    def traced(source: ExportGraph, module: nn.Module) -> torch.onnx.ONNXProgram:
        name = f"{run.parent.name} {source.name} {'fixed' if module is source.fixed else 'general'}"
        folder = made_once(
            factory, name, lambda folder: trace(source, module).save(folder / "program.onnx", external_data=False)
        )
        return torch.onnx.ONNXProgram(onnx_ir.load(folder / "program.onnx"), None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.cli.export, "onnx_program", traced)
        yield


def exported_once(run: Path, factory: pytest.TempPathFactory) -> Path:
    """Export a run as version 1, once."""

    def make(folder: Path) -> None:
        with tracing_once(run, factory):
            export(run, folder)

    (folder,) = made_once(factory, f"{run.parent.name} exported", make).glob("*/1")
    return folder


@pytest.fixture
def traced_once(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For tests that export the run again: tracing takes most of an export, and gives the same program."""
    with tracing_once(run, tmp_path_factory):
        yield


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of the run as version 1."""
    return exported_once(run, tmp_path_factory)


@pytest.fixture(scope="module")
def manifest(exported: Path) -> ClassifierManifest:
    manifest = read_manifest(exported)
    assert isinstance(manifest, ClassifierManifest)
    return manifest
