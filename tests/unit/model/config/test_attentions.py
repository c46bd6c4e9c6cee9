import re
from pathlib import Path

import pytest

from model.config.attentions import OPTIONS, S3Options, fourier_factors
from model.config.encoder import EncoderConfig
from model.config.recipes import find_recipe, load_recipe
from model.errors import UserError


def test_attention_without_any_part_is_an_error() -> None:
    sets = [f"model.encoder.options.{part}=false" for part in ("use_smoother", "use_rows", "use_columns")]
    with pytest.raises(UserError, match="use_smoother, use_rows and use_columns must not all be false"):
        load_recipe(find_recipe("synthetic"), sets)
    for part in sets:
        load_recipe(find_recipe("synthetic"), [other for other in sets if other != part])


def test_smoother_without_any_part_is_an_error() -> None:
    sets = ["model.encoder.options.use_fourier=false", "model.encoder.options.use_stem=false"]
    with pytest.raises(UserError, match="use_fourier and use_stem must not both be false"):
        load_recipe(find_recipe("synthetic"), sets)
    load_recipe(find_recipe("synthetic"), [*sets, "model.encoder.options.use_smoother=false"])


def test_length_that_does_not_factor_is_an_error() -> None:
    assert fourier_factors(4000) == (50, 80)
    assert fourier_factors(2046) == (33, 62)
    with pytest.raises(ValueError, match=r"two numbers of at most 1,024, as .*; 4,078 = 2 x 2,039"):
        EncoderConfig(seq_len=4078)
    assert EncoderConfig(seq_len=2**20).seq_len == 2**20
    assert EncoderConfig(seq_len=4078, options=S3Options(use_fourier=False)).seq_len == 4078


@pytest.mark.parametrize("name", OPTIONS)
def test_default_options_are_all_recorded(name: str, recipe: Path) -> None:
    encoder = load_recipe(recipe, [f"model.encoder.attention={name}", "model.encoder.dim=64"]).model.encoder
    assert encoder is not None
    assert type(encoder.options) is OPTIONS[encoder.attention]
    assert encoder.model_dump()["options"].keys() == OPTIONS[encoder.attention].model_fields.keys()


@pytest.mark.parametrize(
    ("attention", "option", "message"),
    [
        ("skyformer", "num_landmark=3", "unknown key {}; known: num_landmarks, gamma, num_steps"),
        ("skyformer", "gamma=0.0", "{} must be in (0, 1], not 0.0"),
        ("skyformer", "num_landmarks=0", "{} must be from 1 to 4096, not 0"),
        ("skyformer", "num_steps=17", "{} must be from 1 to 16, not 17"),
        ("nystrom", "num_landmarks=5000", "{} must be from 1 to 4096, not 5000"),
        ("nystrom", "num_steps=0", "{} must be from 1 to 16, not 0"),
        ("nystrom", "kernel_size=4", "{} must be odd, not 4"),
        ("linformer", "projected_length=-1", "{} must be from 1 to 4096, not -1"),
        ("performer", "num_features=4097", "{} must be from 1 to 4096, not 4097"),
        ("dba", "inner_dim=100000000000", "{} must be from 1 to 4096, not 100000000000"),
        ("dba", "compressed_length='8'", "{} must be an integer, not '8'"),
        ("softmax", "num_landmarks=3", "unknown key {}; known: none"),
        ("s3", "num_rows=65", "{} must be in 1..64 (seq_len), not 65"),
        ("s3", "use_stem=1", "{} must be true or false, not 1"),
    ],
)
def test_error_names_the_invalid_option(recipe: Path, attention: str, option: str, message: str) -> None:
    key = f"model.encoder.options.{option}"
    with pytest.raises(UserError) as caught:
        load_recipe(recipe, [f"model.encoder.attention={attention}", key])
    assert str(caught.value) == f"--set {key}: {message.format(key.partition('=')[0])}"


def test_error_about_an_unknown_attention_lists_all(recipe: Path) -> None:
    with pytest.raises(UserError, match=r"model\.encoder\.attention must be 'dba', .* or 'softmax', not 'sky'$"):
        load_recipe(recipe, ["model.encoder.attention=sky"])


@pytest.mark.parametrize(
    ("key", "owners"), [("num_rows", "s3"), ("use_stem", "s3"), ("num_landmarks", "nystrom, skyformer")]
)
def test_error_about_a_misplaced_option_names_its_section(recipe: Path, key: str, owners: str) -> None:
    message = f"model.encoder.{key} must be in [model.encoder.options]; it is an option of {owners}"
    with pytest.raises(UserError, match=re.escape(message)):
        load_recipe(recipe, [f"model.encoder.{key}=4"])
