"""Attention layers, one module per paper, named as in recipes. Used by `model.nn.encoder`."""

from importlib import import_module

import torch

from model.config.attentions import OPTIONS
from model.config.encoder import EncoderConfig
from model.nn.attention.base import Attention


def _layer(name: str) -> type[Attention]:
    """The attention that the module of this name defines."""
    module = import_module(f"{__name__}.{name}")
    (layer,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Attention) and value.__module__ == module.__name__
    )
    return layer


ATTENTIONS: dict[str, type[Attention]] = {name: _layer(name) for name in OPTIONS}


def create_attention(config: EncoderConfig, generator: torch.Generator) -> Attention:
    """Create the attention layer that a recipe selects."""
    return ATTENTIONS[config.attention](config, generator)
