"""Configuration of the encoder."""

from pathlib import Path

import pytest

from model.config.attentions import LinformerOptions, S3Options
from model.config.encoder import EncoderConfig
from model.config.recipes import load_recipe
from model.errors import UserError


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.encoder.seq_len", "63"),
        ("model.encoder.seq_len", "0"),
        ("model.encoder.seq_len", str(2**20 + 2)),
        ("model.encoder.seq_len", str(10**18)),
        ("model.encoder.dim", "-64"),
        ("model.encoder.num_heads", "3"),
        ("model.encoder.num_layers", "-1"),
        ("model.encoder.dropout.smoother", "1.0"),
        ("model.encoder.dropout.smoother", "nan"),
        ("model.encoder.mode", "published"),
        ("model.encoder.mode", "masked"),
    ],
)
def test_error_names_the_key_of_a_value_out_of_range(recipe: Path, key: str, value: str) -> None:
    with pytest.raises(UserError, match=rf"--set .*: {key} must "):
        load_recipe(recipe, [f"{key}={value}"])


def test_unknown_mode_is_an_error_that_lists_the_allowed_ones(recipe: Path) -> None:
    message = r"model\.encoder\.mode must be 'length-aware', 'paper' or 'paper-masked', not 'listing'$"
    with pytest.raises(UserError, match=message):
        load_recipe(recipe, ["model.encoder.mode=listing"])


def test_width_of_a_head_is_its_share_of_the_whole() -> None:
    assert EncoderConfig(dim=48, num_heads=3).head_dim == 16


def test_options_belong_to_the_named_attention() -> None:
    config = EncoderConfig(attention="linformer")
    assert type(config.options) is LinformerOptions
    assert config.options_of(LinformerOptions) is config.options
    with pytest.raises(AssertionError):
        config.options_of(S3Options)
