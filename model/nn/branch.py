"""Branch: the classifier over word vectors, one of the two whose logits `model.nn.views` combines."""

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.config.encoder import EncoderConfig
from model.config.models import BranchConfig
from model.nn.encoder import Blocks, masked_mean
from model.nn.stem import quantize_int8

HASH_MULTIPLIER = 2654435761
"""Multiplier of Knuth's multiplicative hash: 2^32 / golden ratio."""
WORDS_PER_BUCKET = 4
"""Mean number of words per bucket if half of the slots are used."""
MAX_DISPLACEMENT = 1000
"""Displacements that are tried per bucket."""
WIDTHS = 32
"""Widths in training are multiples of it: PyTorch prepares and keeps convolutions for each shape."""
MAX_ATTEMPTS = 16
"""Divisors that are tried: two words of a bucket may collide with one divisor and not with the next."""


class Vocabulary(nn.Module):
    """Hash table from the words of a vocabulary to rows of vectors. The hash is perfect: no two words share a slot.

    slot = (high bits of the hash + displacement[hash mod buckets] * (2 (hash mod divisor) + 1)) mod slots

    Shape:      hashes (M,) int64 below 2^31; returns rows (M,) int64, 0 for unknown words, else 1 ... num_words.
    Reference:  hash and displace: Belazzougui, Botelho and Dietzfelbinger 2009, "Hash, displace, and compress", sec. 3.
    """

    tags: Tensor
    """Hash of the word in each slot, -1 if the slot is empty."""
    places: Tensor
    """Row of the word in each slot."""
    displacements: Tensor
    """Displacement of each bucket."""
    divisor: Tensor

    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.num_slots = 1 << (3 * num_words // 2).bit_length()
        self.num_buckets = max(1, self.num_slots // (2 * WORDS_PER_BUCKET))
        self.register_buffer("tags", torch.full((self.num_slots,), -1, dtype=torch.int32))
        self.register_buffer("places", torch.zeros(self.num_slots, dtype=torch.int32))
        self.register_buffer("displacements", torch.zeros(self.num_buckets, dtype=torch.int32))
        self.register_buffer("divisor", torch.tensor(self.num_slots - 1))

    def forward(self, hashes: Tensor) -> Tensor:
        """Rows (M,) of the words with these hashes (M,)."""
        slots = self.slots(hashes, lookup(self.displacements, hashes % self.num_buckets).long())
        return lookup(self.places, slots).long() * (lookup(self.tags, slots) == hashes)

    def slots(self, hashes: Tensor, displacement: Tensor) -> Tensor:
        """Slot of each hash under a displacement, in 0 ... num_slots - 1."""
        step = hashes % self.divisor * 2 + 1
        return (hashes * HASH_MULTIPLIER % 2**32 // (2**32 // self.num_slots) + displacement * step) % self.num_slots

    @torch.no_grad()
    def fill(self, hashes: NDArray[np.int64]) -> None:
        """Assign rows 1 ... len(hashes) to words with distinct hashes. Raises: ValueError if no hash is perfect."""
        for attempt in range(MAX_ATTEMPTS):
            self.divisor.fill_(self.num_slots - 1 - 2 * attempt)
            if self._fill(hashes):
                return
        raise ValueError(f"no perfect hash of {len(hashes)} words in {self.num_slots} slots was found")

    def _fill(self, hashes: NDArray[np.int64]) -> bool:
        """Find a displacement for every bucket, the largest buckets first; returns whether all were found."""
        buckets = hashes % self.num_buckets
        order = np.argsort(buckets, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(buckets[order])) + 1) if len(order) else []
        self.tags.fill_(-1)
        for group in sorted(groups, key=len, reverse=True):
            words = torch.from_numpy(hashes[group])
            for displacement in range(MAX_DISPLACEMENT):
                slots = self.slots(words, torch.tensor(displacement))
                if (self.tags[slots] < 0).all() and len(slots.unique()) == len(slots):
                    break
            else:
                return False
            self.displacements[int(buckets[group[0]])] = displacement
            self.tags[slots] = words.int()
            self.places[slots] = torch.from_numpy(group + 1).int()
        return True


class Branch(nn.Module):
    """Word vectors in order, S3Attention blocks, mean and maximum over the tokens, linear head.

    x_t = mean of the vectors of the known words in token t;  z = blocks(drop(LN(x)));
    logits = W drop([mean_t LN(z_t); max_t LN(z_t)]) + b

    Unknown words are dropped before words are grouped into tokens. A document with k known words has min(k, limit)
    tokens; the limit is its number of bytes / bytes_per_token, rounded up, and at most seq_len. Word i of k is in token
    floor(i * tokens / k). All words of a document are read, and its tokens do not depend on its padded length.

    Shape:      rows (M,) int64 of the words of all documents in order, 0 for unknown ones; doc_index (M,) int64, the
                index of each word's document, ascending; lengths (B,), bytes of each document; width: padded number
                of tokens; returns (B, classes).
    Reference:  blocks: Wang et al. 2024, arXiv:2408.08567, Figure 1; learning from soft labels of another view: Blum
                and Mitchell 1998, "Combining labeled and unlabeled data with co-training"; mean and maximum: Howard
                and Ruder 2018, arXiv:1801.06146, sec. 3.3. The S3Attention paper reads bytes and pools by the mean.
    """

    rates: ClassVar[dict[str, float]] = {"head": 5.0}
    """Learning rate multipliers by parameter prefix."""

    scale: Tensor
    positions: Tensor

    def __init__(self, encoder: EncoderConfig, branch: BranchConfig, num_classes: int) -> None:
        super().__init__()
        self.bytes_per_token = branch.bytes_per_token
        self.word_dropout = 0.0
        self.vectors = nn.Parameter(torch.zeros(1 + branch.vectors.num_words, encoder.dim))  # row 0 (unknown): zero
        self.register_buffer("scale", torch.ones(encoder.dim))
        self.register_buffer("positions", torch.arange(encoder.seq_len), persistent=False)
        self.input_norm = nn.LayerNorm(encoder.dim)
        self.dropout = nn.Dropout(encoder.dropout.embedding)
        self.blocks = Blocks(encoder)
        self.norm = nn.LayerNorm(encoder.dim)
        self.pooled_dropout = nn.Dropout(0.0)
        self.head = nn.Linear(2 * encoder.dim, num_classes)

    def width(self, length: int) -> int:
        """Padded number of tokens of documents padded to `length` bytes, at most seq_len."""
        # In an exported graph `length` is dynamic; the slice limits it to seq_len there, too.
        return self.positions[: (length + self.bytes_per_token - 1) // self.bytes_per_token].shape[0]

    def width_for(self, rows: Tensor, doc_index: Tensor, lengths: Tensor) -> int:
        """`width` for these documents, from their largest number of tokens; not exportable."""
        tokens = int(self.counts(rows, doc_index, lengths)[1].max())
        return min(len(self.positions), -(-tokens // WIDTHS) * WIDTHS)

    def forward(self, rows: Tensor, doc_index: Tensor, lengths: Tensor, width: int) -> Tensor:
        """Classify documents given as rows of their words -> (B, classes) logits."""
        x, tokens = self.tokens(rows, doc_index, lengths, width)
        x = self.norm(self.blocks(self.dropout(self.input_norm(x)), tokens))  # (B, T, C)
        is_real = self.positions[:width] < tokens.unsqueeze(1)  # (B, T)
        highest = x.masked_fill(~is_real.unsqueeze(-1), -torch.inf).amax(dim=1)  # (B, C)
        pooled = torch.cat((masked_mean(x, tokens), highest), dim=1)
        return self.head(self.pooled_dropout(pooled))  # type: ignore[no-any-return]

    def tokens(self, rows: Tensor, doc_index: Tensor, lengths: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Tokens (B, width, C) and their number (B,), at least 1: a document without a known word has a zero token."""
        if self.training and self.word_dropout:
            rows = rows * (torch.rand(rows.shape, device=rows.device) >= self.word_dropout)
        batch, is_known = lengths.shape[0], (rows > 0).long()  # (M,)
        known_words, tokens = self.counts(rows, doc_index, lengths)
        before = known_words.cumsum(0) - known_words  # (B,): known words of earlier documents
        order = is_known.cumsum(0) - is_known - lookup(before, doc_index)  # (M,): known words earlier in the document
        token = order * lookup(tokens, doc_index) // lookup(known_words.clamp(min=1), doc_index)
        place = doc_index * width + token.clamp(max=width - 1)  # an unknown word at the end adds zero to the last token
        vectors = nn.functional.embedding(rows, self.vectors)  # (M, C)
        if vectors.dtype != self.scale.dtype:  # int8
            vectors = vectors.to(self.scale.dtype) * self.scale
        known = is_known.to(vectors.dtype).unsqueeze(1)
        empty = torch.zeros(batch * width, vectors.shape[1] + 1, dtype=vectors.dtype, device=vectors.device)
        summed = empty.index_add(0, place, torch.cat((vectors * known, known), dim=1))
        x = summed[:, :-1] / summed[:, -1:].clamp(min=1)
        return torch.unflatten(x, 0, (batch, width)), tokens

    def counts(self, rows: Tensor, doc_index: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Known words (B,) and tokens (B,) of each document."""
        known_words = torch.zeros_like(lengths, dtype=torch.long).index_add(0, doc_index, (rows > 0).long())
        limit = (lengths.long() + self.bytes_per_token - 1) // self.bytes_per_token
        return known_words, torch.minimum(known_words, limit).clamp(min=1, max=self.positions.shape[0])

    def set_dropout(self, dropout: float, pooled: float, words: float) -> None:
        """Set the dropout of the next round."""
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
        self.pooled_dropout.p, self.word_dropout = pooled, words

    @torch.no_grad()
    def quantise(self) -> None:
        """Quantise the vectors to int8, with one scale per column. For export; ends training."""
        table, scale = quantize_int8(self.vectors)
        self.vectors = nn.Parameter(table, requires_grad=False)
        self.scale.copy_(scale)


def lookup(table: Tensor, index: Tensor) -> Tensor:
    """table[index] for any shape of index. ONNX: Gather, which is faster than the GatherND of indexing."""
    return table.index_select(0, index.flatten()).reshape(index.shape + table.shape[1:])
