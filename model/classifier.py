"""Text classifier on top of the encoder. Used by `model.train` and `model.export`."""

from torch import Tensor, nn

from model.config import EncoderConfig
from model.encoder import ByteEncoder

HEAD_DIM = 128


class TextClassifier(nn.Module):
    """Encoder, mean over positions, two-layer head.

    logits = W_2 relu(W_1 mean_n(encoder(x)))

    Shape:      document (B, N) uint8; lengths (B,) int32; returns (B, classes).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. IV-A; the head is that of the published LRA code.
    Note:       as published, padding is an ordinary input to smoother, attention and mean.
    """

    def __init__(self, config: EncoderConfig, num_classes: int) -> None:
        super().__init__()
        self.encoder = ByteEncoder(config)
        self.head = nn.Sequential(nn.Linear(config.dim, HEAD_DIM), nn.ReLU(), nn.Linear(HEAD_DIM, num_classes))

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Classify (B, N) bytes -> (B, classes) logits."""
        return self.head(self.encoder(document, lengths).mean(dim=1))  # type: ignore[no-any-return]
