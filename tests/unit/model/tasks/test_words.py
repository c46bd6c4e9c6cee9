"""Training of a classifier of words in stages: n-gram view with vectors, rounds of the vector view, weights."""

# ruff: noqa: RUF001
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from artifact.documents import pad_rows
from artifact.loading import load_export
from artifact.local import Model
from model.data.own import DataFiles
from model.nn.words import WordHasher
from model.runs.load import load_trained
from model.tasks import document_vectors, task_of, two_views, words
from model.tasks.document_vectors import vector_learner
from model.tasks.graphs import module_outputs
from model.tasks.ngrams import KEEP, Choice, count, fit
from model.tasks.views import VectorRound, fit_weights
from model.tasks.words import WordTask
from model.training import checkpoint
from model.training.checkpoint import Progress
from model.training.loop import Trainer
from tests.support import reference
from tests.support.commands import call

pytestmark = pytest.mark.usefixtures("without_files_for_cuda")

SETTINGS = [
    'data.name="synthetic"',
    "data.unlabelled=false",
    "model.ngram_view.longest=2",
    "model.ngram_view.num_ngrams=1024",
    "model.ngram_view.max_length=256",
    "model.encoder.seq_len=64",
    "model.encoder.dim=16",
    "model.encoder.num_heads=2",
    "model.encoder.ffn_dim=16",
    "model.encoder.options.num_rows=8",
    "model.encoder.options.num_columns=8",
    "model.ngram_vectors.dim=16",
    "model.ngram_vectors.epochs=2",
    "training.warmup_steps=2",
]
RUN = "imdb-s3-seed0"
NO_ROUNDS = ("--set", "model.vector_view.rounds=[]")


def train(runs: Path, *arguments: object, settings: Sequence[str] = SETTINGS) -> int:
    overrides = [part for setting in settings for part in ("--set", setting)]
    return call("train", "imdb-s3", "--runs", runs, "--device", "cpu", *overrides, *arguments)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with all rounds."""
    runs = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_views, "is_better", lambda *_: True)
        assert train(runs) == 0
    return runs / RUN


@pytest.fixture(scope="module")
def ngrams_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without rounds."""
    runs = tmp_path_factory.mktemp("runs")
    assert train(runs, *NO_ROUNDS) == 0
    return runs / RUN


def state_of(folder: Path, name: str = "best.pt") -> dict[str, Any]:
    model: dict[str, Any] = checkpoint.load(folder / name)[3]["model"]
    return model


def same_states(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def facts_of(folder: Path) -> dict[str, Any]:
    return dict(checkpoint.load(folder / "best.pt")[2])


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the records of all stages without measured times and memory."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: record[key] for key in record if key[:4] in ("stag", "vali", "vect")} for record in records]


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_every_stage_is_recorded(trained: Path) -> None:
    assert [record["stage"] for record in metrics(trained)] == ["n-gram view", "round 1", "round 2"]
    assert all(0 < record["validation_cross_entropy"] < 0.8 for record in metrics(trained))
    assert ["vector_view_accuracy" in record for record in metrics(trained)] == [False, True, True]
    assert (trained / "stages.png").stat().st_size > 1000
    _, progress, facts, _ = checkpoint.load(trained / "best.pt")
    assert facts["has_vector_view"] is True
    assert progress.best == metrics(trained)[-1]["validation_accuracy"]
    assert [record["stage"] for record in progress.history] == [record["stage"] for record in metrics(trained)]


def test_hyperparameters_of_the_ngram_view_are_stored(trained: Path) -> None:
    choice = Choice(**facts_of(trained)["ngram_view"])
    with np.load(trained / "ngram-view.npz") as stored:
        assert Choice(**{name: stored[name].item() for name in asdict(choice) if name in stored}) == choice
        table = state_of(trained)["ngram_view.table"].numpy()
        count = len(stored["hashes"])
        assert table[1 : 1 + count, -1] == pytest.approx(stored["scales"] ** 2)
        assert table[1 : 1 + count, :-1] == pytest.approx(stored["scales"][:, None] * stored["weights"], abs=1e-6)
        assert not table[1 + count :].any()
    assert load_trained(trained, DataFiles()).task.facts["ngram_view"] == asdict(choice)


def test_ngram_view_is_the_whole_model_without_rounds(ngrams_alone: Path, trained: Path) -> None:
    assert [record["stage"] for record in metrics(ngrams_alone)] == ["n-gram view"]
    assert metrics(ngrams_alone) == metrics(trained)[:1]
    assert facts_of(ngrams_alone)["has_vector_view"] is False
    state = state_of(ngrams_alone)
    assert not [name for name in state if name.startswith("vector_view.")]
    assert state["weights"][1] == 0
    assert sorted(path.name for path in ngrams_alone.iterdir()) == [
        "best.pt",
        "choice.json",
        "evaluation.json",
        "last.pt",
        "metrics.jsonl",
        "ngram-view.npz",
        "predictions.csv",
        "report.html",
        "stages.png",
    ]


def test_weights_minimise_the_validation_cross_entropy(trained: Path) -> None:
    """Of both views' logits on the validation documents."""
    config, _, facts, _ = checkpoint.load(trained / "best.pt")
    task = task_of(config, facts)
    validation = task.load(Path("absent")).validation
    model = task.build().eval()
    documents, lengths = (torch.from_numpy(part) for part in pad_rows(validation.texts, 256))
    labels = np.array(validation.labels)
    state = state_of(trained)
    logits = []
    for weights in ((1.0, 0.0), (0.0, 1.0)):
        model.load_state_dict(state | {"weights": torch.tensor(weights)})
        with torch.inference_mode():
            logits.append(model(documents, lengths)[0].numpy())
    assert fit_weights(logits[0], logits[1], labels) == pytest.approx(state["weights"].tolist(), abs=1e-3)


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize(("round_number", "batch"), [(1, 3), (2, 1)])
def test_run_interrupted_in_a_round_resumes_to_the_same_model(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round_number: int, batch: int
) -> None:
    original = VectorRound.batches

    def batches(learner: VectorRound, epoch: int) -> Iterator[Any]:
        for i, found in enumerate(original(learner, epoch)):
            if learner.seed == f"0-{round_number}" and i == batch:
                raise KeyboardInterrupt
            yield found

    monkeypatch.setattr(two_views, "is_better", lambda *_: True)
    with monkeypatch.context() as patch:
        patch.setattr(VectorRound, "batches", batches)
        assert train(tmp_path) == 130
    for name in ("chosen", "fit", "vector_learner"):
        monkeypatch.setattr(*place_of(name), lambda *_, **__: pytest.fail("trained twice"))
    assert train(tmp_path, "--resume") == 0
    assert metrics(tmp_path / RUN) == metrics(trained)
    assert same_states(state_of(tmp_path / RUN), state_of(trained))
    assert facts_of(tmp_path / RUN) == facts_of(trained)


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize(
    ("name", "repeated"),
    [
        ("chosen", ["chosen", "fit", "read_corpus"]),
        ("fit", ["fit", "read_corpus"]),
        ("principal_vectors", ["fit", "read_corpus"]),
        ("read_corpus", ["read_corpus"]),
    ],
)
def test_run_interrupted_between_stages_resumes_to_the_same_model(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, repeated: list[str]
) -> None:
    """Stages that ended are not repeated."""
    monkeypatch.setattr(two_views, "is_better", lambda *_: True)
    with monkeypatch.context() as patch:
        patch.setattr(*place_of(name), interrupt)
        assert train(tmp_path) == 130
    called: list[str] = []
    for stage in ("chosen", "fit", "read_corpus"):
        monkeypatch.setattr(*place_of(stage), noted(stage, called))
    assert train(tmp_path, "--resume") == 0
    assert called == repeated
    assert metrics(tmp_path / RUN) == metrics(trained)
    assert same_states(state_of(tmp_path / RUN), state_of(trained))


@pytest.mark.usefixtures("without_report")
def test_run_interrupted_while_vectors_are_learned_resumes_to_the_same_model(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the vectors of the last complete epoch that was kept."""
    path, original = tmp_path / RUN / "ngram-vectors.npz", document_vectors._epoch
    resumed: list[int] = []

    def interrupted_epoch(*arguments: Any) -> Any:
        return interrupt() if path.exists() else original(*arguments)

    def resumed_epoch(*arguments: Any) -> Any:
        resumed.append(1)
        return original(*arguments)

    monkeypatch.setattr(two_views, "is_better", lambda *_: True)
    monkeypatch.setattr(document_vectors, "EPOCHS_PER_CHECKPOINT", 1)
    with monkeypatch.context() as patch:
        patch.setattr(document_vectors, "_epoch", interrupted_epoch)
        assert train(tmp_path) == 130
    assert path.exists()
    monkeypatch.setattr(document_vectors, "_epoch", resumed_epoch)
    assert train(tmp_path, "--resume") == 0
    assert len(resumed) == 1  # of two
    assert same_states(state_of(tmp_path / RUN), state_of(trained))
    assert not path.exists()


@pytest.mark.parametrize("name", ["choice.json", "ngram-vectors.npz", "ngram-view.npz"])
@pytest.mark.parametrize("share", [0.0, 0.5], ids=["empty", "cut"])
def test_damaged_results_of_stages_are_errors(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, share: float
) -> None:
    run = shutil.copytree(trained, tmp_path / RUN)
    path = run / name
    if name != "ngram-view.npz":
        (run / "ngram-view.npz").unlink()
    content = path.read_bytes() if path.exists() else (trained / "ngram-view.npz").read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert train(tmp_path, "--resume") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert message.startswith(f"error: {path} is damaged: ")
    assert message.endswith("; remove it, and --resume computes it again\n")


@pytest.mark.usefixtures("without_report")
def test_damaged_result_is_computed_again_once_removed(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(trained, tmp_path / RUN)
    monkeypatch.setattr(two_views, "is_better", lambda *_: True)
    for name in ("choice.json", "ngram-view.npz"):
        (run / name).unlink()
    assert train(tmp_path, "--resume") == 0
    assert same_states(state_of(run), state_of(trained))


def place_of(name: str) -> tuple[Any, str]:
    """Return where a step of training is looked up: the task, or the module of its stages."""
    return (WordTask if hasattr(WordTask, name) else two_views), name


def noted(name: str, called: list[str]) -> Any:
    """Return a step of training that notes each call."""
    original = getattr(*place_of(name))

    def call_it(*arguments: Any, **named: Any) -> Any:
        called.append(name)
        return original(*arguments, **named)

    return call_it


def test_resuming_a_finished_run_keeps_the_model(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained, tmp_path / RUN)
    monkeypatch.setattr(two_views, "is_better", lambda *_: True)
    monkeypatch.setattr(VectorRound, "batches", lambda *_: pytest.fail("trained twice"))
    assert train(tmp_path, "--resume") == 0
    assert metrics(tmp_path / RUN) == metrics(trained)
    for name in ("best.pt", "last.pt"):
        assert same_states(state_of(tmp_path / RUN, name), state_of(trained))


@pytest.mark.usefixtures("without_report")
def test_rounds_have_their_own_learning_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []

    class NotedTrainer(Trainer):
        def __call__(self) -> Progress:
            rates.append(self.run.config.training.learning_rate)
            return super().__call__()

    monkeypatch.setattr(two_views, "Trainer", NotedTrainer)
    assert train(tmp_path, "--set", "model.vector_view.rounds=[{}, {rate=0.25}]") == 0
    assert rates == pytest.approx([2e-3, 5e-4])


@pytest.mark.slow  # other tests export both views, with weights that training did not choose (test_export_words.py)
def test_exported_model_agrees_with_the_trained_one(trained: Path, tmp_path: Path) -> None:
    assert call("export", trained, "--out", tmp_path) == 0
    manifest = json.loads((tmp_path / "imdb-s3" / "1" / "manifest.json").read_text())
    assert manifest["max_length"] == 256
    assert manifest["training"]["validation"]["metric"] == "accuracy"
    assert call("evaluate", tmp_path / "imdb-s3", "--out", tmp_path / "results.json") == 0
    assert json.loads((tmp_path / "results.json").read_text()) == manifest["results"]


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize(
    ("change", "is_kept"),
    [
        (lambda losses: losses - 0.1, True),
        (lambda losses: losses, False),
        (lambda losses: losses + 0.1, False),
        # lower by half a standard error
        (lambda losses: losses - (0.5 / math.sqrt(len(losses)) + np.resize((-1.0, 1.0), len(losses))), False),
    ],
)
def test_vector_view_stays_only_if_it_lowers_the_cross_entropy_clearly(
    change: Any, is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = two_views._record
    of_ngrams: list[NDArray[np.float64]] = []

    def record(stage: str, metric: str, first: Any, second: Any, *others: Any) -> Any:
        found, losses = original(stage, metric, first, second, *others)
        of_ngrams.append(losses)
        return found, losses if second is None else change(of_ngrams[0])

    monkeypatch.setattr(two_views, "_record", record)
    monkeypatch.setattr(two_views, "fit_weights", lambda _, second, __: (0.9, 0.0) if second is None else (0.8, 0.5))
    assert train(tmp_path, "--set", "model.vector_view.rounds=[{}]") == 0
    assert f"vector view {'kept' if is_kept else 'left out'}: " in capsys.readouterr().out
    _, progress, facts, state = checkpoint.load(tmp_path / RUN / "best.pt")
    assert facts["has_vector_view"] is is_kept
    assert state["model"]["weights"].tolist() == pytest.approx([0.8, 0.5] if is_kept else [0.9, 0.0])
    assert ("vector_view.vectors" in state["model"]) == is_kept
    assert progress.best == metrics(tmp_path / RUN)[-1 if is_kept else 0]["validation_accuracy"]


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize(("gains", "best"), [((0.2, 0.1), 1), ((0.1, 0.2), 2)])
def test_round_with_the_lowest_cross_entropy_counts(
    gains: tuple[float, float], best: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = two_views._record

    def record(stage: str, *others: Any) -> Any:
        found, losses = original(stage, *others)
        return found, np.zeros_like(losses) - (gains[int(stage[-1]) - 1] if stage.startswith("round") else 0)

    monkeypatch.setattr(two_views, "_record", record)
    monkeypatch.setattr(two_views, "fit_weights", lambda _, second, __: (1.0, 0.0) if second is None else (1.0, 1.0))
    assert train(tmp_path, "--set", "model.vector_view.rounds=[{}, {}]") == 0
    kept = checkpoint.load(tmp_path / RUN / "best.pt")[3]["model"]["vector_view.head.weight"]
    of_rounds = [
        checkpoint.load(tmp_path / RUN / f"round-{number}" / "best.pt")[3]["model"]["head.weight"] for number in (1, 2)
    ]
    assert [torch.equal(kept, one) for one in of_rounds] == [best == 1, best == 2]


@pytest.mark.usefixtures("without_report")
def test_vector_view_without_weight_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_views, "is_better", lambda *_: True)
    monkeypatch.setattr(two_views, "fit_weights", lambda *_: (1.0, 0.0))
    assert train(tmp_path, "--set", "model.vector_view.rounds=[{}]") == 0
    assert facts_of(tmp_path / RUN)["has_vector_view"] is False
    assert call("evaluate", tmp_path / RUN) == 0


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


SMALL = ["training.epochs=1", *SETTINGS[2:]]


def train_own(folder: Path, *arguments: object) -> int:
    overrides = [part for setting in SMALL for part in ("--set", setting)]
    options = ("--task", "text-classification", "--device", "cpu", "--runs", folder / "runs")
    return call("train", *options, *overrides, *arguments)


def test_own_documents_without_unlabelled_ones_have_no_vector_view(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled, _ = own_files(tmp_path)
    assert train_own(tmp_path, "--data", labelled) == 0
    out = capsys.readouterr().out
    assert "n-gram view, chosen by cross-validation: n-grams of up to " in out
    assert out.count("held-out cross-entropy (accuracy) of 48 documents: ") == 2
    assert "vector view: " not in out
    assert "the vector view with S3Attention was not trained: it needs --unlabelled documents" in out
    run = tmp_path / "runs/films-seed0"
    assert "with whole words only" in (run / "report.html").read_text()
    assert [record["stage"] for record in metrics(run)] == ["n-gram view"]
    assert metrics(run)[0]["validation_accuracy"] == 1


def test_own_unlabelled_documents_are_learnt_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled, unlabelled = own_files(tmp_path)
    assert train_own(tmp_path, "--data", labelled, "--unlabelled", unlabelled) == 0
    out = capsys.readouterr().out
    assert "200 unlabelled documents that are not in the labelled data" in out
    assert "vector view kept: " in out or "vector view left out: " in out
    assert out.count("240 documents an epoch") == 2  # of 248, in batches of 16
    run = tmp_path / "runs/films-seed0"
    assert [record["stage"] for record in metrics(run)] == ["n-gram view", "round 1", "round 2"]
    assert call("evaluate", run) == 0


@pytest.mark.usefixtures("without_report")
def test_later_rounds_are_taught_by_both_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets of unlabelled documents are probabilities of the n-gram view in the first round, then of both views."""
    labelled, unlabelled = own_files(tmp_path)
    taught: list[NDArray[np.float32]] = []

    def create(known: Any, targets: NDArray[np.float32], *others: Any) -> VectorRound:
        taught.append(targets)
        return VectorRound(known, targets, *others)

    weights = iter([(1.0, 0.0), (2.0, 0.0), (1.0, 0.0)])
    monkeypatch.setattr(words, "VectorRound", create)
    monkeypatch.setattr(two_views, "fit_weights", lambda *_: next(weights))
    assert train_own(tmp_path, "--data", labelled, "--unlabelled", unlabelled) == 0
    assert [len(targets) for targets in taught] == [248] * 2
    for targets in taught:
        assert set(targets[:48].ravel()) == {0, 1}
        assert targets.sum(1) == pytest.approx(1)
    odds = [np.log(targets[48:, 1] / targets[48:, 0]) for targets in taught]
    assert odds[0][::2].max() < 0 < odds[0][1::2].min()  # bad and good days
    assert odds[1] == pytest.approx(2 * odds[0], rel=1e-3)  # twice the logits of the n-gram view


CHOICES = {
    "no vectors": Choice(2, "idf-evidence", 10.0),
    "vectors": Choice(2, "idf-evidence", 10.0, vector_strength=0.1),
    "keep": Choice(2, KEEP, 1.0, vector_strength=0.1),
}


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize("has_unlabelled", [False, True])
@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES.keys())
def test_final_fit_is_on_the_rows_of_all_splits(
    choice: Choice,
    has_unlabelled: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The n-gram view is fitted again with the same hyperparameters; everything else remains."""
    labelled, unlabelled = own_files(tmp_path)
    monkeypatch.setattr(WordTask, "chosen", lambda *_: choice)
    monkeypatch.setattr(two_views, "is_better", lambda *_: True)
    monkeypatch.setattr(two_views, "fit_weights", lambda _, second, __: (1.0, 0.0 if second is None else 0.5))
    options = ["--data", labelled, "--set", "data.final_fit=true"]
    options += ["--unlabelled", unlabelled] if has_unlabelled else []
    assert train_own(tmp_path, *options) == 0
    run = tmp_path / "runs/films-seed0"
    assert f"{run}/final.pt: n-gram view fitted on all 60 documents" in capsys.readouterr().out
    best, final = state_of(run), state_of(run, "final.pt")
    assert best.keys() == final.keys()
    assert any(name.startswith("vector_view.") for name in best) == has_unlabelled
    changed = {name for name in best if not torch.equal(best[name], final[name])}
    assert {"ngram_view.table", "ngram_view.bias"} <= changed
    assert all(name.startswith("ngram_view.") for name in changed)
    files = DataFiles(data=labelled, unlabelled=unlabelled if has_unlabelled else None)
    assert expected_table(run, files) == pytest.approx(final["ngram_view.table"].numpy(), abs=1e-6)
    (run / "final.pt").unlink()
    assert train_own(tmp_path, *options, "--resume") == 0
    assert same_states(state_of(run, "final.pt"), final)
    if has_unlabelled:
        found, expected = (vector_view_logits(run, state) for state in (final, best))
        assert expected.std() > 1e-3
        assert np.array_equal(found, expected)


def expected_table(run: Path, files: DataFiles) -> NDArray[np.float32]:
    """Table of the n-gram view fitted to all 60 rows with the hyperparameters of the run.

    With a vector view, of the n-grams of the first fit, in the same rows.
    """
    config, _, facts, _ = checkpoint.load(run / "best.pt")
    task = task_of(config, facts)
    assert isinstance(task, WordTask)
    source = task.read(files)
    data = task.with_unlabelled(task.load(source), source)
    joined, labels = data.joined().train, np.array(data.joined().train.labels)
    assert len(joined) == 60
    model, config = task.build(), task.config
    counted = count(model.words, joined.texts, 256, 32)
    choice, settings = Choice(**facts["ngram_view"]), config.model.ngram_vectors
    assert settings is not None
    hasher = WordHasher(config.model.ngram_view.longest, 256)
    learner = vector_learner(hasher, (joined.texts, data.unlabelled), labels, 256, 32, settings, 0)
    with np.load(run / "ngram-view.npz") as stored:
        first = stored["hashes"]
    fitted = fit(counted, labels, 2, config.model.ngram_view, choice, learner.learn(np.arange(60)))
    if files.unlabelled is None:
        assert set(fitted.hashes) >= set(first)
    else:
        vectors = learner.learn(np.arange(60)).of_ngrams(first)
        kept = counted.of_ngrams(np.flatnonzero(np.isin(counted.hashes, first)))
        fitted = fit(kept, labels, 2, config.model.ngram_view, choice, vectors).on(first)
        assert fitted.hashes.tolist() == first.tolist()
    fitted.fill(model.ngram_view)
    table: NDArray[np.float32] = model.ngram_view.table.numpy()
    return table


def vector_view_logits(run: Path, state: dict[str, Any]) -> NDArray[np.float32]:
    """Logits of the vector view alone."""
    config, _, facts, _ = checkpoint.load(run / "best.pt")
    task = task_of(config, facts)
    assert isinstance(task, WordTask)
    model = task.build().eval()
    model.load_state_dict(state | {"weights": torch.tensor([0.0, 1.0])})
    texts = [b"a good film number 7", b"bad film number 31", b"the 5th day", b"good", b"unknown"]
    with torch.inference_mode():
        document, lengths = (torch.from_numpy(part) for part in pad_rows(texts, 256))
        logits: NDArray[np.float32] = (model(document, lengths)[0] - model.base()).numpy()
    return logits


@pytest.mark.usefixtures("without_report")
def test_vectors_are_learned_from_unlabelled_documents_without_a_vector_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words of unlabelled documents alone then count in the n-gram view."""
    labelled, unlabelled = own_files(tmp_path)
    monkeypatch.setattr(WordTask, "chosen", lambda *_: CHOICES["keep"])
    known = []
    for name, options in (("with", ["--unlabelled", unlabelled]), ("without", [])):
        assert train_own(tmp_path, "--data", labelled, *options, *NO_ROUNDS, "--set", f"name={name}") == 0
        run = tmp_path / f"runs/{name}-seed0"
        assert [record["stage"] for record in metrics(run)] == ["n-gram view"]
        with np.load(run / "ngram-view.npz") as stored:
            known.append(set(stored["hashes"].tolist()))
    assert reference.word_hash("day") in known[0]
    assert reference.word_hash("day") not in known[1]
    assert reference.word_hash("film") in known[0] & known[1]


@pytest.mark.usefixtures("without_report")
def test_recipe_without_epochs_learns_no_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled, _ = own_files(tmp_path)
    monkeypatch.setattr(document_vectors, "vector_learner", lambda *_: pytest.fail("learned"))
    options = ["--set", "model.ngram_vectors.epochs=0", "--set", "data.final_fit=true"]
    assert train_own(tmp_path, "--data", labelled, *options) == 0
    assert ", without vectors" in capsys.readouterr().out
    assert facts_of(tmp_path / "runs/films-seed0")["ngram_view"]["vector_strength"] == 0


def test_many_documents_are_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled, _ = own_files(tmp_path)
    monkeypatch.setattr(two_views, "MAX_DOCUMENTS", 40)
    assert train_own(tmp_path, "--data", labelled) == 0
    assert "n-gram view: fitted on a random 40 of 48 documents" in capsys.readouterr().out
    assert metrics(tmp_path / "runs/films-seed0")[0]["validation_accuracy"] == 1


def test_resumed_run_needs_the_same_unlabelled_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled, unlabelled = own_files(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(WordTask, "chosen", interrupt)
        assert train_own(tmp_path, "--data", labelled, "--unlabelled", unlabelled) == 130
    assert "interrupted; resume with --resume" in capsys.readouterr().err
    unlabelled.write_text(unlabelled.read_text().replace("a good day, the 1th", "a good day, the first"))
    assert train_own(tmp_path, "--data", labelled, "--unlabelled", unlabelled, "--resume") == 2
    assert "has other unlabelled documents than this run began with" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [("imdb-s3",), ("--task", "text-classification"), ("--task", "text-matching", "--data", "a.csv")]
)
def test_unlabelled_documents_without_labelled_ones_are_refused(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", *arguments, "--unlabelled", tmp_path / "days.jsonl") == 2
    assert "--unlabelled needs --task text-classification and --data" in capsys.readouterr().err


def test_batch_larger_than_all_documents_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled, unlabelled = own_files(tmp_path)
    batch = ("--set", "training.batch_size=249")
    assert train_own(tmp_path, "--data", labelled, "--unlabelled", unlabelled, *batch) == 2
    assert "training.batches_per_step must be at most 248, the number of documents, not 249" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("without_report")
def test_batch_size_does_not_matter_without_a_vector_view(tmp_path: Path) -> None:
    labelled, _ = own_files(tmp_path)
    assert train_own(tmp_path, "--data", labelled, "--set", "training.batch_size=1000") == 0


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
    labelled.write_text("".join(json.dumps({"text": "\x01" * (i + 1), "label": i % 2}) + "\n" for i in range(60)))
    command = ("train", "--task", "text-classification", "--data", labelled, "--runs", tmp_path)
    assert call(*command, "--set", "model.kind=words") == 2
    assert "training documents: no document contains a word" in capsys.readouterr().err


def test_empty_path_is_not_the_current_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled, _ = own_files(tmp_path)
    with pytest.raises(SystemExit):
        train_own(tmp_path, "--data", labelled, "--unlabelled", "")
    assert (
        "argument --unlabelled: expected the path of a file or folder, not an empty string" in capsys.readouterr().err
    )


def test_runs_of_an_earlier_rule_of_words_are_told_to_train_again(
    ngrams_alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their checkpoints name no rule. The n-grams in them would mostly not be found."""
    run = shutil.copytree(ngrams_alone, tmp_path / RUN)
    for name in ("best.pt", "last.pt"):
        config, progress, facts, state = checkpoint.load(run / name)
        assert facts.pop("words") == "unicode"
        checkpoint.save(run / name, config, progress, facts, state)
    reason = "was trained on words found by an earlier rule; train again"
    for command in (("export", run, "--out", tmp_path / "exports"), ("evaluate", run)):
        assert call(*command) == 2
        assert f"{run / 'best.pt'} {reason}" in capsys.readouterr().err
    assert train(tmp_path, *NO_ROUNDS, "--resume") == 2
    assert f"{run / 'last.pt'} {reason}" in capsys.readouterr().err
    assert not (tmp_path / "exports").exists()


def test_answers_do_not_depend_on_case_accents_and_typography(tmp_path: Path) -> None:
    rows = [
        {"text": f"фильм {'отличный — чудесный актёр' if i % 2 else 'ужасный, скучный: режиссёр'} {i}", "label": i % 2}
        for i in range(60)
    ]
    path = tmp_path / "films.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert train_own(tmp_path, "--data", path) == 0
    assert call("export", tmp_path / "runs/films-seed0", "--out", tmp_path / "exports") == 0
    loaded = Model(load_export(tmp_path / "exports/films/1", device="cpu"))
    assert json.loads((tmp_path / "exports/films/1/manifest.json").read_text())["words"] == "unicode"
    for texts in (
        ("ужасный. скучный.", "Ужасный. СКУЧНЫЙ.", "ужасныи\u0306.\u00a0скучный．"),
        ("отличный - актер", "Отличный—Актёр", "отличный\u2003–\u2003акте\u0308р"),
    ):
        first, *others = (answer["scores"] for answer in loaded.classify([text.encode() for text in texts]))
        assert max(score["score"] for score in first) > 0.6
        assert all(other == first for other in others)


def test_stretches_add_up_to_the_logits_of_documents_in_windows(trained: Path) -> None:
    best = load_trained(trained, DataFiles())
    task, graph = best.task, best.finished.graphs[0]
    assert isinstance(task, WordTask)

    def compute(inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        return module_outputs(graph.module, [inputs[name] for name in graph.golden], torch.device("cpu"))

    words = best.data.test.texts[0].split()
    texts = [b" ".join(words * times) for times in (1, 40)]
    assert len(texts[0]) < 256 < len(texts[1])
    rest = list[NDArray[np.float64]]()
    for text, logits in zip(texts, task.document_logits(lambda inputs: compute(inputs)[0], texts), strict=True):
        stretches = task.stretches(compute, text)
        assert [stretch.start for stretch in stretches] == sorted(stretch.start for stretch in stretches)
        assert (stretches[0].start, max(stretch.end for stretch in stretches)) == (0, len(text))
        rest.append(logits - np.sum([stretch.contributions for stretch in stretches], axis=0))
    assert len(stretches) > 1
    np.testing.assert_allclose(rest[0], rest[1], atol=1e-4)
