"""Configuration of data and splits."""

from pathlib import Path

import pytest

from model.config.recipes import find_recipe, load_recipe
from model.errors import UserError


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.name", "wikipedia"),
        ("data.crop", "tail"),
        ("data.validation_fraction", "0"),
        ("data.validation_fraction", "nan"),
        ("data.split_seed", "-9223372036854775809"),
    ],
)
def test_error_names_the_key_of_a_value_out_of_range(recipe: Path, key: str, value: str) -> None:
    with pytest.raises(UserError, match=rf"--set .*: {key} must "):
        load_recipe(recipe, [f"{key}={value}"])


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("synthetic-pairs", "data.max_bytes", "0"),
        ("synthetic-series", "data.train_fraction", "0"),
        ("synthetic-series", "data.train_fraction", "1"),
        ("synthetic-series", "data.train_fraction", "0.9"),
        ("synthetic-series", "data.validation_fraction", "0.4"),
        ("synthetic-series", "data.validation_fraction", "nan"),
    ],
)
def test_error_names_the_key_of_a_value_out_of_range_in_another_task(name: str, key: str, value: str) -> None:
    with pytest.raises(UserError, match=rf"--set .*: .*\b{key.rpartition('.')[2]}\b.* must "):
        load_recipe(find_recipe(name), [f"{key}={value}"])


def test_fractions_without_training_data_are_an_error(recipe: Path) -> None:
    overrides = ["data.validation_fraction=0.4", "data.test_fraction=0.6"]
    with pytest.raises(UserError, match="must leave documents for training"):
        load_recipe(recipe, overrides)


@pytest.mark.parametrize("override", ["data.group_column=author", "data.split_column=fold", "data.final_fit=true"])
def test_key_of_user_data_is_an_error_for_a_data_set(override: str) -> None:
    with pytest.raises(UserError, match=r"must not be set for data\.name 'imdb'; only 'own' has it"):
        load_recipe(find_recipe("imdb-s3"), [override])


def test_only_imdb_has_groups() -> None:
    with pytest.raises(UserError, match=r"groups must be false for data\.name '20newsgroups'; only 'imdb' has them"):
        load_recipe(find_recipe("newsgroups"), ["data.groups=true"])


def test_own_pairs_have_no_disjoint_split() -> None:
    with pytest.raises(UserError, match=r"data\.disjoint must be false for data.name 'own'"):
        load_recipe(find_recipe("synthetic-pairs"), ["data.name=own", "data.disjoint=true"])
