import dataclasses
from pathlib import Path
from typing import Any

import pytest

from model.cli.train import RECIPES, find_recipe
from model.config.run import (
    ClassificationRun,
    ClassifierConfig,
    DropoutConfig,
    EncoderConfig,
    MatcherConfig,
    StemConfig,
    WordStemConfig,
    buckets_of,
    from_dict,
    load_recipe,
)
from model.errors import UserError

RECIPE = """
name = "tiny"
task = "text-classification"
seed = 3

[data]
name = "synthetic"

[model]
kind = "bytes"

[model.encoder]
seq_len = 64
dim = 16

[model.encoder.dropout]
hidden = 0.1

[training]
epochs = 2
batch_size = 4
learning_rate = 1
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def table(recipe: Path) -> dict[str, Any]:
    return load_recipe(recipe).to_dict()


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_recipe_parses(path: Path) -> None:
    config = load_recipe(find_recipe(path.stem))
    assert from_dict(config.to_dict()) == config


def test_paper_recipe_has_the_values_of_table_8() -> None:
    """Wang et al. 2024, arXiv:2408.08567, Table 8, column Text."""
    config = load_recipe(RECIPES / "imdb-paper.toml")
    assert isinstance(config, ClassificationRun)
    training, encoder = config.training, config.model.encoder
    assert (training.epochs, training.batch_size) == (30, 32)
    assert (training.learning_rate, training.weight_decay) == (1e-4, 1e-2)
    assert (encoder.num_segments, encoder.num_rows, encoder.num_columns) == (8, 8, 8)
    assert (encoder.dropout.embedding, encoder.dropout.attention, encoder.dropout.smoother) == (0.5, 0.1, 0.5)
    assert (encoder.attention, encoder.mode) == ("s3", "paper")


def test_recipe_sets_what_it_names_and_defaults_give_the_rest(recipe: Path) -> None:
    config = load_recipe(recipe)
    assert isinstance(config, ClassificationRun)
    assert (config.name, config.seed, config.model.encoder.seq_len, config.model.encoder.dropout.hidden) == (
        "tiny",
        3,
        64,
        0.1,
    )
    assert (config.data.crop, config.model.encoder.num_heads, config.model.encoder.dropout.smoother) == (
        "random",
        2,
        0.0,
    )


def test_integer_is_read_as_float_where_one_is_wanted(recipe: Path) -> None:
    assert type(load_recipe(recipe).training.learning_rate) is float


def test_dict_round_trip_keeps_every_field(table: dict[str, Any]) -> None:
    config = from_dict(table)
    assert isinstance(config, ClassificationRun)
    encoder = dataclasses.replace(config.model.encoder, dropout=DropoutConfig(attention=0.3))
    changed = dataclasses.replace(config, model=dataclasses.replace(config.model, encoder=encoder))
    assert from_dict(changed.to_dict()) == changed != config


@pytest.mark.parametrize("key", ["colour", "data.colour", "model.encoder.dropout.colour", "training.learning_rates"])
def test_unknown_key_is_an_error_that_names_it(recipe: Path, key: str) -> None:
    with pytest.raises(UserError, match=rf"tiny\.toml: unknown key {key}; known: \w+"):
        load_recipe(recipe, [f"{key}=1"])


@pytest.mark.parametrize(
    "key",
    [
        "name",
        "seed",
        "data",
        "data.name",
        "model.kind",
        "model.encoder",
        "training.epochs",
        "training.learning_rate",
    ],
)
def test_missing_key_is_an_error_that_names_it(table: dict[str, Any], key: str) -> None:
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
def test_value_of_the_wrong_type_is_an_error_that_names_the_key(recipe: Path, key: str, value: str) -> None:
    with pytest.raises(UserError, match=rf"tiny\.toml: {key} must be (of type|a section)"):
        load_recipe(recipe, [f"{key}={value}"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "../elsewhere"),
        ("name", "Upper case"),
        ("task", "translation"),
        ("seed", "9223372036854775808"),
        ("data.name", "wikipedia"),
        ("data.crop", "tail"),
        ("data.validation_fraction", "0"),
        ("data.validation_fraction", "nan"),
        ("data.split_seed", "-9223372036854775809"),
        ("model.encoder.seq_len", "63"),
        ("model.encoder.seq_len", "0"),
        ("model.encoder.dim", "-64"),
        ("model.encoder.num_heads", "3"),
        ("model.encoder.num_layers", "-1"),
        ("model.encoder.num_segments", "0"),
        ("model.encoder.num_segments", "-8"),
        ("model.encoder.num_segments", "5"),
        ("model.encoder.num_rows", "65"),
        ("model.encoder.num_columns", "9"),
        ("model.encoder.dropout.smoother", "1.0"),
        ("model.encoder.dropout.smoother", "nan"),
        ("model.kind", "letters"),
        ("model.encoder.mode", "published"),
        ("model.stem.longest", "0"),
        ("model.stem.longest", "9"),
        ("model.stem.num_slots", "1"),
        ("model.stem.num_slots", "1000"),
        ("model.stem.num_slots", "33554432"),
        ("model.stem.patch_length", "0"),
        ("model.stem.dropout", "1.0"),
        ("model.stem.dropout", "-0.1"),
        ("training.epochs", "0"),
        ("training.batch_size", "-1"),
        ("training.learning_rate", "nan"),
        ("training.learning_rate", "inf"),
        ("training.weight_decay", "-0.1"),
        ("training.weight_decay", "nan"),
        ("training.warmup_steps", "-1"),
    ],
)
def test_value_out_of_range_is_an_error_that_names_the_key(recipe: Path, key: str, value: str) -> None:
    with pytest.raises(UserError, match=rf"tiny\.toml: {key} must "):
        load_recipe(recipe, [f"{key}={value}"])


@pytest.mark.parametrize(
    ("recipe_name", "key", "value"),
    [
        ("synthetic-pairs", "data.max_bytes", "0"),
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
        ("synthetic-series", "data.train_fraction", "0"),
        ("synthetic-series", "data.train_fraction", "1"),
        ("synthetic-series", "data.train_fraction", "0.9"),
        ("synthetic-series", "data.validation_fraction", "0.4"),
        ("synthetic-series", "data.validation_fraction", "nan"),
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
def test_value_out_of_range_in_another_task_is_an_error_that_names_the_key(
    recipe_name: str, key: str, value: str
) -> None:
    full = f"model.{key}" if key.startswith("stem.") else key
    with pytest.raises(UserError, match=rf"{recipe_name}\.toml: .*\b{key.rpartition('.')[2]}\b.* must "):
        load_recipe(find_recipe(recipe_name), [f"{full}={value}"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.patch_length=7", r"model\.context_length must be encoder\.seq_len \* patch_length = 42, not 48"),
        ("model.kind=paper", r"model\.patch_length must be 1 in the paper's forecaster, not 8"),
    ],
)
def test_patches_that_do_not_fit_the_window_are_an_error(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_recipe(find_recipe("synthetic-series"), [override])


@pytest.mark.parametrize(
    ("max_length", "multiple", "buckets"),
    [
        (4096, 16, (256, 512, 1024, 2048, 4096)),
        (3000, 8, (256, 512, 1024, 2048, 3000)),
        (4096, 512, (512, 1024, 2048, 4096)),
        (2400, 24, (2400,)),
        (257, 1, (256, 257)),
        (256, 1, (256,)),
        (24, 1, (24,)),
        (1, 1, (1,)),
    ],
)
def test_buckets_are_powers_of_two_and_the_longest(max_length: int, multiple: int, buckets: tuple[int, ...]) -> None:
    assert buckets_of(max_length, multiple) == buckets


def test_buckets_of_a_model_are_those_that_its_patches_fill() -> None:
    encoder, paper = EncoderConfig(seq_len=64), EncoderConfig(seq_len=64, mode="paper")
    words, ngrams = WordStemConfig(patch_length=16), StemConfig(patch_length=16)
    assert ClassifierConfig("words", encoder, words).buckets == (256, 512, 1024)
    assert ClassifierConfig("words", paper, words).buckets == (1024,)
    assert ClassifierConfig("bytes", encoder, words).buckets == (64,)
    assert ClassifierConfig("bytes", EncoderConfig(seq_len=512)).buckets == (256, 512)
    assert MatcherConfig(ngrams, encoder).buckets == (256, 512, 1024)
    assert MatcherConfig(ngrams, paper).buckets == (1024,)


def test_published_forecaster_has_its_own_attention() -> None:
    sets = [
        "model.kind=paper",
        "model.patch_length=1",
        "model.encoder.seq_len=48",
        "model.encoder.attention=softmax",
    ]
    with pytest.raises(UserError, match=r"encoder\.attention must be 's3' in the paper's forecaster, not 'softmax'"):
        load_recipe(find_recipe("synthetic-series"), sets)


def test_smoother_of_nothing_is_an_error() -> None:
    sets = ["model.encoder.use_fourier=false", "model.encoder.use_stem=false"]
    with pytest.raises(UserError, match="use_fourier and use_stem must not both be false"):
        load_recipe(find_recipe("synthetic"), sets)
    load_recipe(find_recipe("synthetic"), [*sets, "model.encoder.use_smoother=false"])


def test_forecaster_that_is_length_aware_is_an_error() -> None:
    with pytest.raises(UserError, match=r"model\.encoder\.mode must be 'paper', for windows have one length"):
        load_recipe(find_recipe("synthetic-series"), ["model.encoder.mode=length-aware"])


def test_length_that_does_not_factor_is_an_error() -> None:
    assert EncoderConfig(seq_len=4000).fourier_factors == (50, 80)
    assert EncoderConfig(seq_len=2046).fourier_factors == (33, 62)
    with pytest.raises(ValueError, match=r"two numbers of at most 1,024, as .*; 4,078 = 2 x 2,039"):
        EncoderConfig(seq_len=4078)
    assert EncoderConfig(seq_len=4078, use_fourier=False).seq_len == 4078


@pytest.mark.parametrize("recipe_name", ["synthetic-pairs", "synthetic-series"])
def test_encoder_of_another_task_is_named_in_full(recipe_name: str) -> None:
    with pytest.raises(UserError, match=r"toml: model\.encoder\.num_heads must divide"):
        load_recipe(find_recipe(recipe_name), ["model.encoder.num_heads=3"])


@pytest.mark.parametrize("task", ["translation", 3, None, ["forecasting"]])
def test_task_that_is_none_of_ours_is_an_error_that_lists_them(table: dict[str, Any], task: object) -> None:
    with pytest.raises(ValueError, match=r"^task must be one of text-classification, text-matching, forecasting, not"):
        from_dict(table | {"task": task})
    del table["task"]
    with pytest.raises(ValueError, match=r"^task must be one of .*, not None$"):
        from_dict(table)


@pytest.mark.parametrize("task", ["text-matching", "forecasting"])
def test_sections_of_another_task_are_an_error(recipe: Path, task: str) -> None:
    with pytest.raises(UserError, match=r"tiny\.toml: (unknown|missing) key model\.|data\.name must be one of"):
        load_recipe(recipe, [f"task={task}"])


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=7", 7),
        ("name=other", "other"),
        ('name="other"', "other"),
        ("training.learning_rate=5e-4", 5e-4),
        ("data.crop=head", "head"),
        ("model.encoder.dropout.attention=0.25", 0.25),
        (" model.encoder.dropout.hidden = 0.5", 0.5),
    ],
)
def test_override_changes_one_key_only(recipe: Path, override: str, expected: object) -> None:
    key = override.partition("=")[0].strip()
    before, after = load_recipe(recipe).to_dict(), load_recipe(recipe, [override]).to_dict()
    assert flat(after) == flat(before) | {key: expected}


def test_last_override_of_a_key_wins(recipe: Path) -> None:
    assert load_recipe(recipe, ["seed=1", "seed=2"]).seed == 2


@pytest.mark.parametrize("override", ["seed", "", "seed.low=1", "data.name.first=1"])
def test_override_that_cannot_be_applied_is_an_error_that_quotes_it(recipe: Path, override: str) -> None:
    with pytest.raises(UserError, match=rf"--set '{override}'"):
        load_recipe(recipe, [override])


def test_recipe_that_is_not_toml_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("name = 'x'\nseed = ?\n")
    with pytest.raises(UserError, match=r"broken\.toml: .*line 2"):
        load_recipe(path)


def test_recipe_that_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.toml does not exist"):
        load_recipe(find_recipe(str(tmp_path / "absent.toml")))
    with pytest.raises(UserError, match=r"no recipe 'absent'; known: .*synthetic"):
        find_recipe("absent")


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as one dict with dotted keys."""
    rows: dict[str, Any] = {}
    for key, value in table.items():
        rows |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return rows
