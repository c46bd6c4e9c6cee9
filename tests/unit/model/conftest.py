from dataclasses import replace
from pathlib import Path

import pytest
import torch

import model.cli.export
from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.tasks.base import ExportGraph


@pytest.fixture
def without_files_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the file with fixed shapes, whose tracing takes half of an export; for tests of other things."""
    write = model.cli.export._write_onnx_files

    def write_one(source: ExportGraph, folder: Path, *others: Path) -> tuple[Path, Path]:
        return write(replace(source, fixed=None), folder, *others)

    monkeypatch.setattr(model.cli.export, "_write_onnx_files", write_one)
    monkeypatch.setattr(model.cli.export, "check_operators", lambda _: None)


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
