"""`[model]`: model sections of the recipes of each task."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from artifact.documents import WORD_FIELDS
from artifact.tasks.any_series import SEASON_CLASSES
from artifact.univariate.features import CONTEXT, FUTURE, PATCH
from model.config.encoder import EncoderConfig
from model.config.schema import Count, CountOrZero, Dropout, Positive, Section, Share, TableSize, allowed
from model.config.training import TrainingConfig

SHORTEST_BUCKET = 256
OPENING = SHORTEST_BUCKET
"""Length in bytes of the opening of a document, which a matcher of own pairs can also compare by itself. Rows of every
bucket contain it."""
SHORTEST, LONGEST = 9, 16_384
"""Limits of the steps that a classifier of recordings reads; the kernels of MiniRocket have nine taps."""


def buckets_of(max_length: int, multiple: int) -> tuple[int, ...]:
    """Padded lengths of rows: powers of two that are multiples of `multiple`, from SHORTEST_BUCKET, and max_length."""
    sizes = (SHORTEST_BUCKET << i for i in range(max_length.bit_length()))
    return (*(size for size in sizes if size < max_length and size % multiple == 0), max_length)


class StemConfig(Section):
    """Hashed byte n-grams, summed per patch (model.nn.stem)."""

    shortest: int = 3
    """Length of the shortest n-gram in bytes."""
    longest: int = 6
    num_buckets: TableSize = 65536
    """Number of hash buckets: rows of the table."""
    patch_length: Count = 16
    """Bytes per token of the encoder."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 1 <= self.shortest <= self.longest <= 16:
            raise ValueError(f"shortest and longest must be in 1..16, not {self.shortest}, {self.longest}")
        return self

    @property
    def sizes(self) -> Sequence[int]:
        """Lengths of the n-grams, ascending."""
        return range(self.shortest, self.longest + 1)


class NgramViewConfig(Section):
    """N-grams and a linear classifier over them: the first view of kinds `bytes` and `words` (model.nn.ngrams)."""

    longest: Annotated[int, allowed(lambda value: 1 <= value <= 8, "in 1..8")] = 3
    """Kind `words`: maximum length of an n-gram in words; training also tries shorter maxima."""
    sizes: Annotated[
        tuple[int, ...],
        allowed(
            lambda sizes: bool(sizes) and sizes == tuple(sorted({*sizes} & {*range(1, 13)})), "ascending, in 1..12"
        ),
        Field(strict=False),
    ] = (3, 5, 7)
    """Kind `bytes`: lengths of the n-grams in bytes."""
    fold_case: bool = True
    """Kind `bytes`: whether ASCII letters are folded to lower case; not for data that is no text."""
    prefixes: bool = False
    """Whether the first characters of words count as n-grams, too (model.nn.words): for inflected words, and few texts.
    """
    num_ngrams: Annotated[int, allowed(lambda value: 1 <= value <= 2**18, "in 1..2^18")] = 65_536
    """Number of n-grams, the most informative ones."""
    sublinear: bool = False
    """Whether an n-gram that occurs k times in a document counts 1 + log k times instead of once: for long texts."""
    tried: Annotated[tuple[Literal["prefixes", "sublinear"], ...], Field(strict=False)] = ()
    """Keys whose other value cross-validation tries, too."""
    max_strength: Annotated[float, allowed(lambda value: value >= 10, "at least 10")] = 100.0
    """Largest inverse regularisation C that cross-validation tries."""
    max_length: Count = 4096
    """Maximum number of bytes per row."""
    class_weights: Literal["none", "balanced"] = "none"
    """`balanced`: in training, each class weighs the same, however many documents it has. Scores are then those of
    equally frequent classes."""


class NgramVectorsConfig(Section):
    """Vectors of n-grams, learned together with vectors of the documents (model.tasks.document_vectors)."""

    dim: Annotated[
        int, allowed(lambda value: value % 16 == 0 and 16 <= value <= 1024, "a multiple of 16 up to 1024")
    ] = 256
    """Length of a vector."""
    epochs: Annotated[int, allowed(lambda value: value >= 0, "at least 0")] = 24
    """Number of passes over all documents; 0 for no vectors."""


class RoundConfig(Section):
    """One round of the vector view's training, over labelled and unlabelled documents."""

    rate: Positive = 1.0
    """Factor of training.learning_rate."""
    dropout: Dropout = 0.05
    """After the vectors, the smoother, the attention and the MLP."""
    pooled_dropout: Dropout = 0.1
    """Before the head."""
    ngram_dropout: Dropout = 0.05
    """Fraction of n-grams dropped at random; of tokens for kind `bytes`."""


class VectorViewConfig(Section):
    """Second view: vectors of n-grams in order, read by the encoder (model.nn.vectors, model.nn.patches)."""

    bytes_per_token: Annotated[int, allowed(lambda value: 1 <= value <= 64, "in 1..64")] = 4
    """Kind `words`: a document of N bytes has at most N / bytes_per_token tokens, and at most `encoder.seq_len`; in
    documents with more n-grams, neighbouring n-grams share a token. Kind `bytes`: every token is that many bytes."""
    num_buckets: TableSize = 65_536
    """Kind `bytes`: number of hash buckets of the n-grams, rows of the table of vectors."""
    vector_dim: Count = 16
    """Kind `bytes`: length of the vectors in the table, which a linear layer maps to the tokens."""
    channels: CountOrZero = 0
    """Kind `bytes`: channels of a convolution over the vectors at each byte, whose maximum in each patch makes a token;
    0 for sums. For single bytes (`ngram_view.sizes=[1]`)."""
    rounds: Annotated[tuple[RoundConfig, ...], Field(strict=False)] = ()
    """Rounds of training, each starting from the one before. Without rounds, there is no vector view."""


class ClassifierConfig(Section):
    """Text classifier (model.nn.classifier)."""

    kind: Literal["bytes", "paper", "words"]
    """What the model reads: n-grams of bytes or of words, in two views; or single bytes, as published."""
    encoder: EncoderConfig | None = None
    """Encoder of the vector view, or of single bytes; None for a model without a vector view."""
    ngram_view: NgramViewConfig = NgramViewConfig()
    """First view of kinds `bytes` and `words`."""
    ngram_vectors: NgramVectorsConfig = NgramVectorsConfig()
    """Vectors of word n-grams, from which the views of kind `words` are made, and the teacher of kind `bytes`."""
    vector_view: VectorViewConfig | None = None
    """Second view of kinds `bytes` and `words`; None for none."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        has_prefixes = self.ngram_view.prefixes or "prefixes" in self.ngram_view.tried
        if self.kind == "paper" and self.vector_view is not None:
            raise ValueError("vector_view must be absent for kind 'paper'")
        if has_prefixes and (self.has_rounds or self.kind != "words"):
            raise ValueError(
                "ngram_view.prefixes must be false, and not in ngram_view.tried, for a vector view with rounds and for "
                f"kind {self.kind!r}: only the n-gram view of words reads prefixes"
            )
        if self.kind == "words" and self.has_rounds and not self.ngram_vectors.epochs:
            raise ValueError("ngram_vectors.epochs must be at least 1 for a vector view with rounds, not 0")
        if self.encoder is None:
            if self.kind == "paper" or self.has_rounds:
                raise ValueError("encoder must be a section for kind 'paper' and for a vector view with rounds")
        elif self.kind != "paper" and not self.encoder.is_length_aware:
            raise ValueError(f"encoder.mode must be 'length-aware' for kind {self.kind!r}, not {self.encoder.mode!r}")
        if self.kind == "bytes" and self.vector_view is not None and self.encoder is not None:
            length = self.ngram_view.max_length
            if self.encoder.seq_len * self.vector_view.bytes_per_token != length:
                raise ValueError(
                    "vector_view.bytes_per_token must divide ngram_view.max_length for kind 'bytes', and "
                    f"encoder.seq_len be {length} / {self.vector_view.bytes_per_token}, not {self.encoder.seq_len}"
                )
        return self

    @property
    def has_rounds(self) -> bool:
        """Whether training has a vector view."""
        return self.vector_view is not None and bool(self.vector_view.rounds)

    @property
    def required_encoder(self) -> EncoderConfig:
        """The encoder of a model that has one."""
        assert self.encoder is not None
        return self.encoder

    @property
    def max_length(self) -> int:
        """Maximum number of bytes per row."""
        return self.required_encoder.seq_len if self.kind == "paper" else self.ngram_view.max_length

    @property
    def buckets(self) -> tuple[int, ...]:
        """Padded lengths of rows; only max_length for an encoder that is not length-aware."""
        is_length_aware = self.encoder is None or self.encoder.is_length_aware
        patch = self.vector_view.bytes_per_token if self.kind == "bytes" and self.vector_view else 1
        return buckets_of(self.max_length, patch) if is_length_aware else (self.max_length,)


class TowerConfig(Section):
    """Layers that learn from pairs, on the projections of the lexical view (model.nn.tower)."""

    training: TrainingConfig
    dim: Count = 256
    """Length of a document's vector; at most that of a projection."""
    hidden_dim: Count = 512
    dropout: Dropout = 0.2
    min_pairs: CountOrZero = 10_000
    """Number of training pairs from which the tower is trained."""


class LexicalViewConfig(Section):
    """First view of a matcher of own pairs: projections of TF-IDF vectors (model.nn.lexical)."""

    longest: Annotated[int, allowed(lambda value: 1 <= value <= 8, "in 1..8")] = 2
    """Maximum length of an n-gram in words; training also tries shorter maxima."""
    num_ngrams: Annotated[int, allowed(lambda value: 1 <= value <= 2**18, "in 1..2^18")] = 32_768
    """Number of n-grams, the most frequent ones."""
    dim: Annotated[int, allowed(lambda value: 1 <= value <= 1024, "in 1..1024")] = 512
    """Maximum length of a projection."""
    opening: bool = False
    """Whether training also tries a second projection, of the first OPENING bytes of a document, such as a title; in a
    trained model, whether there is one."""
    tower: TowerConfig | None = None
    """Layers that make one vector of the projections; None for none."""
    max_length: Count = 4096
    """Maximum number of bytes per row."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.tower is not None and self.tower.dim > self.dim:
            raise ValueError(f"tower.dim must be at most dim = {self.dim}, not {self.tower.dim}")
        return self

    @property
    def num_vectors(self) -> int:
        """Number of projections of a document."""
        return 2 if self.opening else 1

    @property
    def total_dim(self) -> int:
        """Length of a document's vector."""
        return self.dim * self.num_vectors if self.tower is None else self.tower.dim


class JointViewConfig(Section):
    """View of a matcher that reads the words of both documents together (model.nn.joint)."""

    training: TrainingConfig
    num_words: Annotated[int, allowed(lambda value: 1 <= value <= 1024, "in 1..1024")] = 320
    """Maximum number of words that it reads of a document."""
    prefix_length: Annotated[int, allowed(lambda value: 0 <= value <= 16, "in 0..16")] = 0
    """Words of at least so many characters match if their first characters are equal, so that endings do not matter; 0:
    only whole words match. Shorter words, marks and words with an ASCII digit match only whole."""
    in_batch_negatives: CountOrZero = 0
    """For each pair that matches, number of second texts of other such pairs of the batch that do not match its first
    text; fewer in a batch that has fewer."""
    dim: Annotated[int, allowed(lambda value: value >= 16 and value % 2 == 0, "even and at least 16")] = 32
    hidden_dim: Count = 64
    attention: Literal["none", "dba", "s3", "softmax"] = "none"
    """`dba`: cross-attention between the documents; `s3` and `softmax`: over the words of both, one after the other."""
    dropout: Dropout = 0.1
    min_pairs: CountOrZero = 1_000
    """Number of training pairs from which the view is trained."""


class MatcherConfig(Section):
    """Matcher of byte documents, in up to three views (model.nn.matcher)."""

    lexical_view: LexicalViewConfig | None = None
    """First view, fitted on counts of words; None for none."""
    joint_view: JointViewConfig | None = None
    """View of the words of both documents, beside a lexical view; None for none."""
    stem: StemConfig | None = None
    encoder: EncoderConfig | None = None
    """Encoder over the patches of the stem; `encoder.seq_len` is the number of patches. Both or none are present."""
    head_dim: Count = 128
    """Hidden width of the MLP in the matching head."""
    encoder_pairs: CountOrZero = 0
    """Beside a lexical view, number of training pairs from which the encoder is trained."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.stem is None) != (self.encoder is None):
            raise ValueError("stem and encoder must both be sections, or both be absent")
        if self.encoder is None and self.lexical_view is None:
            raise ValueError("a matcher needs lexical_view, or stem and encoder")
        if self.joint_view is not None and self.lexical_view is None:
            raise ValueError("joint_view needs lexical_view, whose vocabulary it reads")
        if self.lexical_view is not None and self.encoder is not None:
            if not self.encoder.is_length_aware:
                mode = self.encoder.mode
                raise ValueError(f"encoder.mode must be 'length-aware' beside a lexical view, not {mode!r}")
            read, length = self.encoder.seq_len * self.required_stem.patch_length, self.lexical_view.max_length
            if read != length:
                raise ValueError(
                    f"encoder.seq_len * stem.patch_length must be lexical_view.max_length = {length}, not {read}"
                )
        return self

    @property
    def has_encoder(self) -> bool:
        """Whether there is a view that learns by gradients."""
        return self.encoder is not None

    @property
    def required_encoder(self) -> EncoderConfig:
        """The encoder of a matcher that has one."""
        assert self.encoder is not None
        return self.encoder

    @property
    def required_stem(self) -> StemConfig:
        """The stem of a matcher that has an encoder."""
        assert self.stem is not None
        return self.stem

    @property
    def max_length(self) -> int:
        """Maximum number of bytes per row."""
        if self.lexical_view is not None:
            return self.lexical_view.max_length
        return self.required_encoder.seq_len * self.required_stem.patch_length

    @property
    def shortest(self) -> int:
        """Minimum number of bytes of a document."""
        return 1 if self.stem is None else self.stem.shortest

    @property
    def dim(self) -> int:
        """Length of a document's vector."""
        return (self.lexical_view.total_dim if self.lexical_view else 0) + (self.encoder.dim if self.encoder else 0)

    @property
    def num_words(self) -> int:
        """Number of words of a document that the joint view reads; 0 without one."""
        return 0 if self.joint_view is None else self.joint_view.num_words

    @property
    def encoding_size(self) -> int:
        """Length of a document's encoding: its vector, and the words for the joint view."""
        return self.dim + self.num_words * WORD_FIELDS

    @property
    def buckets(self) -> tuple[int, ...]:
        """Padded lengths of rows; only max_length unless the encoder is length-aware."""
        if self.encoder is not None and not self.encoder.is_length_aware:
            return (self.max_length,)
        return buckets_of(self.max_length, 1 if self.stem is None else self.stem.patch_length)


class SeriesClassifierConfig(Section):
    """Classifier of recordings in two views (model.nn.series_classifier)."""

    length: Annotated[int, allowed(lambda value: SHORTEST <= value <= LONGEST, f"from {SHORTEST} to {LONGEST:,}")]
    """Number of steps that the model reads; longer recordings are read in windows."""
    patch_length: Count = 1
    """Steps per token of the encoder; a product of the steps of the stem's two convolutions."""
    features_per_kernel: Count = 119
    """Features of each of the 84 kernels of MiniRocket."""
    encoder: EncoderConfig
    """Encoder of the second view; `encoder.seq_len` is the maximum number of patches."""
    folds: Annotated[int, allowed(lambda value: 2 <= value <= 10, "from 2 to 10")] = 3
    """Number of folds of the training recordings on which the weights of the views are fitted."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        first = math.isqrt(self.patch_length)
        if self.patch_length % first:
            raise ValueError(f"patch_length must be a multiple of {first}, not {self.patch_length}")
        if self.encoder.seq_len < self.num_tokens:
            raise ValueError(f"encoder.seq_len must be at least {self.num_tokens}, not {self.encoder.seq_len}")
        if not self.encoder.is_length_aware:
            raise ValueError(
                f"encoder.mode must be 'length-aware', because recordings differ in length, not {self.encoder.mode!r}"
            )
        return self

    @property
    def num_tokens(self) -> int:
        """Number of tokens that the encoder reads, at most."""
        return -(-self.length // self.patch_length)

    @property
    def strides(self) -> tuple[int, int]:
        """Steps of the two convolutions of the stem."""
        first = math.isqrt(self.patch_length)
        return first, self.patch_length // first


class ForecasterConfig(Section):
    """Hyperparameters of a forecaster."""

    kind: Literal["paper", "residual"]
    context_length: Count
    """Number of input steps."""
    prediction_length: Count
    """Number of steps that the model forecasts; shorter forecasts are the first of them."""
    encoder: EncoderConfig
    """Encoder over patches of the window; `encoder.seq_len` is the number of patches."""
    patch_length: Count = 1
    """Steps per token."""
    head_dim: Count = 64
    """Residual kind only: rank of the map from tokens to steps."""
    linear_share: (
        Annotated[float, allowed(lambda value: 0.0 <= value <= 1.0, "in [0, 1], or 'best'")] | Literal["best"]
    ) = 1.0
    """Residual kind only: share of the least-squares linear map in the map that training starts from; the rest repeats
    the last value. `best`: share and rest, the last value or the last season, are chosen on validation."""
    num_harmonics: Count = 8
    """Paper kind only: number of frequencies on either side of zero kept by Fourier extrapolation."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.encoder.seq_len * self.patch_length != self.context_length:
            raise ValueError(
                f"context_length must be encoder.seq_len * patch_length = "
                f"{self.encoder.seq_len * self.patch_length}, not {self.context_length}"
            )
        if self.encoder.mode != "paper":
            raise ValueError(
                f"encoder.mode must be 'paper', because windows have no padding, not {self.encoder.mode!r}"
            )
        if self.kind == "paper" and self.encoder.attention != "s3":
            raise ValueError(
                f"encoder.attention must be 's3' in the paper's forecaster, not {self.encoder.attention!r}"
            )
        if self.kind == "paper" and self.patch_length != 1:
            raise ValueError(f"patch_length must be 1 in the paper's forecaster, not {self.patch_length}")
        return self


class AnySeriesConfig(Section):
    """Forecaster of any series (model.nn.any_series)."""

    kind: Literal["any-series"]
    encoder: EncoderConfig
    """Encoder over the patches of the future and of the past."""
    statistics_dim: Count = 64
    """Hidden width of the MLP that reads the statistics of a series."""
    theta_shares: Annotated[tuple[Share, ...], Field(strict=False)] = (0.25, 0.25, 0.25, 0.1)
    """Share of the Theta forecast in the medians, for each class of season (artifact.tasks.any_series). Chosen with
    `benchmarks.models.any_series.validation`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.theta_shares) != (classes := len(SEASON_CLASSES) + 1):
            raise ValueError(f"theta_shares must be {classes} numbers, not {len(self.theta_shares)}")
        if self.encoder.seq_len != (tokens := FUTURE + CONTEXT // PATCH):
            raise ValueError(f"encoder.seq_len must be {tokens}, not {self.encoder.seq_len}")
        if not self.encoder.is_length_aware:
            raise ValueError(
                f"encoder.mode must be 'length-aware', because series differ in length, not {self.encoder.mode!r}"
            )
        return self
