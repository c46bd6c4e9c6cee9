"""Training of a classifier with two views, stage by stage, and after interruptions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from model.tasks.views import VectorRound
from model.training import checkpoint, views
from tests.support.commands import call

SETTINGS = [
    'data.name="synthetic"',
    "data.unlabelled=false",
    "model.stem.num_slots=1024",
    "model.encoder.seq_len=64",
    "model.encoder.dim=16",
    "model.encoder.num_heads=2",
    "model.encoder.ffn_dim=16",
    "model.encoder.options.num_rows=8",
    "model.encoder.options.num_columns=8",
    "model.vector_view.max_length=256",
    "model.vector_view.vectors.num_words=100",
    "model.vector_view.warmup_steps=2",
    "training.epochs=1",
]
RUN = "imdb-views-seed0"


def train(runs: Path, *arguments: object, settings: list[str] = SETTINGS) -> int:
    overrides = [part for setting in settings for part in ("--set", setting)]
    return call("train", "imdb-views", "--runs", runs, "--device", "cpu", *overrides, *arguments)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    assert train(runs) == 0
    return runs / RUN


def state_of(folder: Path) -> dict[str, Any]:
    model: dict[str, Any] = checkpoint.load(folder / "best.pt")[3]["model"]
    return model


def metrics(folder: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: record[key] for key in record if key[:4] in ("stag", "vali", "vect")} for record in records]


def test_every_stage_is_recorded(trained: Path) -> None:
    assert [record["stage"] for record in metrics(trained)] == ["n-gram view", "round 1", "round 2", "round 3"]
    assert all(0 < record["validation_cross_entropy"] < 0.8 for record in metrics(trained))
    assert "vector_view_accuracy" not in metrics(trained)[0]
    assert (trained / "stages.png").stat().st_size > 1000
    _, progress, facts, _ = checkpoint.load(trained / "best.pt")
    assert progress.best == metrics(trained)[-1 if facts["has_vector_view"] else 0]["validation_accuracy"]


@pytest.mark.parametrize(("round_number", "batch"), [(1, 3), (2, 1), (3, 5)])
def test_interrupted_training_resumes_to_the_same_model(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round_number: int, batch: int
) -> None:
    original = VectorRound.batches

    def batches(learner: VectorRound, epoch: int) -> Iterator[Any]:
        for i, found in enumerate(original(learner, epoch)):
            if learner.seed == f"0-{round_number}" and i == batch:
                raise KeyboardInterrupt
            yield found

    with monkeypatch.context() as patch:
        patch.setattr(VectorRound, "batches", batches)
        assert train(tmp_path) == 130
    monkeypatch.setattr(views, "train_vectors", lambda *_: pytest.fail("trained twice"))
    assert train(tmp_path, "--resume") == 0
    assert metrics(tmp_path / RUN) == metrics(trained)
    found, expected = state_of(tmp_path / RUN), state_of(trained)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_exported_model_agrees_with_the_trained_one(trained: Path, tmp_path: Path) -> None:
    assert call("export", trained, "--out", tmp_path) == 0
    manifest = json.loads((tmp_path / "imdb-views" / "1" / "manifest.json").read_text())
    assert manifest["max_length"] == 256
    assert manifest["training"]["validation"]["metric"] == "accuracy"
    assert call("evaluate", tmp_path / "imdb-views") == 0


def test_vector_view_that_does_not_help_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([0.5, 0.4, 0.4, 0.6])
    monkeypatch.setattr(views, "cross_entropy", lambda *_: next(losses))
    assert train(tmp_path) == 0
    _, progress, facts, state = checkpoint.load(tmp_path / RUN / "best.pt")
    assert facts["has_vector_view"] is False
    assert state["model"]["weights"][1] == 0
    assert progress.best == metrics(tmp_path / RUN)[0]["validation_accuracy"]
    assert call("export", tmp_path / RUN, "--out", tmp_path / "exports") == 0


def test_unlabelled_documents_of_a_data_set_without_any_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, settings=[*SETTINGS, "data.unlabelled=true"]) == 2
    assert "data.unlabelled must be false for data.name 'synthetic'" in capsys.readouterr().err


def own_files(folder: Path) -> tuple[Path, Path]:
    """Labelled and unlabelled documents whose label is a matter of single words."""
    labelled: list[dict[str, object]] = [
        {"text": f"{'good' if i % 2 else 'bad'} film number {i}", "label": i % 2} for i in range(60)
    ]
    unlabelled: list[dict[str, object]] = [
        {"text": f"a {'good' if i % 2 else 'bad'} day, the {i}th"} for i in range(200)
    ]
    paths = folder / "films.jsonl", folder / "days.jsonl"
    for path, rows in zip(paths, (labelled, unlabelled), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths


SMALL = [*SETTINGS[2:-1], "model.vector_view.epochs=1", "model.vector_view.vectors.epochs=1"]


def train_own(folder: Path, *arguments: object) -> int:
    overrides = [part for setting in SMALL for part in ("--set", setting)]
    options = ("--task", "text-classification", "--device", "cpu", "--runs", folder / "runs")
    return call("train", *options, *overrides, *arguments)


def test_own_unlabelled_documents_are_learnt_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled, unlabelled = own_files(tmp_path)
    assert train_own(tmp_path, "--data", labelled, "--unlabelled", unlabelled) == 0
    out = capsys.readouterr().out
    assert "200 unlabelled documents that are not in the labelled data" in out
    assert "vector view kept: " in out or "vector view left out: " in out
    run = tmp_path / "runs/films-seed0"
    assert [record["stage"] for record in metrics(run)] == ["n-gram view", "round 1", "round 2", "round 3"]
    assert call("export", run, "--out", tmp_path / "exports") == 0
    assert call("evaluate", tmp_path / "exports/films", "--data", labelled) == 0


def test_resumed_run_needs_the_same_unlabelled_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled, unlabelled = own_files(tmp_path)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(views.ViewTraining, "_train_ngram_view", interrupt)
        assert train_own(tmp_path, "--data", labelled, "--unlabelled", unlabelled) == 130
    assert "interrupted; resume with --resume" in capsys.readouterr().err
    unlabelled.write_text(unlabelled.read_text().replace("a good day, the 1th", "a good day, the first"))
    assert train_own(tmp_path, "--data", labelled, "--unlabelled", unlabelled, "--resume") == 2
    assert "has other unlabelled documents than this run began with" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [("imdb-views",), ("--task", "text-classification"), ("--task", "text-matching", "--data", "a.csv")]
)
def test_unlabelled_documents_without_labelled_ones_are_refused(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", *arguments, "--unlabelled", tmp_path / "days.jsonl") == 2
    assert "--unlabelled needs --task text-classification and --data" in capsys.readouterr().err


def test_batch_larger_than_all_documents_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled, unlabelled = own_files(tmp_path)
    batch = ("--set", "model.vector_view.batch_size=1000")
    assert train_own(tmp_path, "--data", labelled, "--unlabelled", unlabelled, *batch) == 2
    assert (
        "model.vector_view.batch_size must be at most 248, the number of documents, not 1000" in capsys.readouterr().err
    )


def test_repeated_unlabelled_texts_count_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled, unlabelled = own_files(tmp_path)
    unlabelled.write_text(unlabelled.read_text() * 20)
    assert train_own(tmp_path, "--data", labelled, "--unlabelled", unlabelled) == 0
    assert "200 different unlabelled texts, 0.0 MB of which are read: 14 a batch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("good film number 1", (), "all unlabelled texts also occur in the labelled data"),
        ("new", ("--set", "data.unlabelled=false"), "--unlabelled needs data.unlabelled=true"),
    ],
)
def test_unlabelled_documents_that_would_not_be_read_are_an_error(
    text: str, arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled, unlabelled = own_files(tmp_path)
    unlabelled.write_text(json.dumps({"text": text}) + "\n")
    assert train_own(tmp_path, "--data", labelled, "--unlabelled", unlabelled, *arguments) == 2
    assert message in capsys.readouterr().err


def test_documents_without_a_word_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled, _ = own_files(tmp_path)
    labelled.write_text("".join(json.dumps({"text": " " * (i + 1), "label": i % 2}) + "\n" for i in range(60)))
    assert call("train", "--task", "text-classification", "--data", labelled, "--runs", tmp_path) == 2
    assert "training documents: no document contains a word" in capsys.readouterr().err


def test_empty_path_is_not_the_current_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled, _ = own_files(tmp_path)
    with pytest.raises(SystemExit):
        train_own(tmp_path, "--data", labelled, "--unlabelled", "")
    assert (
        "argument --unlabelled: expected the path of a file or folder, not an empty string" in capsys.readouterr().err
    )
