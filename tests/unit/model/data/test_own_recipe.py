import json
from pathlib import Path

import pytest

from model.config.recipes import OWN_RECIPES, find_recipe, load_recipe
from model.config.run import ClassificationRun
from model.data.own_recipe import OwnData, settings_for
from model.errors import UserError


def documents(folder: Path, texts: list[str], name: str = "a.jsonl") -> OwnData:
    path = folder / name
    path.write_text("".join(json.dumps({"text": text, "label": i % 2}) + "\n" for i, text in enumerate(texts)))
    return OwnData(path)


def with_unlabelled(folder: Path, labelled: int, unlabelled: int | None) -> OwnData:
    """Short labelled documents, and different unlabelled ones."""
    data = documents(folder, ["text"] * labelled)
    if unlabelled is None:
        return data
    path = folder / "more.jsonl"
    path.write_text("".join(json.dumps({"text": f"text {i}"}) + "\n" for i in range(unlabelled)))
    return OwnData(data.path, unlabelled=path)


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
    assert settings["model.ngram_view.max_length"] == length


@pytest.mark.parametrize(("count", "batch", "epochs"), [(10, 2, 20), (200, 10, 20), (4000, 64, 14), (50_000, 64, 2)])
def test_small_files_of_pairs_get_more_epochs_and_smaller_batches(
    count: int, batch: int, epochs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text_a": "one", "text_b": "two", "label": 0}) + "\n")
    path.write_text(path.read_text() * count)
    settings = settings_for("text-matching", OwnData(path))
    assert (settings["training.batch_size"], settings["training.epochs"]) == (batch, epochs)
    assert f"{batch} rows a batch, {epochs} epochs at most" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "batch", "epochs"), [(1250, 62, 12), (4000, 64, 4), (10_000, 64, 2), (50_000, 64, 1)]
)
def test_small_files_of_documents_get_more_epochs_in_each_round(
    count: int, batch: int, epochs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for("text-classification", documents(tmp_path, ["text"] * count))
    assert (settings["training.batch_size"], settings["training.epochs"]) == (batch, epochs)
    assert f"{batch} documents a batch, {epochs} epochs in each round" in capsys.readouterr().out


@pytest.mark.parametrize("unlabelled", [None, 199])
def test_few_documents_have_no_vector_view(
    unlabelled: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1,000 labelled documents, of which 800 are trained on."""
    settings = settings_for("text-classification", with_unlabelled(tmp_path, 1000, unlabelled))
    assert settings["model.vector_view.rounds"] == []
    found = 800 + (unlabelled or 0)
    assert f"{found} documents to train on are fewer than 1,000: no vector view" in capsys.readouterr().out
    assert not {"training.batch_size", "training.epochs", "model.encoder.seq_len"} & settings.keys()


@pytest.mark.parametrize(
    ("labelled", "unlabelled", "rounds"), [(1250, None, 1), (1250, 1, 3), (1000, 200, 3), (10, 992, 3)]
)
def test_later_rounds_need_unlabelled_documents(
    labelled: int, unlabelled: int | None, rounds: int, tmp_path: Path
) -> None:
    """Only with these does the second round have a better teacher than the first."""
    data = with_unlabelled(tmp_path, labelled, unlabelled)
    config = load_recipe(find_recipe("documents"), [], settings_for("text-classification", data))
    assert isinstance(config, ClassificationRun)
    assert config.model.vector_view is not None
    assert len(config.model.vector_view.rounds) == rounds
    assert config.data.unlabelled == (unlabelled is not None)
    assert config.model.encoder.seq_len == 512 / 4


def test_different_unlabelled_texts_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = with_unlabelled(tmp_path, 1000, 300)
    assert data.unlabelled is not None
    data.unlabelled.write_text(data.unlabelled.read_text() * 3)
    assert settings_for("text-classification", data)["training.batch_size"] == 64
    out = capsys.readouterr().out
    assert "300 different unlabelled texts" in out
    assert "vector view: 0.0 MB are read, 64 documents a batch, 12 epochs in each round" in out


@pytest.mark.parametrize(("size", "epochs"), [(10, 20), (4000, 10), (9000, 10)])
def test_word_vectors_of_short_texts_are_trained_for_more_epochs(size: int, epochs: int, tmp_path: Path) -> None:
    """One window of at most 4,096 bytes of each text is read."""
    settings = settings_for("text-classification", documents(tmp_path, ["x" * size] * 1250))
    assert settings["model.vector_view.vectors.epochs"] == epochs


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
