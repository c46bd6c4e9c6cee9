"""`[model.encoder]` of every recipe: sizes, attention and its options, dropout."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from model.config.attentions import LONGEST_SEQUENCE, OPTIONS, AttentionName, AttentionOptions
from model.config.schema import Count, CountOrZero, Dropout, Section, allowed

_Options = TypeVar("_Options", bound=AttentionOptions)


class DropoutConfig(Section):
    """Dropout probabilities. Tables 8 to 11 of the paper give the first three per task."""

    embedding: Dropout = 0.0
    """On the input of the first block; in the paper, the sum of byte and position embeddings."""
    attention: Dropout = 0.0
    """On the attention weights; in the paper, those of row and column attention."""
    smoother: Dropout = 0.0
    """After the convolution stem."""
    hidden: Dropout = 0.0
    """In the MLP and on the output of the attention; not in the tables, 0.1 in the published scripts."""


class EncoderConfig(Section):
    """Hyperparameters of the encoder (model.nn.encoder)."""

    attention: AttentionName = "s3"
    """Attention layer of the blocks."""
    options: SerializeAsAny[AttentionOptions] = Field(default_factory=AttentionOptions, validate_default=True)
    """_Options of the attention layer (model.config.attentions)."""
    mode: Literal["length-aware", "paper", "paper-masked"] = "length-aware"
    """Treatment of padding. `length-aware`: it never affects the output, and a document may be padded to any length.
    `paper` and `paper-masked`: documents are padded to seq_len. `paper` has no mask, like the paper's listings.
    `paper-masked` masks the attention and the mean over tokens, but not the smoother, like the released code."""
    seq_len: Annotated[int, allowed(lambda n: 1 <= n <= LONGEST_SEQUENCE, f"from 1 to {LONGEST_SEQUENCE:,}")] = 4096
    """Maximum number of tokens n."""
    dim: Count = 64
    """Model width d."""
    num_heads: Count = 2
    num_layers: CountOrZero = 2
    """Number of blocks; 0 removes the encoder, for ablations."""
    ffn_dim: Count = 128
    """Hidden width of the MLPs."""
    sampling_seed: int = 0
    """Seed of sampled rows and columns, landmarks and random features, which are saved with the model."""
    dropout: DropoutConfig = DropoutConfig()

    @model_validator(mode="before")
    @classmethod
    def _refuse_misplaced_options(cls, table: object) -> object:
        """Refuse attention options outside `options`; the error names their section."""
        for key in table if isinstance(table, Mapping) else ():
            owners = [name for name, options in OPTIONS.items() if key in options.model_fields]
            if owners:
                raise ValueError(f"{key} must be in [model.encoder.options]; it is an option of {', '.join(owners)}")
        return table

    @field_validator("options", mode="before")
    @classmethod
    def _read_options(cls, options: object, info: ValidationInfo) -> object:
        """Validate the options with the class of the chosen attention, unless the attention's name is invalid."""
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

    def options_of(self, kind: type[_Options]) -> _Options:
        """The options as an instance of `kind`."""
        assert isinstance(self.options, kind)
        return self.options

    @property
    def head_dim(self) -> int:
        """Width D per head."""
        return self.dim // self.num_heads

    @property
    def is_length_aware(self) -> bool:
        """Whether the output does not depend on the amount of padding."""
        return self.mode == "length-aware"

    @property
    def masks_padding(self) -> bool:
        """Whether attention and the mean over tokens mask padding."""
        return self.mode != "paper"
