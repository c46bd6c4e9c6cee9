"""Attention layers, one file a paper, under the names that recipes give them. Used by `model.nn.encoder`."""

import dataclasses
from typing import Any

import torch

from model.config.run import EncoderConfig, options_of
from model.errors import UserError
from model.nn.attention.base import Attention
from model.nn.attention.dba import DynamicBilinearAttention
from model.nn.attention.kernelized import KernelizedAttention
from model.nn.attention.linformer import Linformer
from model.nn.attention.nystrom import Nystromformer
from model.nn.attention.performer import Performer
from model.nn.attention.s3 import S3Attention
from model.nn.attention.skyformer import Skyformer
from model.nn.attention.softmax import SoftmaxAttention

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
