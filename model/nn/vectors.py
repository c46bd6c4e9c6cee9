"""Classifier over vectors of word n-grams, one of the two views that `model.nn.classifier` combines."""

import torch
from torch import Tensor, nn

from artifact.arrays import Doubles, Floats
from model.config.encoder import EncoderConfig
from model.config.models import VectorViewConfig
from model.nn.ngrams import Hits
from model.nn.ops.integers import SPARE, as_tensor, divide, lookup, spread
from model.nn.tokens import SMALLEST, TokenClassifier, Tokens

WIDTH_MULTIPLE = 32
"""Batches are padded to a multiple of this many tokens (at most seq_len), except in exported graphs. PyTorch caches a
plan of the convolution for each shape; this keeps the number of shapes small."""


class VectorClassifier(TokenClassifier):
    """Vectors of word n-grams in the order of the text, read by a `TokenClassifier`.

    x_t = mean of the vectors of the n-grams in token t; k is the document's number of n-grams of the vocabulary.

    The vectors are not normalised: their lengths tell how much an n-gram says.

    A token is a group of consecutive n-grams; those that end at the same word follow each other, the shortest first. A
    document has n = min(k, limit) tokens; the limit is its number of bytes / bytes_per_token, rounded up, and at most
    seq_len. N-gram i, from 0 to k - 1, is in token floor(i n / k). The tokens of a document do not depend on its
    padding. The stretch of a token is the mean of those in which its n-grams end, rounded down.

    Shape:      ids (K,) int64 of the n-grams of all documents in order, 0 for places that do not count; doc_index
                (K,) int64, the index of each one's document, ascending; lengths (B,), bytes of each document; returns
                (B, classes).
    Reference:  learning from soft labels of another view: Blum and Mitchell 1998, "Combining labeled and unlabeled data
                with co-training".
    """

    def __init__(self, encoder: EncoderConfig, config: VectorViewConfig, num_ngrams: int, num_classes: int) -> None:
        super().__init__(encoder, num_ngrams, num_classes)
        self.bytes_per_token = config.bytes_per_token

    def forward(self, ids: Tensor, doc_index: Tensor, lengths: Tensor) -> Tensor:
        """Classify documents given as ids of their n-grams -> (B, classes) logits."""
        if self.training and self.token_dropout:
            ids = ids * (torch.rand(ids.shape, device=ids.device) >= self.token_dropout)
        return self.classify(self.embed(Hits(ids, doc_index, torch.zeros_like(ids)), lengths))

    def contributions(self, hits: Hits, lengths: Tensor, num_stretches: int, width: int | None = None) -> Tensor:
        """Contributions (B, num_stretches, classes) to the logits, without the bias.

        `width` is the number of tokens to which the documents are padded; by default, that of the longest.
        """
        return self.contributions_of(self.embed(hits, lengths, width), num_stretches)

    def embed(self, hits: Hits, lengths: Tensor, width: int | None = None) -> Tokens:
        """The tokens of documents of `lengths` bytes (B,).

        A document without n-grams of the vocabulary has one token, a zero vector in stretch 0.
        """
        ids, doc_index, stretch = hits
        is_known = (ids > 0).long()  # (K,)
        # Counted in float32, which is exact up to 2^24: ONNX Runtime adds no integers by index on CUDA.
        known = torch.zeros_like(lengths, dtype=torch.float).index_add(0, doc_index, is_known.float()).long()  # (B,)
        limit = divide(lengths.long() + self.bytes_per_token - 1, self.bytes_per_token)
        token_counts = torch.minimum(known, limit).clamp(min=1, max=self.positions.shape[0])  # (B,)
        has_fixed_shapes = width is not None
        if width is None:
            width = self._width(token_counts)
        before = known.cumsum(0) - known  # (B,): n-grams of earlier documents
        order = is_known.cumsum(0) - is_known - lookup(before, doc_index)  # (K,): n-grams earlier in the document
        token = divide(order * lookup(token_counts, doc_index), lookup(known.clamp(min=1), doc_index))  # (K,)
        is_traced = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
        tokens = as_tensor(width, doc_index) if has_fixed_shapes or is_traced else width
        # Places that do not count may follow the last n-gram and get a token beyond the last. They add zero to any.
        place = doc_index * tokens + token.clamp(max=tokens - 1)
        vectors = nn.functional.embedding(ids, self.vectors, padding_idx=0).to(self.scale.dtype)  # (K, C)
        counted = is_known.to(vectors.dtype)
        batch, num_places = lengths.shape[0], lengths.shape[0] * width
        if has_fixed_shapes:
            place, num_places = spread(place, is_known > 0, num_places), num_places + SPARE

        def sum_by_token(x: Tensor) -> Tensor:
            """Sums over the n-grams of each token: (K, columns) -> (B, T, columns)."""
            empty = torch.zeros(num_places, x.shape[1], dtype=x.dtype, device=x.device)
            return torch.unflatten(empty.index_add(0, place, x)[: batch * width], 0, (batch, width))

        sums = sum_by_token(torch.stack((stretch * counted, counted), dim=1))  # (B, T, 2)
        counts = sums[:, :, 1:].clamp(min=1)
        x = sum_by_token(vectors) / counts * self.scale
        k = known.to(x.dtype).unsqueeze(1)
        return Tokens(x, token_counts, (sums[:, :, :1] / counts).squeeze(2).floor(), k / (k + self.prior))

    def largest_width(self, length: int) -> int:
        """Largest number of tokens of documents of `length` bytes."""
        tokens = -(-length // self.bytes_per_token)
        return torch.sym_min(self.positions.shape[0], tokens)  # type: ignore[no-any-return]

    def _width(self, token_counts: Tensor) -> int:
        """Number of tokens to which the documents of a batch are padded."""
        if torch.compiler.is_exporting() or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
            # The size of `nonzero` remains dynamic in a graph. The exporter treats a width of 1 as a constant.
            width = (self.positions < token_counts.max().clamp(min=2)).nonzero().shape[0]
            if torch.compiler.is_exporting():
                torch._check(width >= 2)
                torch._check(width <= self.positions.shape[0])
            return width
        return min(len(self.positions), -(-int(token_counts.max()) // WIDTH_MULTIPLE) * WIDTH_MULTIPLE)

    @torch.no_grad()
    def set_vectors(self, vectors: Floats, means: Doubles, prior: float) -> None:
        """Set the vectors of the n-grams 1 ... R (R, dim), the gain from means of documents (D, dim), and the prior."""
        self.vectors.zero_()
        self.vectors[1 : 1 + len(vectors)] = torch.from_numpy(vectors)
        self.gain.fill_(1 / max(float(means.std()), SMALLEST) if len(means) else 1.0)
        self.prior.fill_(max(prior, SMALLEST))
