"""Text classifier with two views of a document: its word n-grams, and its word vectors in order.

Used by `model.tasks.views`.
"""

import torch
from torch import Tensor, nn

from model.config.models import ClassifierConfig
from model.nn.classifier import WordClassifier
from model.nn.vectors import VectorClassifier
from model.nn.vocabulary import Vocabulary


class ViewClassifier(nn.Module):
    """Classifier over word n-grams and classifier over word vectors; fitted weights combine their logits.

    logits = a ngram_view(document) + b vector_view(document) + c

    a and b are `weights`, c is `bias`. The words are found once, for both views. If the word vectors do not help,
    `has_vector_view` is false and b = 0.

    Shape:      document (B, N) uint8, zero-padded, N a multiple of the stem's patch_length and at most max_length;
                lengths (B,) int32; returns (B, classes).
    Reference:  weights fitted on held-out data: stacked generalisation, Wolpert 1992, Neural Networks 5(2).
    """

    weights: Tensor
    bias: Tensor

    def __init__(self, config: ClassifierConfig, num_classes: int) -> None:
        super().__init__()
        assert config.vector_view is not None
        self.ngram_view = WordClassifier(config.ngram_view, num_classes)
        self.vocabulary = Vocabulary(config.vector_view.vectors.num_words)
        self.vector_view = VectorClassifier(config.encoder, config.vector_view, num_classes)
        self.has_vector_view = True
        self.register_buffer("weights", torch.ones(2))
        self.register_buffer("bias", torch.zeros(num_classes))

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Classify (B, N) bytes -> (B, classes) logits."""
        ngrams = self.ngram_view.stem.ngrams(document, lengths)
        logits = self.weights[0] * self.ngram_view.from_ngrams(ngrams, document, lengths) + self.bias
        if not self.has_vector_view:
            return logits
        hashes, doc_index, _ = ngrams
        words = self.vocabulary(hashes[:, 0])
        return logits + self.weights[1] * self.vector_view(words, doc_index, lengths)  # type: ignore[no-any-return]

    @torch.no_grad()
    def quantise(self) -> None:
        """Fuse and quantise the tables. For export; the model cannot be trained after it."""
        self.ngram_view.quantise()
        self.vector_view.quantise()

    @torch.no_grad()
    def divide_logits(self, temperature: float) -> None:
        """Divide the logits by a temperature, folded into the weights."""
        self.weights.div_(temperature)
        self.bias.div_(temperature)
