import pytest
import torch

from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig


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
