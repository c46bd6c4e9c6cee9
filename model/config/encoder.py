"""`[model.encoder]` of every recipe: sizes, attention and its options, dropout."""

from collections.abc import Mapping
from typing import Literal, Self, TypeVar

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from model.config.attentions import OPTIONS, AttentionName, AttentionOptions
from model.config.schema import Count, CountOrNone, Dropout, Section

Options = TypeVar("Options", bound=AttentionOptions)


class DropoutConfig(Section):
    """Dropout probabilities; the paper's Tables 8 to 11 give the first three per task."""

    embedding: Dropout = 0.0
    """After the sum of byte and position embeddings."""
    attention: Dropout = 0.0
    """On the row and column attention weights."""
    smoother: Dropout = 0.0
    """After the convolution stem."""
    hidden: Dropout = 0.0
    """In the MLP and on the attention's output; not in the tables, 0.1 in the published scripts."""


class EncoderConfig(Section):
    """Shape of the encoder (model.nn.encoder)."""

    attention: AttentionName = "s3"
    """Which attention its blocks have."""
    options: SerializeAsAny[AttentionOptions] = Field(default_factory=AttentionOptions, validate_default=True)
    """What the attention alone has, of its class in model.config.attentions; by default all at their defaults."""
    mode: Literal["length-aware", "paper"] = "length-aware"
    """Whether padding is left out of everything, or an ordinary input as published."""
    seq_len: Count = 4096
    """Tokens n the model is built for; as published, shorter inputs are padded to it."""
    dim: Count = 64
    """Model width d."""
    num_heads: Count = 2
    num_layers: CountOrNone = 2
    """Blocks; 0 leaves what is before them, for ablations."""
    ffn_dim: Count = 128
    """Hidden width of the MLP in each block."""
    sampling_seed: int = 0
    """Seed of sampled rows and columns, landmarks and random features, which are part of the model."""
    dropout: DropoutConfig = DropoutConfig()

    @model_validator(mode="before")
    @classmethod
    def _refuse_misplaced_options(cls, table: object) -> object:
        """Say where an option belongs that stands beside `attention`."""
        for key in table if isinstance(table, Mapping) else ():
            owners = [name for name, options in OPTIONS.items() if key in options.model_fields]
            if owners:
                raise ValueError(f"{key} must be in [model.encoder.options]; it is an option of {', '.join(owners)}")
        return table

    @field_validator("options", mode="before")
    @classmethod
    def _read_options(cls, options: object, info: ValidationInfo) -> object:
        """Read the options as those of the attention; where its name is an error, that is enough."""
        if "attention" not in info.data:
            return AttentionOptions()
        kind = OPTIONS[info.data["attention"]]
        return kind() if type(options) is AttentionOptions else kind.model_validate(options)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dim % self.num_heads:
            raise ValueError(f"num_heads must divide dim {self.dim}, not be {self.num_heads}")
        self.options.check(self.seq_len, self.dim, self.num_heads)
        return self

    def options_of(self, kind: type[Options]) -> Options:
        """The options, as the class of the attention that asks."""
        assert isinstance(self.options, kind)
        return self.options

    @property
    def head_dim(self) -> int:
        """Width D of one head."""
        return self.dim // self.num_heads

    @property
    def is_length_aware(self) -> bool:
        """Whether padding is left out."""
        return self.mode == "length-aware"
