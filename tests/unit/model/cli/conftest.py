"""A run, its export and its manifest."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

import model.cli.export
from artifact.exports import read_manifest
from artifact.tasks.classification import ClassifierManifest
from model.tasks.base import ExportGraph
from tests.support.commands import export, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short training run."""
    return train("synthetic", tmp_path_factory.mktemp("runs"), "training.epochs=1")


@pytest.fixture(scope="module")
def programs(run: Path) -> dict[tuple[str, bool], torch.onnx.ONNXProgram]:
    """ONNX programs of the run that have been traced so far, by graph and whether it is the one for CUDA."""
    del run  # an argument, so that each run gets its own dictionary
    return {}


@contextmanager
def tracing_once(programs: dict[tuple[str, bool], torch.onnx.ONNXProgram]) -> Iterator[None]:
    """Trace each ONNX program of a run only in its first export; everything else in an export runs each time."""
    trace = model.cli.export.onnx_program

    def traced(source: ExportGraph, module: nn.Module) -> torch.onnx.ONNXProgram:
        key = (source.name, module is source.fixed)
        if key not in programs:
            programs[key] = trace(source, module)
        return programs[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.cli.export, "onnx_program", traced)
        yield


@pytest.fixture
def traced_once(programs: dict[tuple[str, bool], torch.onnx.ONNXProgram]) -> Iterator[None]:
    """For tests that export the run again: tracing takes most of an export, and gives the same program."""
    with tracing_once(programs):
        yield


@pytest.fixture(scope="module")
def exported(
    run: Path, programs: dict[tuple[str, bool], torch.onnx.ONNXProgram], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The export of the run as version 1."""
    with tracing_once(programs):
        return export(run, tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="module")
def manifest(exported: Path) -> ClassifierManifest:
    manifest = read_manifest(exported)
    assert isinstance(manifest, ClassifierManifest)
    return manifest
