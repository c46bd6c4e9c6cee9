import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from model.config.recipes import find_recipe, load_recipe
from model.config.run import RUNS, ClassificationRun
from model.data import own_recipe
from model.data.own import DataFiles
from model.data.own_recipe import RecipeKeys, TextLayout, read_texts
from model.errors import UserError


@dataclass(frozen=True)
class OwnData:
    """User data, as options name them."""

    path: Path
    text_columns: tuple[str, ...] = ()
    label_column: str = "label"
    unlabelled: Path | None = None
    max_bytes: int | None = None


def settings_for(task: str, data: OwnData, given: Mapping[str, object] = MappingProxyType({})) -> RecipeKeys:
    layout = TextLayout(data.text_columns, data.label_column, max_bytes=data.max_bytes)
    return read_texts(task, DataFiles(data=data.path, unlabelled=data.unlabelled), layout, given)[0]


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


def configured(data: OwnData) -> ClassificationRun:
    """Return the recipe of a classifier."""
    config = load_recipe(find_recipe("documents"), [], settings_for("text-classification", data))
    assert isinstance(config, ClassificationRun)
    return config


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


@pytest.mark.parametrize("length", [256, 4096, 8192, 65_536])
def test_max_bytes_of_the_user_replace_the_length_of_the_documents(
    length: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = replace(with_unlabelled(tmp_path, 100, 900), max_bytes=length)
    config = configured(data)
    assert f"{length:,} bytes are read at once" in capsys.readouterr().out
    assert (config.model.max_length, config.model.buckets[-1]) == (length, length)
    assert config.model.required_encoder.seq_len == min(128, length // 8)
    ngrams = config.model.ngram_view
    assert (ngrams.sublinear, ngrams.max_strength) == ((True, 3_000.0) if length > 4096 else (False, 100.0))


@pytest.mark.parametrize(
    ("count", "batch", "epochs", "joint_epochs"),
    [(10, 2, 20, 20), (200, 10, 20, 20), (4000, 64, 14, 8), (50_000, 64, 2, 2)],
)
def test_small_files_of_pairs_get_more_epochs_and_smaller_batches(
    count: int, batch: int, epochs: int, joint_epochs: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text_a": "one", "text_b": "two", "label": 0}) + "\n")
    path.write_text(path.read_text() * count)
    settings = settings_for("text-matching", OwnData(path))
    assert (settings["training.batch_size"], settings["training.epochs"]) == (batch, epochs)
    joint = (settings[f"model.joint_view.training.{key}"] for key in ("batch_size", "epochs"))
    assert tuple(joint) == (batch, joint_epochs)


@pytest.mark.parametrize(("labels", "is_graded"), [((0, 1), False), (("no", "YES"), False), ((0, 0.3, 1), True)])
def test_labels_tell_whether_they_are_degrees(labels: tuple[object, ...], is_graded: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = ({"text_a": "one", "text_b": "two", "label": label} for label in labels * 5)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert settings_for("text-matching", OwnData(path))["data.graded"] == is_graded


def test_labels_alone_have_no_vector_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = configured(with_unlabelled(tmp_path, 6_250, None))
    assert config.model.vector_view is not None
    assert config.model.vector_view.rounds == ()
    assert not config.data.unlabelled
    assert "vector view" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("labelled", "unlabelled", "batch", "epochs"), [(10, 1, 2, 20), (10, 990, 32, 13), (4000, 6000, 32, 1)]
)
def test_vector_view_learns_from_any_number_of_unlabelled_documents(
    labelled: int, unlabelled: int, batch: int, epochs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(with_unlabelled(tmp_path, labelled, unlabelled))
    assert config.model.vector_view is not None
    assert len(config.model.vector_view.rounds) == 2
    assert config.data.unlabelled
    assert config.model.required_encoder.seq_len == 512 / 8
    assert (config.training.batch_size, config.training.epochs) == (batch, epochs)
    out = capsys.readouterr().out
    assert f"{unlabelled:,} different unlabelled texts" in out
    assert f"{batch} documents a batch, {epochs} epochs in each round" in out


def test_repeated_unlabelled_texts_count_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = with_unlabelled(tmp_path, 100, 300)
    once = configured(data)
    assert data.unlabelled is not None
    data.unlabelled.write_text(data.unlabelled.read_text() * 3)
    assert configured(data) == once
    assert "300 different unlabelled texts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "expected"),
    [("My Reviews (2).2024.jsonl", "my-reviews-2"), ("Ä.jsonl", "documents"), ("x" * 63 + "-y.jsonl", "x" * 63)],
)
def test_model_is_named_after_its_file(name: str, expected: str, tmp_path: Path) -> None:
    assert settings_for("text-classification", documents(tmp_path, ["a", "b"], name))["name"] == expected


@pytest.mark.parametrize(
    ("task", "layout", "message"),
    [
        (
            "text-classification",
            TextLayout(label_column="text"),
            "--text-column and --label-column must name different columns, not 'text' twice",
        ),
        (
            "text-classification",
            TextLayout(group_column="label"),
            "--label-column and --group-column must name different columns, not 'label' twice",
        ),
        (
            "text-classification",
            TextLayout(label_column="split"),
            "--label-column and --set data.split_column must name different columns, not 'split' twice",
        ),
        (
            "text-matching",
            TextLayout(("text_a", "text_a")),
            "--text-column must name different columns, not 'text_a' twice",
        ),
    ],
)
def test_each_column_has_one_role(task: str, layout: TextLayout, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_texts(task, DataFiles(data=tmp_path / "a.csv"), layout, {})
    assert str(caught.value) == message


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
        config = load_recipe(find_recipe(RUNS[task].own_recipe), [], settings_for(task, data)).to_dict()
        assert config["task"] == task
        assert config["data"].get("text_column", odd) == odd


def test_prefixes_and_counts_are_the_start_with_labels_alone_and_up_to_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = with_unlabelled(tmp_path, 100, None)
    view = configured(data).model.ngram_view
    assert view.prefixes
    assert view.sublinear
    assert view.tried == ("sublinear", "prefixes")
    monkeypatch.setattr(own_recipe, "PREFIX_BYTES", 399)
    view = configured(data).model.ngram_view
    assert not view.prefixes
    assert view.sublinear
    assert view.tried == ("sublinear",)
    view = configured(with_unlabelled(tmp_path, 100, 900)).model.ngram_view
    assert not view.prefixes
    assert not view.sublinear
    assert not view.tried


def test_vectors_of_bytes_learn_less_from_single_documents(tmp_path: Path) -> None:
    data = with_unlabelled(tmp_path, 100, 900)
    assert settings_for("text-classification", data, {"model.kind": "bytes"})["training.beta2"] == 0.98
    assert "training.beta2" not in settings_for("text-classification", data)


@pytest.mark.parametrize(("patch", "tokens"), [(None, 64), (4, 128), (16, 32)])
def test_patches_of_a_model_of_bytes_fill_its_rows(patch: int | None, tokens: int, tmp_path: Path) -> None:
    given = {"model.kind": "bytes"} | ({} if patch is None else {"model.vector_view.bytes_per_token": patch})
    files, layout = DataFiles(data=documents(tmp_path, ["text"] * 10).path), TextLayout()
    keys, _ = read_texts("text-classification", files, layout, given)
    overrides = [f"{key}={json.dumps(value)}" for key, value in given.items()]
    config = load_recipe(find_recipe("documents"), overrides, keys)
    assert isinstance(config, ClassificationRun)
    assert (config.model.max_length, config.model.required_encoder.seq_len) == (512, tokens)
    assert not config.model.ngram_view.prefixes
    with pytest.raises(UserError, match=r"bytes_per_token must divide ngram_view\.max_length"):
        load_recipe(find_recipe("documents"), [*overrides, "model.vector_view.bytes_per_token=3"], keys)


def test_model_of_bytes_takes_no_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes("".join(f'{{"text": "é {i}", "label": {i % 2}}}\n' for i in range(8)).encode("cp1252"))
    given, files = {"model.kind": "bytes"}, DataFiles(data=path)
    with pytest.raises(UserError, match=r"--encoding must be left out for a model of bytes, .* not cp1252"):
        read_texts("text-classification", files, TextLayout(encoding="cp1252"), given)
