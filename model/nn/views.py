"""Text classifier with two views of a document: word n-grams, and word vectors in order.

Used by `model.tasks.views`.
"""

import torch
from torch import Tensor, nn

from model.config.models import ClassifierConfig
from model.nn.branch import Branch, Vocabulary
from model.nn.classifier import WordClassifier


class ViewClassifier(nn.Module):
    """Stem over word n-grams and branch over word vectors; their logits are combined by fitted weights.

    logits = a stem(document) + b branch(document) + c

    The words are found once, for both. Where the branch does not help, `has_branch` is false and b = 0.

    Shape:      document (B, N) uint8, zero-padded, N a multiple of the stem's patch_length and at most max_length;
                lengths (B,) int32; returns (B, classes).
    Reference:  weights fitted on held-out data: stacked generalisation, Wolpert 1992, Neural Networks 5(2).
    """

    weights: Tensor
    bias: Tensor

    def __init__(self, config: ClassifierConfig, num_classes: int) -> None:
        super().__init__()
        assert config.branch is not None
        self.stem = WordClassifier(config.stem_alone, num_classes)
        self.vocabulary = Vocabulary(config.branch.vectors.num_words)
        self.branch = Branch(config.encoder, config.branch, num_classes)
        self.has_branch = True
        self.register_buffer("weights", torch.ones(2))
        self.register_buffer("bias", torch.zeros(num_classes))

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Classify (B, N) bytes -> (B, classes) logits."""
        ngrams = self.stem.stem.ngrams(document, lengths)
        logits = self.weights[0] * self.stem.from_ngrams(ngrams, document, lengths) + self.bias
        if not self.has_branch:
            return logits
        hashes, doc_index, _ = ngrams
        rows = self.vocabulary(hashes[:, 0])
        return logits + self.weights[1] * self.branch(rows, doc_index, lengths, self.branch.width(document.shape[1]))  # type: ignore[no-any-return]

    @torch.no_grad()
    def quantise(self) -> None:
        """Fuse and quantise the tables. For export; ends training."""
        self.stem.quantise()
        self.branch.quantise()

    @torch.no_grad()
    def divide_logits(self, temperature: float) -> None:
        """Divide the logits by a temperature, folded into the weights."""
        self.weights.div_(temperature)
        self.bias.div_(temperature)
