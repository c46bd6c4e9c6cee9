"""Attention layers, one file a paper, under the names that recipes give them. Used by `model.encoder`."""

import dataclasses
from typing import Any

import torch

from model.attention.base import Attention
from model.attention.dba import DynamicBilinearAttention
from model.attention.kernelized import KernelizedAttention
from model.attention.linformer import Linformer
from model.attention.nystrom import Nystromformer
from model.attention.performer import Performer
from model.attention.s3 import S3Attention
from model.attention.skyformer import Skyformer
from model.attention.softmax import SoftmaxAttention
from model.config import EncoderConfig, options_of
from model.errors import UserError

ATTENTIONS: dict[str, type[Attention]] = {
    "dba": DynamicBilinearAttention,
    "kernelized": KernelizedAttention,
    "linformer": Linformer,
    "nystrom": Nystromformer,
    "performer": Performer,
    "s3": S3Attention,
    "skyformer": Skyformer,
    "softmax": SoftmaxAttention,
}


def check_attention(config: EncoderConfig) -> dict[str, Any]:
    """All options of the attention that a recipe names. Raises: UserError for a name or an option that is not known."""
    if config.attention not in ATTENTIONS:
        raise UserError(
            f"model.encoder.attention must be one of {', '.join(sorted(ATTENTIONS))}, not {config.attention!r}"
        )
    try:
        return dataclasses.asdict(options_of(ATTENTIONS[config.attention].Options, config))
    except ValueError as error:
        raise UserError(f"model.encoder.options of {config.attention}: {error}") from None


def create_attention(config: EncoderConfig, generator: torch.Generator) -> Attention:
    """The layer that a recipe names. Raises: UserError as `check_attention`."""
    check_attention(config)
    return ATTENTIONS[config.attention](config, generator)
