import re
from pathlib import Path
from typing import Any

import pytest

from model.config.attentions import S3Options
from model.config.recipes import RECIPES, RENAMED, choose_recipe, find_recipe, load_recipe
from model.config.run import RUNS, ClassificationRun, from_dict
from model.errors import UserError
from tests.support.commands import call


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_recipe_parses(path: Path) -> None:
    config = load_recipe(find_recipe(path.stem))
    assert from_dict(config.to_dict()) == config


def test_names_of_recipes_are_unique() -> None:
    """Otherwise runs and exports would overwrite each other."""
    names = [load_recipe(path).name for path in RECIPES.glob("*.toml")]
    assert sorted(names) == sorted(set(names))


def test_paper_recipe_has_the_values_of_table_8() -> None:
    """Wang et al. 2024, arXiv:2408.08567, Table 8, column Text."""
    config = load_recipe(RECIPES / "imdb-paper.toml")
    assert isinstance(config, ClassificationRun)
    training, encoder = config.training, config.model.required_encoder
    assert (training.epochs, training.batch_size) == (30, 32)
    assert (training.learning_rate, training.weight_decay) == (1e-4, 1e-2)
    options = encoder.options_of(S3Options)
    assert (options.num_segments, options.num_rows, options.num_columns) == (8, 8, 8)
    assert (encoder.dropout.embedding, encoder.dropout.attention, encoder.dropout.smoother) == (0.5, 0.1, 0.5)
    assert (encoder.attention, encoder.mode) == ("s3", "paper-masked")


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
def test_error_quotes_an_invalid_override(recipe: Path, override: str) -> None:
    with pytest.raises(UserError, match=rf"--set '{override}'"):
        load_recipe(recipe, [override])


def test_error_names_a_recipe_that_is_not_toml(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("name = 'x'\nseed = ?\n")
    with pytest.raises(UserError, match=r"broken\.toml: .*line 2"):
        load_recipe(path)


def test_error_names_a_missing_recipe(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.toml does not exist"):
        load_recipe(find_recipe(str(tmp_path / "absent.toml")))
    with pytest.raises(UserError, match=r"no recipe 'absent'; expected one of .*synthetic"):
        find_recipe("absent")


def test_overrides_take_precedence_over_settings(recipe: Path) -> None:
    config = load_recipe(recipe, ["seed=7"], {"seed": 5, "data.text_column": 'the "text" \\ column'})
    assert isinstance(config, ClassificationRun)
    assert (config.seed, config.data.text_column) == (7, 'the "text" \\ column')


@pytest.mark.parametrize("overrides", [["options.num_landmarks=16", "attention=skyformer"], ["attention=skyformer"]])
def test_another_attention_starts_from_its_own_options(overrides: list[str]) -> None:
    """The recipe's options are dropped; options of overrides are kept, in any order."""
    config = load_recipe(find_recipe("synthetic"), [f"model.encoder.{override}" for override in overrides])
    expected = {"num_landmarks": 16 if len(overrides) == 2 else 128, "gamma": 0.01, "num_steps": 6}
    assert config.to_dict()["model"]["encoder"]["options"] == expected
    same = load_recipe(find_recipe("synthetic"), ["model.encoder.attention=s3"])
    assert same == load_recipe(find_recipe("synthetic"))


@pytest.mark.parametrize("name", sorted(path.stem.removeprefix("lra-text-") for path in RECIPES.glob("lra-text-*")))
def test_recipes_of_attentions_differ_only_in_the_attention(name: str) -> None:
    overrides = [f"name=lra-text-{name}", f"model.encoder.attention={name}"]
    assert load_recipe(find_recipe(f"lra-text-{name}")) == load_recipe(find_recipe("lra-text"), overrides)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_error_about_an_old_recipe_name_gives_the_new_one(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", old) == 2
    assert capsys.readouterr().err == f"error: recipe {old!r} is now called {new!r}\n"
    assert find_recipe(new).is_file()


def based(folder: Path, text: str) -> Path:
    path = folder / "based.toml"
    path.write_text(text)
    return path


def test_base_supplies_the_values_that_a_recipe_does_not_set(tmp_path: Path) -> None:
    path = based(
        tmp_path,
        'base = "synthetic"\nname = "other"\n[model.encoder]\nffn_dim = 8\n[model.encoder.options]\nnum_rows = 2\n',
    )
    overrides = ["name=other", "model.encoder.ffn_dim=8", "model.encoder.options.num_rows=2"]
    assert load_recipe(path) == load_recipe(find_recipe("synthetic"), overrides)
    assert load_recipe(path, ["model.encoder.ffn_dim=9"]).to_dict()["model"]["encoder"]["ffn_dim"] == 9


def test_base_with_another_attention_does_not_supply_its_options(tmp_path: Path) -> None:
    path = based(tmp_path, 'base = "synthetic"\n[model.encoder]\nattention = "softmax"\n')
    assert load_recipe(path) == load_recipe(find_recipe("synthetic"), ["model.encoder.attention=softmax"])


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("3", "base must be the name of a recipe, not 3"),
        ('"nosuch"', "no recipe 'nosuch'; expected one of "),
        ('"lra-text-dba"', "base must be a recipe without a base of its own, not 'lra-text-dba'"),
    ],
)
def test_invalid_base_is_an_error(base: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        load_recipe(based(tmp_path, f"base = {base}\n"))


def test_default_recipe_depends_on_task_and_data() -> None:
    assert choose_recipe(None, "text-classification", []).name == "imdb-s3"
    with pytest.raises(UserError, match="name a recipe, such as imdb-s3, or give --task"):
        choose_recipe(None, None, [])
    assert choose_recipe(None, "forecasting", []).name == "ettm2"
    assert choose_recipe(None, "forecasting", [], {}).name == "series"
    with pytest.raises(UserError, match="recipe synthetic is for text-classification, not forecasting"):
        choose_recipe("synthetic", "forecasting", [])


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested sections into one dict with dotted keys."""
    rows: dict[str, Any] = {}
    for key, value in table.items():
        rows |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return rows


@pytest.mark.parametrize("task", RUNS)
def test_default_recipes_belong_to_their_task(task: str) -> None:
    for recipe in (RUNS[task].default_recipe, RUNS[task].own_recipe):
        assert load_recipe(find_recipe(recipe)).task == task
