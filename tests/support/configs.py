"""Sections of recipes with changed values, validated as recipes are."""

from typing import Any, TypeVar

from model.config.encoder import EncoderConfig
from model.config.schema import Section

S = TypeVar("S", bound=Section)


def changed(section: S, **values: Any) -> S:
    """Return a copy with other values."""
    return type(section).model_validate({**dict(section), **values})


def with_options(config: EncoderConfig, **options: Any) -> EncoderConfig:
    """Return a copy whose attention has other options."""
    return changed(config, options={**config.options.model_dump(), **options})


def with_attention(config: EncoderConfig, name: str, **values: Any) -> EncoderConfig:
    """Return a copy with another attention; options that are not given have their defaults."""
    return changed(config, **{"attention": name, "options": {}, **values})
