"""`[model]` of each task's recipes."""

from typing import Annotated, Literal, Self

from pydantic import model_validator

from model.config.encoder import EncoderConfig
from model.config.schema import Count, Dropout, Section, TableSize, allowed

SHORTEST_BUCKET = 256


def buckets_of(max_length: int, multiple: int) -> tuple[int, ...]:
    """Lengths that rows are padded to: powers of two that are multiples, from SHORTEST_BUCKET on, and max_length."""
    sizes = (SHORTEST_BUCKET << i for i in range(max_length.bit_length()))
    return (*(size for size in sizes if size < max_length and size % multiple == 0), max_length)


class StemConfig(Section):
    """Hashed byte n-grams, pooled over patches (model.nn.stem)."""

    shortest: int = 3
    """Bytes of the shortest n-gram."""
    longest: int = 6
    num_buckets: TableSize = 65536
    """Rows of the table that n-grams are hashed into."""
    patch_length: Count = 16
    """Bytes that make one token of the encoder."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 1 <= self.shortest <= self.longest <= 16:
            raise ValueError(f"shortest and longest must be in 1..16, not {self.shortest}, {self.longest}")
        return self


class WordStemConfig(Section):
    """Words and runs of words, pooled over patches (model.nn.words)."""

    longest: Annotated[int, allowed(lambda value: 1 <= value <= 8, "in 1..8")] = 3
    """Words in the longest run."""
    num_slots: TableSize = 65536
    """Rows of the table. Each belongs to the run that tells most of those hashed to it."""
    patch_length: Count = 16
    """Bytes that make one token of the encoder."""
    dropout: Dropout = 0.5
    """Share of the runs that training leaves out, others each time."""


class ClassifierConfig(Section):
    """Text classifier (model.nn.classifier)."""

    kind: Literal["bytes", "words"]
    """One token a byte, as published, or one a patch of words."""
    encoder: EncoderConfig
    stem: WordStemConfig = WordStemConfig()
    """Of `words`."""

    @property
    def max_length(self) -> int:
        """Bytes that are read at once."""
        return self.encoder.seq_len * self._bytes_a_token

    @property
    def buckets(self) -> tuple[int, ...]:
        """Lengths that documents are padded to; as published, the longest alone."""
        return buckets_of(self.max_length, self._bytes_a_token) if self.encoder.is_length_aware else (self.max_length,)

    @property
    def _bytes_a_token(self) -> int:
        return self.stem.patch_length if self.kind == "words" else 1


class MatcherConfig(Section):
    """Dual encoder of byte documents (model.nn.matcher)."""

    stem: StemConfig
    encoder: EncoderConfig
    """Attention over patches, `encoder.seq_len` of them."""
    head_dim: Count = 128

    @property
    def max_length(self) -> int:
        """Bytes that are read at once."""
        return self.encoder.seq_len * self.stem.patch_length

    @property
    def buckets(self) -> tuple[int, ...]:
        """Lengths that documents are padded to."""
        if not self.encoder.is_length_aware:
            return (self.max_length,)
        return buckets_of(self.max_length, self.stem.patch_length)


class ForecasterConfig(Section):
    """Shape of a forecaster; the paper publishes `num_harmonics` only, the rest is chosen on validation."""

    kind: Literal["paper", "residual"]
    context_length: Count
    """Steps that are read."""
    prediction_length: Count
    """Steps that are forecast at most; shorter forecasts are their beginning."""
    encoder: EncoderConfig
    """Attention over patches of the window, `encoder.seq_len` of them."""
    patch_length: Count = 1
    """Steps that make one token."""
    head_dim: Count = 64
    """Residual only: rank of the map from tokens to steps."""
    linear_share: Annotated[float, allowed(lambda value: 0.0 <= value <= 1.0, "in [0, 1]")] = 1.0
    """Residual only: the solved linear map is scaled by it, towards repeating the last value at 0."""
    num_harmonics: Count = 8
    """Paper only: frequencies kept on either side of zero by Fourier extrapolation."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.encoder.seq_len * self.patch_length != self.context_length:
            raise ValueError(
                f"context_length must be encoder.seq_len * patch_length = "
                f"{self.encoder.seq_len * self.patch_length}, not {self.context_length}"
            )
        if self.encoder.mode != "paper":
            raise ValueError(f"encoder.mode must be 'paper', for windows have one length, not {self.encoder.mode!r}")
        if self.kind == "paper" and self.encoder.attention != "s3":
            raise ValueError(
                f"encoder.attention must be 's3' in the paper's forecaster, not {self.encoder.attention!r}"
            )
        if self.kind == "paper" and self.patch_length != 1:
            raise ValueError(f"patch_length must be 1 in the paper's forecaster, not {self.patch_length}")
        return self
