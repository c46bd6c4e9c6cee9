"""Typed recipes: TOML file <-> frozen dataclasses. Read by every command of `model`.

An unknown key, a missing key and a value of the wrong type are errors that name the key, so that a misspelt
hyper-parameter can never be ignored in silence.
"""

import dataclasses
import math
import tomllib
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter, ValidationError

from model.errors import UserError
from service.manifest import Name


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
                raise ValueError(f"dropout.{name} must be in [0, 1), not {value}")


@dataclass(frozen=True)
class EncoderConfig:
    """Shape of the S3Attention encoder (paper, Algorithms 1 and 2; model.encoder)."""

    seq_len: int = 4096
    """Positions n the model is built for; shorter inputs are padded to it."""
    dim: int = 64
    """Model width d."""
    num_heads: int = 2
    num_layers: int = 2
    ffn_dim: int = 128
    """Hidden width of the MLP in each block."""
    num_segments: int = 8
    """r: segments of the width whose means go through the Fourier convolution."""
    num_rows: int = 8
    """s1: tokens sampled for row attention."""
    num_columns: int = 8
    """s2: features of each head sampled for column attention."""
    sampling_seed: int = 0
    """Seed of the sampled row and column indices, which are part of the model."""
    dropout: DropoutConfig = field(default_factory=DropoutConfig)

    def __post_init__(self) -> None:
        for name in ("seq_len", "dim", "num_heads", "num_layers", "ffn_dim", "num_segments"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 1, not {getattr(self, name)}")
        if self.seq_len % 2:
            raise ValueError(f"model.seq_len must be even, not {self.seq_len}")
        for name in ("num_heads", "num_segments"):
            if self.dim % getattr(self, name):
                raise ValueError(f"model.{name} must divide dim {self.dim}, not be {getattr(self, name)}")
        if not 1 <= self.num_rows <= self.seq_len:
            raise ValueError(f"model.num_rows must be in 1..{self.seq_len} (seq_len), not {self.num_rows}")
        if not 1 <= self.num_columns <= self.head_dim:
            raise ValueError(f"model.num_columns must be in 1..{self.head_dim} (head width), not {self.num_columns}")

    @property
    def head_dim(self) -> int:
        """Width D of one head."""
        return self.dim // self.num_heads


@dataclass(frozen=True)
class DataConfig:
    """Which documents are read and how they are cut."""

    name: Literal["imdb", "synthetic"]
    """Data set; `--data-dir` or LONGDOC_DATA says where its files lie."""
    validation_fraction: float = 0.1
    """Share of the training documents held out for model selection."""
    crop: Literal["head", "random"] = "random"
    """What training sees of a document longer than seq_len: its head, or another stretch of it each time."""
    split_seed: int = 0
    """Seed of the validation split, apart from the training seed so that runs share it."""

    def __post_init__(self) -> None:
        if not 0.0 < self.validation_fraction < 1.0:
            raise ValueError(f"data.validation_fraction must be in (0, 1), not {self.validation_fraction}")


@dataclass(frozen=True)
class TrainingConfig:
    """Optimiser and schedule: AdamW, linear warm-up, cosine to zero."""

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.01
    warmup_steps: int = 0
    max_grad_norm: float = 1.0
    """Global norm above which gradients are scaled down."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate", "max_grad_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"training.{name} must be positive and finite, not {getattr(self, name)}")
        for name in ("weight_decay", "warmup_steps"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"training.{name} must be finite and not negative, not {getattr(self, name)}")


@dataclass(frozen=True)
class RunConfig:
    """One training run."""

    name: str
    """Name of the model, of its run folder and of its export."""
    task: Literal["text-classification"]
    seed: int
    """Seed of initialisation, order, crops and dropout."""
    data: DataConfig
    model: EncoderConfig
    training: TrainingConfig

    def __post_init__(self) -> None:
        try:
            TypeAdapter(Name).validate_python(self.name)
        except ValidationError:
            raise ValueError(f"name must be 1 to 64 of a-z, 0-9 and (inside) . _ -, not {self.name!r}") from None

    @classmethod
    def load(cls, path: Path, overrides: list[str] | None = None) -> Self:
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
            return cls.from_dict(table)
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Self:
        """Build from nested dicts. Raises: ValueError naming the key."""
        return typing.cast(Self, _build(cls, table, ""))

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts that `from_dict` reads back."""
        return dataclasses.asdict(self)


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
            raise ValueError(f"unknown key {prefix}{key}; known: {', '.join(fields)}")
    for key, spec in fields.items():
        required = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
        if required and key not in table:
            raise ValueError(f"missing key {prefix}{key}")
    return cls(**{key: _convert(hints[key], value, prefix + key) for key, value in table.items()})


def _convert(hint: Any, value: object, name: str) -> object:
    """Check one value against its annotation; an integer is accepted for a float."""
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
