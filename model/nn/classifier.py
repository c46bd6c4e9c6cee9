"""Text classifiers: of single bytes, as published; of byte or word n-grams in two views. Used by `model.tasks`."""

import copy
from typing import Self

import torch
from torch import Tensor, nn

from model.config.encoder import EncoderConfig
from model.config.models import ClassifierConfig, NgramViewConfig
from model.nn.encoder import ByteEncoder, masked_mean
from model.nn.ngrams import NgramClassifier, find_hits
from model.nn.ops.integers import divide
from model.nn.patches import PatchClassifier
from model.nn.stem import ByteHasher
from model.nn.tokens import TokenClassifier
from model.nn.vectors import VectorClassifier
from model.nn.words import PREFIXES, WordHasher

HEAD_DIM = 128
"""Hidden width of the head of `PaperClassifier`."""
STRETCH_BYTES = 256
"""Length of a stretch, the part of a document whose contribution a classifier returns; the last may be shorter."""


class PaperClassifier(nn.Module):
    """Byte encoder, mean over tokens, two-layer head.

    logits = W_2 relu(W_1 mean_n(encoder(x)))

    Shape:      document (B, N) uint8; lengths (B,) int32; returns (B, classes).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. IV-A; the head is that of the published LRA code.
    Deviates:   the head is initialised from data (`standardise_head`); its shape is unchanged. In length-aware mode the
                mean is over real tokens; in mode `paper-masked` it is their sum / N, as in the released code; in mode
                `paper` it is over all N positions, as in the paper's listings, which have no mask.
    """

    def __init__(self, config: EncoderConfig, num_classes: int) -> None:
        super().__init__()
        self.mode = config.mode
        self.encoder = ByteEncoder(config)
        self.head = nn.Sequential(nn.Linear(config.dim, HEAD_DIM), nn.ReLU(), nn.Linear(HEAD_DIM, num_classes))

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Classify (B, N) bytes -> (B, classes) logits."""
        return self.head(self.pooled(document, lengths))  # type: ignore[no-any-return]

    def pooled(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Mean of the encoder's output over tokens: (B, N) bytes -> (B, C)."""
        x = self.encoder(document, lengths)  # (B, N, C)
        if self.mode == "paper":
            return x.mean(dim=1)  # type: ignore[no-any-return]
        mean = masked_mean(x, lengths)
        if self.mode == "paper-masked":
            mean = mean * (lengths.to(x.dtype) / x.shape[1]).unsqueeze(1)
        return mean

    @torch.no_grad()
    def divide_logits(self, temperature: float) -> None:
        """Divide the logits by a temperature, folded into the weights."""
        last = self.head[2]
        assert isinstance(last, nn.Linear)
        last.weight.div_(temperature)
        last.bias.div_(temperature)

    @torch.no_grad()
    def standardise_head(self, document: Tensor, lengths: Tensor) -> None:
        """Initialise the head's first layer so that its inputs have mean 0 and standard deviation 1 on these documents.

        Means over tokens differ little between documents; with the default initialisation the accuracy stays at chance
        for thousands of steps.

        Shape:      document (B, N) uint8; lengths (B,) int32; B of several hundred.
        Reference:  Salimans and Kingma 2016, arXiv:1602.07868, sec. 3 (data-dependent initialisation).
        """
        pooled = self.pooled(document, lengths)  # (B, C)
        first = self.head[0]
        assert isinstance(first, nn.Linear)
        first.weight /= pooled.std(dim=0)
        first.bias.copy_(-first.weight @ pooled.mean(dim=0))


class TwoViewClassifier(nn.Module):
    """Two classifiers over n-grams, one linear and one over their vectors; fitted weights combine their logits.

    logits = a ngram_view(document) + b vector_view(document)

    a and b are `weights`. The n-grams are found once, for both views. Without a vector view, b = 0.

    The logits are the sum of `base`, the same for all documents, and the contributions of the document's stretches of
    STRETCH_BYTES. A stretch of padding contributes zero.

    Reference:  weights fitted on held-out data: stacked generalisation, Wolpert 1992, Neural Networks 5(2).
    """

    weights: Tensor
    vector_view: TokenClassifier | None

    def __init__(self, view: NgramViewConfig, num_classes: int) -> None:
        super().__init__()
        self.ngram_view = NgramClassifier(view.num_ngrams, num_classes, sublinear=view.sublinear)
        self.register_buffer("weights", torch.ones(2))
        self.has_fixed_shapes = False
        """Whether all shapes depend on B and N only, not on the number of n-grams: slower, but CUDA can replay it."""

    def with_fixed_shapes(self) -> Self:
        """The same classifier, sharing its parameters, with fixed shapes."""
        other = copy.copy(self)
        other.has_fixed_shapes = True
        return other

    def base(self) -> Tensor:
        """Part of the logits that is the same for all documents, (classes,)."""
        base = self.weights[0] * self.ngram_view.bias
        return base if self.vector_view is None else base + self.weights[1] * self.vector_view.head.bias

    def _ids(self, hashes: Tensor) -> Tensor:
        """Ids of the n-grams with these hashes (rows, M), 0 for unknown ones."""
        ids: Tensor = self.ngram_view.vocabulary(hashes.T.flatten())
        return torch.unflatten(ids, 0, (-1, hashes.shape[0])).T

    @torch.no_grad()
    def quantise(self) -> None:
        """Quantise the tables. For export; the model cannot be trained after it."""
        self.ngram_view.quantise()
        if self.vector_view is not None:
            self.vector_view.quantise()

    @torch.no_grad()
    def divide_logits(self, temperature: float) -> None:
        """Divide the logits by a temperature, folded into the weights."""
        self.weights.div_(temperature)


class WordClassifier(TwoViewClassifier):
    """Classifier over n-grams of words.

    A word is known if an n-gram of words of the n-gram view's vocabulary ends at it. Prefixes do not count: most words
    of another language have some that are known.

    Shape:      document (B, N) uint8, zero-padded, N at most max_length; lengths (B,) int32; returns logits
                (B, classes); contributions (B, S, classes), S = N / STRETCH_BYTES, rounded up; and known (B, 2)
                float32, the number of known words and of all words.
    """

    vector_view: VectorClassifier | None

    def __init__(self, config: ClassifierConfig, num_classes: int) -> None:
        ngrams, vectors = config.ngram_view, config.vector_view
        super().__init__(ngrams, num_classes)
        self.words = WordHasher(ngrams.longest, config.max_length, prefixes=PREFIXES if ngrams.prefixes else ())
        self.vector_view = (
            VectorClassifier(config.required_encoder, vectors, ngrams.num_ngrams, num_classes) if vectors else None
        )

    def forward(self, document: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Classify (B, N) bytes -> logits (B, classes), contributions (B, S, classes) and known (B, 2)."""
        is_fixed = self.has_fixed_shapes
        hashes, doc_index, position = self.words(document, lengths, has_fixed_shapes=is_fixed)
        num_documents, length = document.shape
        num_stretches = -(-length // STRETCH_BYTES)
        stretch, shape = stretches_of(position, num_stretches), (num_documents, num_stretches)
        ids = self._ids(hashes)
        counts = self._count(ids, hashes, doc_index, num_documents)
        hits = find_hits(ids, doc_index, stretch, has_fixed_shapes=is_fixed)
        contributions = self.weights[0] * self.ngram_view(hits, shape, has_fixed_shapes=is_fixed)
        if self.vector_view is not None:
            has_width = is_fixed or (isinstance(length, int) and torch.compiler.is_exporting())
            width = self.vector_view.largest_width(length) if has_width else None
            of_vectors = self.vector_view.contributions(
                hits, counts[:, 2], lengths, num_stretches, width, has_fixed_shapes=is_fixed
            )
            contributions = contributions + self.weights[1] * of_vectors
        return contributions.sum(dim=1) + self.base(), contributions, counts[:, :2]

    def known(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Numbers of known words and of all words (B, 2), as in `forward`, which takes far longer."""
        hashes, doc_index, _ = self.words(document, lengths)
        return self._count(self._ids(hashes), hashes, doc_index, document.shape[0])[:, :2]

    def _count(self, ids: Tensor, hashes: Tensor, doc_index: Tensor, num_documents: int) -> Tensor:
        """Numbers of known words, all words and known n-grams (num_documents, 3), from ids and hashes (rows, M).

        Counted in float32, which is exact up to 2^24: ONNX Runtime adds no integers by index on CUDA.
        """
        is_known = (ids > 0).float()  # (rows, M)
        of_words = is_known[: self.words.longest] if self.words.prefixes else is_known
        counts = torch.stack((of_words.amax(dim=0), (hashes[0] >= 0).float(), is_known.sum(dim=0)), dim=1)  # (M, 3)
        return torch.zeros(num_documents, 3, device=counts.device).index_add(0, doc_index, counts)


class ByteClassifier(TwoViewClassifier):
    """Classifier over n-grams of bytes, in any language and in data that is no text.

    Shape:      document (B, N) uint8, zero-padded, N a multiple of the patch length and at most max_length; lengths
                (B,) int32; returns logits (B, classes), and contributions (B, S, classes), S = N / STRETCH_BYTES,
                rounded up.
    """

    vector_view: PatchClassifier | None

    def __init__(self, config: ClassifierConfig, num_classes: int) -> None:
        ngrams, vectors = config.ngram_view, config.vector_view
        super().__init__(ngrams, num_classes)
        self.hasher = ByteHasher(ngrams.sizes, config.max_length, fold_case=ngrams.fold_case)
        self.vector_view = (
            PatchClassifier(config.required_encoder, vectors, ngrams.sizes, num_classes) if vectors else None
        )

    def forward(self, document: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Classify (B, N) bytes -> logits (B, classes) and contributions (B, S, classes)."""
        is_fixed = self.has_fixed_shapes
        hashes, doc_index, position = self.hasher(document, lengths)
        num_stretches = -(-document.shape[1] // STRETCH_BYTES)
        ids, stretch = self._ids(hashes), stretches_of(position, num_stretches)
        hits = find_hits(ids, doc_index, stretch, has_fixed_shapes=is_fixed)
        shape = (document.shape[0], num_stretches)
        contributions = self.weights[0] * self.ngram_view(hits, shape, has_fixed_shapes=is_fixed)
        if self.vector_view is not None:
            rows = self.vector_view.rows(hashes, document.shape[1])
            stretch_bytes = None if stretch is None else STRETCH_BYTES
            of_vectors = self.vector_view.contributions(
                rows, lengths, num_stretches, stretch_bytes, in_int8=not is_fixed
            )
            contributions = contributions + self.weights[1] * of_vectors
        return contributions.sum(dim=1) + self.base(), contributions

    def rows(self, document: Tensor, lengths: Tensor) -> Tensor:
        """What the vector view reads in (B, N) bytes: rows (B, N, s) of the n-grams that end at each byte."""
        assert self.vector_view is not None
        hashes, *_ = self.hasher(document, lengths)
        return self.vector_view.rows(hashes, document.shape[1])


def stretches_of(position: Tensor, num_stretches: int) -> Tensor | None:
    """The stretch of each position in a document (M,); None if documents have one.

    In a graph for several buckets, the number of stretches is a symbol.
    """
    is_one = isinstance(num_stretches, int) and num_stretches == 1
    return None if is_one else divide(position, STRETCH_BYTES)
