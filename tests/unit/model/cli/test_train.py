"""Errors before any training starts."""

from pathlib import Path

import pytest
import torch

from model.config.run import RUNS, MatchingRun
from model.tasks import tfidf, words
from model.training import checkpoint
from tests.support.commands import call


def test_train_rejects_a_recipe_together_with_an_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("date,a\n" + "".join(f"2024-01-01T00:{i:02},{i % 7}\n" for i in range(60)))
    arguments = ["--task", "forecasting", "--data", tmp_path / "rows.csv", "--set", "training.epochs=1"]
    assert call("train", "weather-s3", "--runs", tmp_path / "runs", "--device", "cpu", *arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_train_rejects_a_recipe_of_another_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "synthetic", "--device", "cpu", "--set", "training.epochs=1", "--runs"]
    assert call(*command, tmp_path, "--task", "text-matching") == 2
    assert capsys.readouterr().err == "error: recipe synthetic is for text-classification, not text-matching\n"
    assert call(*command, tmp_path / "same", "--task", "text-classification") == 0


def test_train_rejects_a_file_without_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("train", "--data", tmp_path / "rows.csv", "--runs", tmp_path, "--device", "cpu") == 2
    assert capsys.readouterr().err == f"error: --data needs --task ({', '.join(RUNS)})\n"


def test_train_rejects_a_file_with_a_recipe_of_another_data_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("text_a,text_b,label\n" + "".join(f"{i},{i},{i % 2}\n" for i in range(40)))
    arguments = ["--data", tmp_path / "rows.csv", "--task", "text-matching", "--runs", tmp_path, "--device", "cpu"]
    assert call("train", "aan", *arguments) == 2
    expected = "error: with --data, a recipe must have data.name = 'own'; recipe aan has 'aan'\n"
    assert capsys.readouterr().err == expected
    (tmp_path / "wrong.toml").write_text('task = "text-matching"\ndata = 3\n')
    assert call("train", tmp_path / "wrong.toml", *arguments) == 2
    assert capsys.readouterr().err.endswith("wrong.toml has None\n")
    assert call("train", "documents", *arguments) == 2
    assert capsys.readouterr().err == "error: recipe documents is for text-classification, not text-matching\n"


def test_keys_of_a_recipe_win_over_those_derived_from_the_file(tmp_path: Path) -> None:
    rows = "".join(f"word{i % 9} tea,word{i % 9} cup,{int(i % 9 > 4)}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text("query,document,match\n" + rows)
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'base = "pairs"\nname = "mine"\n'
        '[data]\ntext_column = "query"\nother_column = "document"\nlabel_column = "match"\n'
        "[model.lexical_view]\nmax_length = 2048\nnum_ngrams = 64\n"
    )
    arguments = ["--task", "text-matching", "--data", tmp_path / "rows.csv", "--runs", tmp_path, "--device", "cpu"]
    assert call("train", recipe, *arguments, "--set", "model.encoder.seq_len=128") == 0
    config = checkpoint.load(tmp_path / "mine-seed0" / checkpoint.BEST).config
    assert isinstance(config, MatchingRun)
    assert (config.data.text_column, config.data.label_column) == ("query", "match")
    assert config.model.lexical_view is not None
    assert (config.model.lexical_view.max_length, config.model.lexical_view.num_ngrams) == (2048, 64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a recipe, such as imdb-s3, or give --task, with --data for your own file or folder"),
        (("--resume",), "name a recipe, such as imdb-s3, or give --task, with --data for your own file or folder"),
        (("--task", "text-classification", "--text-column", "body"), "--text-column needs --data, your own file"),
        (("synthetic", "--label-column", "topic"), "--label-column needs --data, your own file or folder, and --task"),
        (("--task", "forecasting", "--frequency", "1mo"), "--frequency needs --data, your own file or folder"),
        (("--task", "forecasting", "--fill"), "--fill needs --data, your own file or folder, and --task"),
        (("--task", "forecasting", "--time-column", "at"), "--time-column needs --data, your own file or folder"),
    ],
)
def test_options_of_own_data_need_data(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", *arguments, "--runs", tmp_path, "--device", "cpu") == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("task", "option", "tasks"),
    [
        ("text-classification", ("--fill",), "forecasting"),
        ("text-classification", ("--channels", "a"), "series-classification or forecasting"),
        ("text-classification", ("--time-column", "at"), "series-classification or forecasting"),
        ("text-matching", ("--frequency", "1d"), "forecasting"),
        ("forecasting", ("--text-column", "body"), "text-classification or text-matching"),
        ("forecasting", ("--label-column", "topic"), "text-classification or series-classification or text-matching"),
        ("series-classification", ("--target-column", "y"), "forecasting"),
    ],
)
def test_options_that_a_task_ignores_are_refused(
    task: str, option: tuple[str, ...], tasks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", "--task", task, "--data", tmp_path, *option, "--runs", tmp_path, "--device", "cpu") == 2
    assert capsys.readouterr().err == f"error: {option[0]} is for --task {tasks}, not {task}\n"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("model.ngram_view.longest=9",), "--set model.ngram_view.longest=9: model.ngram_view.longest must be in 1..8"),
        (("seed=1", "data.colour=2"), "unknown key data.colour"),
        (("seed=1", "model.encoder.num_heads=7"), "--set model.encoder.num_heads=7: model.encoder.num_heads must"),
        (("seed=1", "model.encoder.dim=4"), "--set seed=1 --set model.encoder.dim=4: "),
    ],
)
def test_errors_from_set_name_the_option(
    settings: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A set key that makes another one invalid is named, too."""
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"text {i},{'xy'[i % 2]}\n" for i in range(40)))
    overrides = [part for setting in settings for part in ("--set", setting)]
    command = ("train", "--task", "text-classification", "--data", path, "--runs", tmp_path, "--device", "cpu")
    assert call(*command, *overrides) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_existing_run_is_an_error_before_any_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"{'long text ' * 600} {i},{'xy'[i % 2]}\n" for i in range(40)))
    (tmp_path / "a-seed0").mkdir()
    (tmp_path / "a-seed0" / "last.pt").write_bytes(b"")
    for name in ("choose_length", "choose"):
        monkeypatch.setattr(words, name, lambda *_, **__: pytest.fail("searched"))
    monkeypatch.setattr(tfidf, "fit_classifier", lambda *_, **__: pytest.fail("searched"))
    command = ("train", "--task", "text-classification", "--data", path, "--runs", tmp_path, "--device", "cpu")
    assert call(*command) == 2
    assert f"error: {tmp_path}/a-seed0 exists; resume it with --resume" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["text-matching", "forecasting", "text-classification"])
def test_max_bytes_are_for_own_documents(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = () if task == "text-classification" else ("--data", tmp_path / "rows.csv")
    assert call("train", "--task", task, *data, "--max-bytes", 4096, "--runs", tmp_path, "--device", "cpu") == 2
    assert capsys.readouterr().err == "error: --max-bytes needs --task text-classification and --data\n"


@pytest.mark.parametrize("value", ["128", "5000", "131072", "many"])
def test_max_bytes_are_a_power_of_two(value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--task", "text-classification", "--data", tmp_path / "rows.csv", "--max-bytes", value]
    with pytest.raises(SystemExit, match="2"):
        call("train", *arguments)
    error = capsys.readouterr().err
    assert value in error
    assert value == "many" or "256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536" in error


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_train_on_unavailable_cuda_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("train", "synthetic", "--runs", tmp_path, "--device", "cuda") == 2
    assert capsys.readouterr().err == "error: --device cuda: no CUDA device is available\n"
