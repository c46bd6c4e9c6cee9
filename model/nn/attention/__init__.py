"""Attention layers, one module per paper, by their names in recipes. Used by `model.nn.encoder`."""

import torch

from model.config.encoder import EncoderConfig
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


def create_attention(config: EncoderConfig, generator: torch.Generator) -> Attention:
    """Create the attention layer that a recipe selects."""
    return ATTENTIONS[config.attention](config, generator)
