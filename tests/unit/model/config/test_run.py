from pathlib import Path
from typing import Any

import pytest

from model.config.encoder import DropoutConfig
from model.config.recipes import find_recipe, load_recipe
from model.config.run import RUNS, ClassificationRun, from_dict
from model.errors import UserError
from tests.support.configs import changed


def test_missing_keys_of_a_recipe_get_their_defaults(recipe: Path) -> None:
    config = load_recipe(recipe)
    assert isinstance(config, ClassificationRun)
    encoder = config.model.required_encoder
    assert (config.name, config.seed, encoder.seq_len, encoder.dropout.hidden) == ("tiny", 3, 64, 0.1)
    assert (config.data.crop, encoder.num_heads, encoder.dropout.smoother) == ("random", 2, 0.0)


def test_dict_round_trip_keeps_every_field(table: dict[str, Any]) -> None:
    config = from_dict(table)
    assert isinstance(config, ClassificationRun)
    encoder = changed(config.model.required_encoder, dropout=DropoutConfig(attention=0.3))
    other = changed(config, model=changed(config.model, encoder=encoder))
    assert from_dict(other.to_dict()) == other != config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "../elsewhere"),
        ("name", "Upper case"),
        ("task", "translation"),
        ("seed", "9223372036854775808"),
        ("model.encoder.options.num_segments", "0"),
        ("model.encoder.options.num_segments", "-8"),
        ("model.encoder.options.num_segments", "5"),
        ("model.encoder.options.num_rows", "65"),
        ("model.encoder.options.num_columns", "9"),
        ("model.kind", "letters"),
        ("model.ngram_view.longest", "0"),
        ("model.ngram_view.longest", "9"),
        ("model.ngram_view.num_ngrams", "0"),
        ("model.ngram_view.num_ngrams", "262145"),
        ("model.ngram_view.max_length", "0"),
        ("model.vector_view.bytes_per_token", "0"),
        ("model.vector_view.bytes_per_token", "65"),
        ("model.ngram_vectors.dim", "0"),
        ("model.ngram_vectors.dim", "24"),
        ("model.ngram_vectors.dim", "1040"),
        ("model.ngram_vectors.epochs", "-1"),
        ("training.epochs", "0"),
        ("training.batch_size", "-1"),
        ("training.learning_rate", "nan"),
        ("training.learning_rate", "inf"),
        ("training.weight_decay", "-0.1"),
        ("training.weight_decay", "nan"),
        ("training.warmup_steps", "-1"),
    ],
)
def test_error_names_the_key_of_a_value_out_of_range(recipe: Path, key: str, value: str) -> None:
    with pytest.raises(UserError, match=rf"--set .*: {key} must "):
        load_recipe(recipe, [f"{key}={value}"])


@pytest.mark.parametrize("key", ["rate=0", "rate=-1", "dropout=1.0", "pooled_dropout=-0.1", "ngram_dropout=1.0"])
def test_error_names_the_key_of_a_round(key: str) -> None:
    name = key.partition("=")[0]
    with pytest.raises(UserError, match=rf"--set .*: model\.vector_view\.rounds\.1\.{name} must "):
        load_recipe(find_recipe("documents"), [f"model.vector_view.rounds=[{{}}, {{{key}}}]"])


@pytest.mark.parametrize(
    "key",
    [
        "model.stem.longest=2",
        "model.vector_view.max_length=4096",
        "model.vector_view.epochs=1",
        "model.vector_view.batch_size=64",
        "model.vector_view.warmup_steps=100",
        "model.vector_view.rounds=[{learning_rate=2e-3}]",
    ],
)
def test_key_of_an_earlier_format_is_unknown(key: str) -> None:
    with pytest.raises(UserError, match=r"--set .*: unknown key model\."):
        load_recipe(find_recipe("documents"), [key])


@pytest.mark.parametrize(
    ("recipe_name", "key", "value"),
    [
        ("synthetic-pairs", "stem.shortest", "0"),
        ("synthetic-pairs", "stem.longest", "2"),
        ("synthetic-pairs", "stem.longest", "17"),
        ("synthetic-pairs", "stem.num_buckets", "1"),
        ("synthetic-pairs", "stem.num_buckets", "1000"),
        ("synthetic-pairs", "stem.num_buckets", "33554432"),
        ("synthetic-pairs", "stem.num_buckets", "-1024"),
        ("synthetic-pairs", "stem.patch_length", "0"),
        ("synthetic-pairs", "training.batch_size", "31"),
        pytest.param("synthetic-pairs", "model.head_dim", "-1"),
        pytest.param("synthetic-pairs", "model.head_dim", "0"),
        ("synthetic-series", "model.kind", "linear"),
        ("synthetic-series", "model.context_length", "47"),
        ("synthetic-series", "model.patch_length", "0"),
        ("synthetic-series", "model.prediction_length", "0"),
        ("synthetic-series", "model.head_dim", "0"),
        ("synthetic-series", "model.num_harmonics", "0"),
        ("synthetic-series", "model.linear_share", "1.5"),
        ("synthetic-series", "model.linear_share", "nan"),
        ("synthetic-series", "training.examples_per_epoch", "-1"),
    ],
)
def test_error_names_the_key_of_a_value_out_of_range_in_another_task(recipe_name: str, key: str, value: str) -> None:
    full = f"model.{key}" if key.startswith("stem.") else key
    with pytest.raises(UserError, match=rf"--set .*: .*\b{key.rpartition('.')[2]}\b.* must "):
        load_recipe(find_recipe(recipe_name), [f"{full}={value}"])


@pytest.mark.parametrize("task", ["translation", 3, None, ["forecasting"]])
def test_error_about_an_unknown_task_lists_the_tasks(table: dict[str, Any], task: object) -> None:
    with pytest.raises(ValueError, match=f"^task must be one of {', '.join(RUNS)}, not"):
        from_dict(table | {"task": task})
    del table["task"]
    with pytest.raises(ValueError, match=r"^task must be one of .*, not None$"):
        from_dict(table)


@pytest.mark.parametrize("task", ["text-matching", "forecasting"])
def test_sections_of_another_task_are_an_error(recipe: Path, task: str) -> None:
    with pytest.raises(
        UserError,
        match=r"--set .*: (unknown|missing) key model\.|data\.name must be 'aan'|data\.name must be 'ettm2'",
    ):
        load_recipe(recipe, [f"task={task}"])


def test_unlabelled_documents_that_the_model_would_ignore_are_an_error() -> None:
    message = r"data\.unlabelled must be false for a model without n-gram vectors"
    with pytest.raises(UserError, match=message):
        load_recipe(find_recipe("synthetic"), ["data.unlabelled=true"])
    with pytest.raises(UserError, match=message):
        load_recipe(find_recipe("imdb-s3"), ["model.vector_view.rounds=[]", "model.ngram_vectors.epochs=0"])


@pytest.mark.parametrize("overrides", [["model.vector_view.rounds=[]"], []])
def test_ngram_vectors_learn_from_unlabelled_documents_with_and_without_a_vector_view(overrides: list[str]) -> None:
    config = load_recipe(find_recipe("imdb-s3"), overrides)
    assert isinstance(config, ClassificationRun)
    assert config.data.unlabelled
