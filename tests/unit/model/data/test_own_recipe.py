import json
from pathlib import Path

import pytest

from model.config.recipes import OWN_RECIPES, find_recipe, load_recipe
from model.data.own_recipe import OwnData, settings_for
from model.errors import UserError


def documents(folder: Path, texts: list[str], name: str = "a.jsonl") -> OwnData:
    path = folder / name
    path.write_text("".join(json.dumps({"text": text, "label": i % 2}) + "\n" for i, text in enumerate(texts)))
    return OwnData(path)


@pytest.mark.parametrize(
    ("size", "length"), [(10, 512), (512, 512), (513, 1024), (2000, 2048), (2049, 4096), (9000, 4096)]
)
def test_max_length_covers_most_documents(
    size: int, length: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nine of ten documents are short, and one of a hundred is far longer than the others."""
    texts = [
        f"{i} " + "x" * ((90_000 if i % 100 == 7 else size if i % 10 == 3 else 9) - len(f"{i} ")) for i in range(200)
    ]
    settings = settings_for("text-classification", documents(tmp_path, texts))
    assert f"{length:,} bytes are read at once" in capsys.readouterr().out
    assert settings["model.encoder.seq_len"] == length / 16


@pytest.mark.parametrize(("count", "batch", "epochs"), [(10, 2, 20), (200, 10, 20), (4000, 64, 14), (50_000, 64, 2)])
def test_small_files_get_more_epochs_and_smaller_batches(count: int, batch: int, epochs: int, tmp_path: Path) -> None:
    settings = settings_for("text-classification", documents(tmp_path, ["text"] * count))
    assert (settings["training.batch_size"], settings["training.epochs"]) == (batch, epochs)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("My Reviews (2).2024.jsonl", "my-reviews-2"), ("Ä.jsonl", "documents"), ("x" * 63 + "-y.jsonl", "x" * 63)],
)
def test_model_is_named_after_its_file(name: str, expected: str, tmp_path: Path) -> None:
    assert settings_for("text-classification", documents(tmp_path, ["a", "b"], name))["name"] == expected


def test_settings_make_the_recipe_of_each_task_valid(tmp_path: Path) -> None:
    """Columns whose names TOML would have to escape among them."""
    odd = 'a "quoted" \\ column'
    pairs = tmp_path / "p.jsonl"
    pairs.write_text("".join(json.dumps({odd: f"{i}", "b": "x", "l": i % 2}) + "\n" for i in range(50)))
    of = {
        "text-classification": OwnData(pairs, (odd,), "l"),
        "text-matching": OwnData(pairs, (odd, "b"), "l"),
    }
    for task, data in of.items():
        config = load_recipe(find_recipe(OWN_RECIPES[task]), [], settings_for(task, data)).to_dict()
        assert config["task"] == task
        assert config["data"].get("text_column", odd) == odd


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        ("text-classification", ("a", "b"), "text-classification needs 1, not 2: a b"),
        ("text-matching", ("a",), "text-matching needs 2, not 1: a"),
    ],
)
def test_wrong_number_of_text_columns_is_an_error(
    task: str, columns: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        settings_for(task, OwnData(tmp_path, columns))
