"""Validation that all sections share."""

from pathlib import Path
from typing import Any

import pytest

from model.config.recipes import load_recipe
from model.config.run import from_dict
from model.errors import UserError


def test_integer_is_accepted_as_a_float(recipe: Path) -> None:
    assert type(load_recipe(recipe).training.learning_rate) is float


@pytest.mark.parametrize("key", ["colour", "data.colour", "model.encoder.dropout.colour", "training.learning_rates"])
def test_error_names_an_unknown_key(recipe: Path, key: str) -> None:
    with pytest.raises(UserError, match=rf"--set .*: unknown key {key}; known: \w+"):
        load_recipe(recipe, [f"{key}=1"])


@pytest.mark.parametrize(
    "key",
    [
        "name",
        "seed",
        "data",
        "data.name",
        "model.kind",
        "training.epochs",
        "training.learning_rate",
    ],
)
def test_error_names_a_missing_key(table: dict[str, Any], key: str) -> None:
    *sections, last = key.split(".")
    section = table
    for name in sections:
        section = section[name]
    del section[last]
    with pytest.raises(ValueError, match=f"^missing key {key}$"):
        from_dict(table)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "3"),
        ("seed", "0.5"),
        ("seed", "true"),
        ("model.encoder.dim", '"wide"'),
        ("model.encoder.dim", "64.0"),
        ("model.encoder.dropout", "0.1"),
        ("model.encoder.dropout.hidden", "false"),
        ("training", "[1, 2]"),
        ("training.learning_rate", '"fast"'),
    ],
)
def test_error_names_the_key_of_a_value_of_the_wrong_type(recipe: Path, key: str, value: str) -> None:
    with pytest.raises(UserError, match=rf"--set .*: {key} must be (a section|an integer|a number|a string)"):
        load_recipe(recipe, [f"{key}={value}"])


def test_sections_are_immutable(recipe: Path) -> None:
    config = load_recipe(recipe)
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 4
