"""A small encoder and documents for it; a run, its export and its manifest."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import onnx_ir
import pytest
import torch
from torch import nn

import model.export.graphs
import model.runs.evaluate
from artifact.exports import read_manifest
from artifact.tasks.classification import ClassifierManifest
from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.tasks.graphs import ExportGraph
from tests.support.commands import export, train
from tests.support.shared import made_once


@pytest.fixture
def without_files_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the file with fixed shapes, whose tracing takes half of an export; for tests of other things."""
    write = model.export.graphs._write_onnx_files

    def write_one(source: ExportGraph, folder: Path, *others: Path) -> tuple[Path, Path]:
        return write(replace(source, fixed=None), folder, *others)

    monkeypatch.setattr(model.export.graphs, "_write_onnx_files", write_one)
    monkeypatch.setattr(model.export.graphs, "check_operators", lambda _: None)


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure runs, but write no report, whose figures take a third of a short training; for tests of other things."""
    monkeypatch.setattr(model.runs.evaluate, "write_report", lambda *_: None)


@pytest.fixture
def config() -> EncoderConfig:
    """A small encoder as published; all its sizes differ."""
    return EncoderConfig(
        mode="paper",
        seq_len=24,
        dim=12,
        num_heads=2,
        num_layers=2,
        ffn_dim=20,
        options=S3Options(num_segments=3, num_rows=5, num_columns=4),
    )


@pytest.fixture
def documents(config: EncoderConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Five documents, from 1 byte to the full length, padded with zeros."""
    lengths = torch.tensor([1, 7, 24, 13, 24], dtype=torch.int32)
    document = torch.randint(0, 256, (5, config.seq_len), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    return document * (torch.arange(config.seq_len) < lengths[:, None]), lengths


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short training run."""
    runs = made_once(tmp_path_factory, "synthetic", lambda folder: train("synthetic", folder, "training.epochs=1"))
    return runs / "synthetic-seed0"


@contextmanager
def tracing_once(run: Path, factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trace each ONNX program of a run in its first export only; everything else in an export runs each time."""
    trace = model.export.graphs.onnx_program

    def traced(source: ExportGraph, module: nn.Module) -> torch.onnx.ONNXProgram:
        kind = "fixed" if module is source.fixed else "general"
        name = f"{run.parent.name} {source.name} {kind} {source.buckets[0]}-{source.buckets[-1]}"
        folder = made_once(
            factory, name, lambda folder: trace(source, module).save(folder / "program.onnx", external_data=False)
        )
        return torch.onnx.ONNXProgram(onnx_ir.load(folder / "program.onnx"), None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.export.graphs, "onnx_program", traced)
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
