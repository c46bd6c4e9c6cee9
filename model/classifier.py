"""Text classifier on top of the encoder. Used by `model.train` and `model.export`."""

import torch
from torch import Tensor, nn

from model.config import EncoderConfig
from model.encoder import ByteEncoder

HEAD_DIM = 128


class TextClassifier(nn.Module):
    """Encoder, mean over positions, two-layer head.

    logits = W_2 relu(W_1 mean_n(encoder(x)))

    Shape:      document (B, N) uint8; lengths (B,) int32; returns (B, classes).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. IV-A; the head is that of the published LRA code.
    Deviates:   the head is initialised from data (`standardise_head`); its shape is unchanged.
    Note:       as published, padding is an ordinary input to smoother, attention and mean.
    """

    def __init__(self, config: EncoderConfig, num_classes: int) -> None:
        super().__init__()
        self.encoder = ByteEncoder(config)
        self.head = nn.Sequential(nn.Linear(config.dim, HEAD_DIM), nn.ReLU(), nn.Linear(HEAD_DIM, num_classes))

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Classify (B, N) bytes -> (B, classes) logits."""
        return self.head(self.encoder(document, lengths).mean(dim=1))  # type: ignore[no-any-return]

    @torch.no_grad()
    def standardise_head(self, document: Tensor, lengths: Tensor) -> None:
        """Scale and shift the head's first layer so that its inputs have mean 0 and deviation 1 on these documents.

        The means over positions of two documents hardly differ; from the usual initialisation the classifier stays
        at chance for thousands of steps.

        Shape:      document (B, N) uint8; lengths (B,) int32; B of some hundreds.
        Reference:  Salimans and Kingma 2016, arXiv:1602.07868, sec. 3 (data-dependent initialisation).
        """
        pooled = self.encoder(document, lengths).mean(dim=1)  # (B, C)
        first = self.head[0]
        assert isinstance(first, nn.Linear)
        first.weight /= pooled.std(dim=0)
        first.bias.copy_(-first.weight @ pooled.mean(dim=0))
