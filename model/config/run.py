"""Typed recipes: TOML file <-> frozen dataclasses. Read by every command of `model`.

An unknown key, a missing key and a value of the wrong type are errors that name the key, so that a misspelt
hyper-parameter can never be ignored in silence.
"""

import dataclasses
import math
import tomllib
import typing
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from artifact.manifest import Name
from model.errors import UserError

T = TypeVar("T")

LARGEST_FACTOR = 1024
"""Of `seq_len`: for the Fourier transform, graphs hold two matrices of twice as many rows and columns."""


@dataclass(frozen=True)
class DropoutConfig:
    """Dropout probabilities; the paper's Tables 8 to 11 give the first three per task."""

    embedding: float = 0.0
    """After the sum of byte and position embeddings."""
    attention: float = 0.0
    """On the row and column attention weights."""
    smoother: float = 0.0
    """After the convolution stem."""
    hidden: float = 0.0
    """In the MLP and on the attention's output; not in the tables, 0.1 in the published scripts."""

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not 0.0 <= value < 1.0:
                raise ValueError(f"{name} must be in [0, 1), not {value}")


@dataclass(frozen=True)
class EncoderConfig:
    """Shape of the encoder (model.encoder); the names of S3Attention's own are those of its Algorithms 1 and 2."""

    attention: str = "s3"
    """Which attention its blocks have: a name in model.attention."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of an attention other than s3: fields of the class of options in its file."""
    mode: Literal["length-aware", "paper"] = "length-aware"
    """Whether padding is left out of everything, or an ordinary input as published."""
    seq_len: int = 4096
    """Tokens n the model is built for; as published, shorter inputs are padded to it."""
    dim: int = 64
    """Model width d."""
    num_heads: int = 2
    num_layers: int = 2
    """Blocks; 0 leaves what is before them, for ablations."""
    ffn_dim: int = 128
    """Hidden width of the MLP in each block."""
    num_segments: int = 8
    """s3, r: segments of the width whose means go through the Fourier convolution."""
    num_rows: int = 8
    """s3, s1: tokens sampled for row attention."""
    num_columns: int = 8
    """s3, s2: features of each head sampled for column attention."""
    sampling_seed: int = 0
    """Seed of sampled rows and columns, landmarks and random features, which are part of the model."""
    use_smoother: bool = True
    """s3: whether tokens are smoothed before the attention."""
    use_fourier: bool = True
    """s3: whether the smoother has its Fourier convolution; without it, what the paper's ablation (Table 7) leaves."""
    use_stem: bool = True
    """s3: whether the smoother has its convolution stem (Table 7); without it, the Fourier convolution alone."""
    use_rows: bool = True
    use_columns: bool = True
    """s3: whether the attention has its two parts; at least one of them."""
    dropout: DropoutConfig = field(default_factory=DropoutConfig)

    def __post_init__(self) -> None:
        for name in ("seq_len", "dim", "num_heads", "ffn_dim", "num_segments"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.num_layers < 0:
            raise ValueError(f"num_layers must not be negative, not {self.num_layers}")
        if self.dim % self.num_heads:
            raise ValueError(f"num_heads must divide dim {self.dim}, not be {self.num_heads}")
        if self.attention == "s3":
            self._check_s3()

    def _check_s3(self) -> None:
        if self.use_smoother and not (self.use_fourier or self.use_stem):
            raise ValueError("use_fourier and use_stem must not both be false; set use_smoother to false")
        if not (self.use_rows or self.use_columns):
            raise ValueError("use_rows and use_columns must not both be false")
        if self.seq_len % 2:
            raise ValueError(f"seq_len must be even, not {self.seq_len}")
        if self.use_smoother and self.use_fourier and max(self.fourier_factors) > LARGEST_FACTOR:
            raise ValueError(
                f"seq_len must be a product of two numbers of at most {LARGEST_FACTOR:,}, as 4,096 = 64 x 64, for the "
                f"Fourier transform; {self.seq_len:,} = {self.fourier_factors[0]:,} x {self.fourier_factors[1]:,}"
            )
        if self.dim % self.num_segments:
            raise ValueError(f"num_segments must divide dim {self.dim}, not be {self.num_segments}")
        if not 1 <= self.num_rows <= self.seq_len:
            raise ValueError(f"num_rows must be in 1..{self.seq_len} (seq_len), not {self.num_rows}")
        if not 1 <= self.num_columns <= self.head_dim:
            raise ValueError(f"num_columns must be in 1..{self.head_dim} (head width), not {self.num_columns}")

    @property
    def head_dim(self) -> int:
        """Width D of one head."""
        return self.dim // self.num_heads

    @property
    def fourier_factors(self) -> tuple[int, int]:
        """s3: the two factors of seq_len that are nearest to each other, by which exports transform."""
        first = next(d for d in range(math.isqrt(self.seq_len), 0, -1) if self.seq_len % d == 0)
        return first, self.seq_len // first

    @property
    def is_length_aware(self) -> bool:
        """Whether padding is left out."""
        return self.mode == "length-aware"


S3_KEYS = (
    "num_segments",
    "num_rows",
    "num_columns",
    "use_smoother",
    "use_fourier",
    "use_stem",
    "use_rows",
    "use_columns",
)
"""Keys of the encoder that attentions other than s3 do not look at."""


@dataclass(frozen=True)
class StemConfig:
    """Hashed byte n-grams, pooled over patches (model.stem)."""

    shortest: int = 3
    """Bytes of the shortest n-gram."""
    longest: int = 6
    num_buckets: int = 65536
    """Rows of the table that n-grams are hashed into; a power of two."""
    patch_length: int = 16
    """Bytes that make one token of the encoder."""

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest <= 16:
            raise ValueError(f"shortest and longest must be in 1..16, not {self.shortest}, {self.longest}")
        if self.num_buckets < 2 or self.num_buckets > 2**24 or self.num_buckets & (self.num_buckets - 1):
            raise ValueError(f"num_buckets must be a power of two in 2..2^24, not {self.num_buckets}")
        if self.patch_length < 1:
            raise ValueError(f"patch_length must be at least 1, not {self.patch_length}")


@dataclass(frozen=True)
class WordStemConfig:
    """Words and runs of words, pooled over patches (model.words)."""

    longest: int = 3
    """Words in the longest run."""
    num_slots: int = 65536
    """Rows of the table; a power of two. Each belongs to the run that tells most of those hashed to it."""
    patch_length: int = 16
    """Bytes that make one token of the encoder."""
    dropout: float = 0.5
    """Share of the runs that training leaves out, others each time."""

    def __post_init__(self) -> None:
        if not 1 <= self.longest <= 8:
            raise ValueError(f"longest must be in 1..8, not {self.longest}")
        if self.num_slots < 2 or self.num_slots > 2**24 or self.num_slots & (self.num_slots - 1):
            raise ValueError(f"num_slots must be a power of two in 2..2^24, not {self.num_slots}")
        if self.patch_length < 1:
            raise ValueError(f"patch_length must be at least 1, not {self.patch_length}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout}")


SHORTEST_BUCKET = 256


def buckets_of(max_length: int, multiple: int) -> tuple[int, ...]:
    """Lengths that rows are padded to: powers of two that are multiples, from SHORTEST_BUCKET on, and max_length."""
    sizes = (SHORTEST_BUCKET << i for i in range(max_length.bit_length()))
    return (*(size for size in sizes if size < max_length and size % multiple == 0), max_length)


@dataclass(frozen=True)
class ClassifierConfig:
    """Text classifier (model.classifier)."""

    kind: Literal["bytes", "words"]
    """One token a byte, as published, or one a patch of words."""
    encoder: EncoderConfig
    stem: WordStemConfig = field(default_factory=WordStemConfig)
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


@dataclass(frozen=True)
class MatcherConfig:
    """Dual encoder of byte documents (model.matcher)."""

    stem: StemConfig
    encoder: EncoderConfig
    """Attention over patches, `encoder.seq_len` of them."""
    head_dim: int = 128

    def __post_init__(self) -> None:
        if self.head_dim < 1:
            raise ValueError(f"head_dim must be at least 1, not {self.head_dim}")

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


@dataclass(frozen=True)
class ForecasterConfig:
    """Shape of a forecaster; the paper publishes `num_harmonics` only, the rest is chosen on validation."""

    kind: Literal["paper", "residual"]
    context_length: int
    """Steps that are read."""
    prediction_length: int
    """Steps that are forecast at most; shorter forecasts are their beginning."""
    encoder: EncoderConfig
    """Attention over patches of the window, `encoder.seq_len` of them."""
    patch_length: int = 1
    """Steps that make one token."""
    head_dim: int = 64
    """Residual only: rank of the map from tokens to steps."""
    linear_share: float = 1.0
    """Residual only: the solved linear map is scaled by it, towards repeating the last value at 0."""
    num_harmonics: int = 8
    """Paper only: frequencies kept on either side of zero by Fourier extrapolation."""

    def __post_init__(self) -> None:
        for name in ("context_length", "prediction_length", "patch_length", "head_dim", "num_harmonics"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
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
        if not 0.0 <= self.linear_share <= 1.0:
            raise ValueError(f"linear_share must be in [0, 1], not {self.linear_share}")


@dataclass(frozen=True)
class DocumentsConfig:
    """Which documents are read and how they are cut."""

    name: Literal[
        "imdb", "20newsgroups", "20newsgroups-stripped", "listops", "listops-short", "cifar10-gray", "synthetic", "own"
    ]
    """Data set; `--data-dir` or LONGDOC_DATA says where its files lie. `own` is the file or folder given by --data."""
    validation_fraction: float = 0.1
    """Share of the training documents held out for model selection; of all of `own`."""
    test_fraction: float = 0.1
    """Share of `own` held out for measuring; the other data sets have their own."""
    text_column: str = "text"
    label_column: str = "label"
    """Columns of `own`."""
    crop: Literal["head", "random"] = "random"
    """What training sees of a document longer than seq_len: its head, or another stretch of it each time."""
    split_seed: int = 0
    """Seed of the validation split, apart from the training seed so that runs share it."""

    def __post_init__(self) -> None:
        for name in ("validation_fraction", "test_fraction"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be in (0, 1), not {getattr(self, name)}")
        if self.validation_fraction + self.test_fraction >= 1.0:
            raise ValueError("validation_fraction and test_fraction must leave documents for training")


@dataclass(frozen=True)
class PairsConfig:
    """Which pairs of documents are read."""

    name: Literal["aan", "synthetic-pairs", "own"]
    """Data set; `--data-dir` or LONGDOC_DATA says where its files lie. `own` is the file given by --data."""
    max_bytes: int = 4000
    """What is used of each document, in training and when measured."""
    disjoint: bool = False
    """Whether training leaves out the papers of the disjoint validation and test pairs."""
    text_column: str = "text_a"
    other_column: str = "text_b"
    label_column: str = "label"
    """Columns of `own`; labels are 0 and 1."""
    split_seed: int = 0
    """Seed of the splits of `own`."""

    def __post_init__(self) -> None:
        if self.disjoint and self.name == "own":
            raise ValueError("disjoint must be false for pairs of one's own")
        if self.max_bytes < 1:
            raise ValueError(f"max_bytes must be at least 1, not {self.max_bytes}")


SeriesName = Literal["ettm2", "exchange", "weather", "ili", "synthetic-series", "csv"]


@dataclass(frozen=True)
class SeriesConfig:
    """Which series is read and how it is split by time."""

    name: SeriesName
    """Data set; `--data-dir` or LONGDOC_DATA says where its file lies. `csv` is the file given by --data."""
    time_column: str = ""
    """Of `csv`; by default its first column."""
    train_fraction: float = 0.7
    validation_fraction: float = 0.1
    """Shares of the rows, in order; ETTm2 has the split of its authors instead."""

    def __post_init__(self) -> None:
        for name in ("train_fraction", "validation_fraction"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be in (0, 1), not {getattr(self, name)}")
        if self.train_fraction + self.validation_fraction >= 1.0:
            raise ValueError("train_fraction and validation_fraction must leave rows for the test")


@dataclass(frozen=True)
class TrainingConfig:
    """Optimiser and schedule: AdamW, linear warm-up, cosine to zero."""

    epochs: int
    batch_size: int
    learning_rate: float
    examples_per_epoch: int = 0
    """Examples drawn for an epoch; 0 takes all."""
    weight_decay: float = 0.01
    warmup_steps: int = 0
    max_grad_norm: float = 1.0
    """Global norm above which gradients are scaled down."""
    patience: int = 0
    """Epochs without a better validation after which training ends; 0 goes on to the last."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate", "max_grad_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, not {getattr(self, name)}")
        for name in ("weight_decay", "warmup_steps", "examples_per_epoch", "patience"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and not negative, not {getattr(self, name)}")


@dataclass(frozen=True)
class RunConfig(ABC):
    """One training run; each task has its own sections `data` and `model`."""

    name: str
    """Name of the model, of its run folder and of its export."""
    seed: int
    """Seed of initialisation, order, crops and dropout."""
    training: TrainingConfig

    def __post_init__(self) -> None:
        try:
            TypeAdapter(Name).validate_python(self.name)
        except ValidationError:
            raise ValueError(f"name must be 1 to 64 of a-z, 0-9 and (inside) . _ -, not {self.name!r}") from None

    @property
    @abstractmethod
    def encoder(self) -> EncoderConfig:
        """Of the model."""

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts that `from_dict` reads back."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class ClassificationRun(RunConfig):
    """Documents -> labels."""

    task: Literal["text-classification"]
    data: DocumentsConfig
    model: ClassifierConfig

    @property
    def encoder(self) -> EncoderConfig:
        """Of the model."""
        return self.model.encoder


@dataclass(frozen=True)
class MatchingRun(RunConfig):
    """Pairs of documents -> scores."""

    task: Literal["text-matching"]
    data: PairsConfig
    model: MatcherConfig

    @property
    def encoder(self) -> EncoderConfig:
        """Of the model."""
        return self.model.encoder

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.training.batch_size % 2:
            raise ValueError(f"training.batch_size must be even, half of it positive, not {self.training.batch_size}")


@dataclass(frozen=True)
class ForecastingRun(RunConfig):
    """Windows of a series -> their continuation."""

    task: Literal["forecasting"]
    data: SeriesConfig
    model: ForecasterConfig

    @property
    def encoder(self) -> EncoderConfig:
        """Of the model."""
        return self.model.encoder


RUNS: dict[str, type[RunConfig]] = {
    "text-classification": ClassificationRun,
    "text-matching": MatchingRun,
    "forecasting": ForecastingRun,
}


def load_recipe(path: Path, overrides: list[str] | None = None) -> RunConfig:
    """Read a recipe and apply `section.key=value` overrides (values in TOML).

    Raises: UserError naming the file and the key, for anything that is not a valid recipe.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"recipe {path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path}: {error}") from None
    for override in overrides or []:
        _override(table, override)
    try:
        return from_dict(table)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def from_dict(table: dict[str, Any]) -> RunConfig:
    """Build the run of a task from nested dicts. Raises: ValueError naming the key."""
    task = table.get("task")
    if not isinstance(task, str) or task not in RUNS:
        raise ValueError(f"task must be one of {', '.join(RUNS)}, not {task!r}")
    return typing.cast(RunConfig, _build(RUNS[task], table, ""))


def options_of(cls: type[T], config: EncoderConfig) -> T:
    """An attention's options, of its class of options. Raises: ValueError naming the key."""
    return typing.cast(T, _build(cls, config.options, ""))


def _override(table: dict[str, Any], override: str) -> None:
    """Set one `section.key=value` in the table read from a recipe."""
    key, sign, text = override.partition("=")
    if not sign:
        raise UserError(f"--set {override!r}: expected key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *sections, last = key.strip().split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {override!r}: {section} is not a section")
    table[last] = value


def _build(cls: type, table: object, prefix: str) -> object:
    """Build dataclass `cls` from a dict, checking names and types."""
    if not isinstance(table, dict):
        raise ValueError(f"{prefix.rstrip('.')} must be a section, not {table!r}")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in table:
        if key not in fields:
            raise ValueError(f"unknown key {prefix}{key}; known: {', '.join(fields) or 'none'}")
    for key, spec in fields.items():
        required = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
        if required and key not in table:
            raise ValueError(f"missing key {prefix}{key}")
    values = {key: _convert(hints[key], value, prefix + key) for key, value in table.items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from None


def _convert(hint: Any, value: object, name: str) -> object:
    """Check one value against its annotation; an integer is accepted for a float."""
    if typing.get_origin(hint) is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be a section, not {value!r}")
        return value
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast(type, hint), value, name + ".")
    if typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(typing.get_args(hint))}, not {value!r}")
        return value
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} must fit 64 bits, not be {value}")
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ValueError(f"{name} must be of type {getattr(hint, '__name__', hint)}, not {value!r}")
    return value
