"""Questions of reviewers."""

import torch

from benchmarks.papers.questions import LENGTH, draw_again
from model.config.encoder import EncoderConfig
from model.nn.attention.s3 import SkeletonAttention
from model.nn.classifier import ByteClassifier


def test_indices_are_drawn_again_in_every_layer() -> None:
    torch.manual_seed(0)
    model = ByteClassifier(EncoderConfig(mode="paper-masked", seq_len=LENGTH), 2)
    layers = [layer for layer in model.modules() if isinstance(layer, SkeletonAttention)]
    before = [(layer.rows.clone(), layer.columns.clone()) for layer in layers]
    draw_again(model, torch.Generator().manual_seed(1))
    assert len(layers) == 2
    for layer, (rows, columns) in zip(layers, before, strict=True):
        assert not torch.equal(layer.rows, rows)
        assert not torch.equal(layer.columns, columns)
        assert len(set(layer.rows.tolist())) == len(rows)
        assert int(layer.columns.max()) < layer.per_head[1]
