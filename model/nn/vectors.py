"""Classifier over vectors of word n-grams, one of the two views that `model.nn.classifier` combines."""

import torch
from torch import Tensor, nn

from artifact.arrays import Doubles, Floats
from model.config.encoder import EncoderConfig
from model.config.models import VectorViewConfig
from model.nn.ngrams import Hits
from model.nn.ops.integers import SPARE, as_tensor, lookup, spread
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
        super().__init__(encoder, num_ngrams, num_classes, encoder.dim)
        self.bytes_per_token = config.bytes_per_token

    def forward(self, ids: Tensor, doc_index: Tensor, lengths: Tensor) -> Tensor:
        """Classify documents given as ids of their n-grams -> (B, classes) logits."""
        if self.training and self.token_dropout:
            ids = ids * (torch.rand(ids.shape, device=ids.device) >= self.token_dropout)
        return self.classify(self.embed(Hits(ids, doc_index, None), lengths))

    def contributions(
        self,
        hits: Hits,
        known: Tensor,
        lengths: Tensor,
        num_stretches: int,
        width: int | None = None,
        *,
        has_fixed_shapes: bool = False,
    ) -> Tensor:
        """Contributions (B, num_stretches, classes) to the logits, without the bias.

        Args:
            hits: occurrences of n-grams.
            known: number of known n-grams in each document, (B,) float32. Without fixed shapes, all hits are known.
            lengths: bytes of each document, (B,).
            num_stretches: number of stretches.
            width: number of tokens to which the documents are padded; by default, that of the longest.
            has_fixed_shapes: whether the number of hits does not depend on the documents.

        """
        tokens = self.embed(hits, lengths, known, width, has_fixed_shapes=has_fixed_shapes)
        return self.contributions_of(tokens, num_stretches)

    def embed(
        self,
        hits: Hits,
        lengths: Tensor,
        known: Tensor | None = None,
        width: int | None = None,
        *,
        has_fixed_shapes: bool = False,
    ) -> Tokens:
        """The tokens of documents; arguments as for `contributions`. Without `known`, hits of any kind are counted.

        A document without n-grams of the vocabulary has one token, a zero vector in stretch 0.
        """
        ids, doc_index, stretch = hits
        batch, dtype = lengths.shape[0], self.scale.dtype
        are_all_known = known is not None and not has_fixed_shapes
        if are_all_known:
            counted = torch.ones_like(ids, dtype=dtype)  # (K,)
            number = torch.arange(ids.shape[0], device=ids.device)  # (K,): known ones earlier in the batch
        else:
            counted, number = (ids > 0).to(dtype), (ids > 0).cumsum(0) - (ids > 0).long()
        if known is None:
            # Counted in float32, which is exact up to 2^24: ONNX Runtime adds no integers by index on CUDA.
            known = torch.zeros(batch, device=ids.device).index_add(0, doc_index, counted.float())
        k = known.double()
        limit = torch.ceil(lengths.double() / self.bytes_per_token)
        n = torch.minimum(k, limit).clamp(min=1, max=self.positions.shape[0])  # (B,)
        token_counts = n.long()
        if width is None:
            width = self._width(token_counts)
        # Token floor((number - before) n / k) of a document. Half of 1 / k more changes nothing, but is far more than
        # the rounding errors of float64.
        before, divisor = k.cumsum(0) - k, k.clamp(min=1)
        first = torch.arange(batch, device=ids.device) * as_tensor(width, ids) + (0.5 - before * n) / divisor
        place = (number * lookup(n / divisor, doc_index) + lookup(first, doc_index)).long()  # (K,)
        vectors = nn.functional.embedding(ids, self.vectors, padding_idx=0).to(dtype)  # (K, C)
        num_places = batch * width
        if has_fixed_shapes:
            place, num_places = spread(place, ids > 0, num_places), num_places + SPARE
        elif not are_all_known:  # others after the last known one may get a place beyond the last; they add zero
            place = place.clamp(max=num_places - 1)

        def sum_by_token(x: Tensor) -> Tensor:
            """Sums over the n-grams of each token: (K, columns) -> (B, T, columns)."""
            empty = torch.zeros(num_places, x.shape[1], dtype=x.dtype, device=x.device)
            return torch.unflatten(empty.index_add(0, place, x)[: batch * width], 0, (batch, width))

        columns = [counted] if stretch is None else [counted, stretch * counted]
        sums = sum_by_token(torch.stack(columns, dim=1))  # (B, T, 1 or 2)
        counts = sums[:, :, :1].clamp(min=1)
        x = sum_by_token(vectors) / counts * self.scale
        stretches = None if stretch is None else (sums[:, :, 1:] / counts).squeeze(2).floor()
        amount = known.to(dtype).unsqueeze(1)
        return Tokens(x, token_counts, stretches, amount / (amount + self.prior))

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
        self.set_prior(prior)
