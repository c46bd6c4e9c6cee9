"""Training of a matcher of own pairs, from the file to the export."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from artifact import load
from artifact.documents import WORD_FIELDS
from artifact.exports import read_manifest
from artifact.manifest import Format
from artifact.tasks.matching import MatcherManifest
from model.config.models import OPENING
from model.config.recipes import find_recipe, load_recipe
from model.config.run import MatchingRun
from model.data.own import DataFiles
from model.runs.load import load_trained
from model.tasks.graphs import module_functions
from model.tasks.lexical_matching import (
    CHOICE,
    HAS_ENCODER,
    HAS_JOINT,
    HAS_TOWER,
    LexicalMatchingTask,
    centred,
    labelled,
)
from model.training import checkpoint
from model.training.checkpoint import BEST, FINAL
from tests.support.commands import call

SMALL = (
    *("model.lexical_view.dim=16", "model.lexical_view.tower.dim=8", "model.lexical_view.tower.hidden_dim=8"),
    *("model.lexical_view.max_length=256", "model.encoder.seq_len=16"),
    *("model.encoder.dim=8", "model.encoder.num_heads=1", "model.encoder.ffn_dim=8", "model.head_dim=8"),
    *("model.stem.num_buckets=1024", "training.epochs=1", "training.batch_size=16"),
)

FORMATS: tuple[Format, ...] = ("onnx", "torchscript")

Train = Callable[..., Path]
"""Trains with some settings and returns the folder of the run."""


def topics(number: int) -> list[tuple[str, str, int]]:
    """Pairs of texts, which match if they are about one topic."""
    generator = np.random.default_rng(0)
    words = [[f"topic{topic}word{i}" for i in range(8)] for topic in range(3)]
    rows = []
    for i in range(number):
        first, second = generator.integers(3, size=2)
        a, b = (" ".join([*generator.choice(words[t], 4), "common", str(i)]) for t in (first, second))
        rows.append((a, b, int(first == second)))
    return rows


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "pairs.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([("text_a", "text_b", "label"), *topics(400)])
    return path


@pytest.fixture
def train(file: Path, tmp_path: Path) -> Train:
    def train_with(*settings: str, data: Path = file) -> Path:
        words = [word for setting in (*SMALL, *settings) for word in ("--set", setting)]
        command = ("train", "--task", "text-matching", "--data", data, "--runs", tmp_path, "--device", "cpu")
        assert call(*command, *words) == 0
        return tmp_path / "pairs-seed0"

    return train_with


def task_of(run: Path, file: Path) -> LexicalMatchingTask:
    task = load_trained(run, DataFiles(data=file)).task
    assert isinstance(task, LexicalMatchingTask)
    return task


def test_lexical_view_alone_is_trained_exported_and_asked(
    train: Train, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train()
    told = capsys.readouterr().out
    assert "; the encoder with S3Attention was not trained: it needs 20,000 training pairs\n" in told
    assert re.search(r"\nvalidation auc [01]\.\d{4}, TF-IDF cosine \(.*\) [01]\.\d{4}: [+-]\d", told)
    task = task_of(run, file)
    assert not task.facts[HAS_ENCODER]
    assert set(task.facts[CHOICE]) == {"longest", "exponent", "strength", "opening"}
    assert task.recipe.model.encoder is None
    values = {one["metric"]: one["value"] for one in json.loads((run / "evaluation.json").read_text())}
    assert values["auc"] > 0.95
    assert call("export", run, "--data", file, "--out", tmp_path / "exports", "--device", "cpu") == 0
    model = load(tmp_path / "exports" / "pairs")
    texts = [" ".join(f"topic{topic}word{i}" for i in range(4)) for topic in (1, 2)]
    same, other = model.score([(texts[0], texts[0]), (texts[0], texts[1])])
    assert same["score"] > other["score"] + 0.3


def test_encoder_is_trained_and_weighed(train: Train, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("model.encoder_pairs=0")
    told = capsys.readouterr().out
    found = re.search(r"encoder (kept|left out): validation cross-entropy (.*) with it, (.*) without", told)
    assert found is not None
    assert task_of(run, file).facts[HAS_ENCODER] == (found[1] == "kept")
    stages = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [stage["stage"] for stage in stages] == ["lexical view", "encoder"]
    assert (run / "encoder" / BEST).is_file()


def test_encoder_that_helps_is_kept(
    train: Train, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("model.tasks.lexical_matching.is_better", lambda *_: True)
    run = train("model.encoder_pairs=0", "training.epochs=4", "training.learning_rate=0.01")
    trained = load_trained(run, DataFiles(data=file))
    assert trained.task.facts[HAS_ENCODER], capsys.readouterr().out
    assert call("export", run, "--data", file, "--out", tmp_path / "exports", "--device", "cpu") == 0
    manifest = read_manifest(tmp_path / "exports" / "pairs" / "1")
    assert isinstance(manifest, MatcherManifest)
    assert manifest.dim == 16 + 8


def test_logits_are_compared_without_a_constant(train: Train, file: Path) -> None:
    task = task_of(train(), file)
    generator = np.random.default_rng(0)
    targets = generator.integers(2, size=2000).astype(np.float64)
    logits = 2 * targets - 1 + generator.normal(0, 1, 2000)
    found, other = (centred(one, targets, task) for one in (logits, logits + 3))
    assert other == pytest.approx(found, abs=0.01)
    assert found == pytest.approx(logits, abs=0.2)
    assert centred(-logits, targets, task) == pytest.approx(-logits)  # a view that is wrong gets no weight


TOWER = tuple(
    f"model.lexical_view.tower.{setting}"
    for setting in ("min_pairs=0", "training.batch_size=64", "training.epochs=2", "training.warmup_steps=0")
)
"""A tower that is trained on few pairs."""


def test_tower_is_trained_and_compared(train: Train, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(*TOWER)
    told = capsys.readouterr().out
    found = re.search(r"tower (kept|left out): validation cross-entropy (\S+ with it, \S+ without)\n", told)
    assert found is not None
    assert f"the tower: validation cross-entropy {found[2]}" in told
    assert task_of(run, file).facts[HAS_TOWER] == (found[1] == "kept")
    stages = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [stage["stage"] for stage in stages] == ["lexical view", "tower"]
    assert (run / "tower" / BEST).is_file()


@pytest.mark.parametrize("settings", [(), ("model.encoder_pairs=0",)], ids=["alone", "with the encoder"])
def test_tower_that_helps_is_exported_and_asked(
    settings: tuple[str, ...], train: Train, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.tasks.lexical_matching.is_better", lambda *_: True)
    run = train(*TOWER, *settings, "model.lexical_view.tower.training.epochs=8", "training.learning_rate=0.01")
    trained = load_trained(run, DataFiles(data=file))
    assert trained.task.facts[HAS_TOWER]
    assert call("export", run, "--data", file, "--out", tmp_path / "exports", "--device", "cpu") == 0
    folder = tmp_path / "exports" / "pairs"
    manifest = read_manifest(folder / "1")
    assert isinstance(manifest, MatcherManifest)
    assert manifest.dim == (8 + 8 if trained.task.facts[HAS_ENCODER] else 8)
    texts = [" ".join(f"topic{topic}word{i}" for i in range(4)) for topic in (1, 2)]
    for format in FORMATS:
        same, other = load(folder, format=format).score([(texts[0], texts[0]), (texts[0], texts[1])])
        assert same["score"] > other["score"] + 0.3


def test_tower_is_fitted_on_the_pairs_of_all_splits(
    train: Train, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("model.tasks.lexical_matching.is_better", lambda *_: True)
    run = train(*TOWER, "data.final_fit=true")
    assert f"{run / 'tower' / FINAL}: trained on all 400 pairs, " in capsys.readouterr().out
    assert load_trained(run, DataFiles(data=file)).finished.final is not None


JOINT = tuple(
    f"model.joint_view.{setting}"
    for setting in (
        *("min_pairs=0", "num_words=12", "dim=16", "hidden_dim=8", "training.epochs=8"),
        *("training.batch_size=16", "training.warmup_steps=0"),
    )
)
"""A joint view that is trained on few pairs."""


def test_joint_view_is_trained_and_compared(train: Train, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(*JOINT)
    told = capsys.readouterr().out
    found = re.search(r"joint view (kept|left out): validation cross-entropy (\S+ with it, \S+ without)\n", told)
    assert found is not None
    assert f"the joint view: validation cross-entropy {found[2]}" in told
    task = task_of(run, file)
    assert task.facts[HAS_JOINT] == (found[1] == "kept")
    assert (task.recipe.model.joint_view is not None) == task.facts[HAS_JOINT]
    stages = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [stage["stage"] for stage in stages] == ["lexical view", "joint view"]


@pytest.mark.parametrize(
    "settings", [(), (*TOWER, "model.encoder_pairs=0")], ids=["with the lexical view", "with all views"]
)
def test_joint_view_that_helps_is_exported_and_asked(
    settings: tuple[str, ...], train: Train, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.tasks.lexical_matching.is_better", lambda *_: True)
    monkeypatch.setattr("model.tasks.lexical_matching.fit_weights", lambda *_: (1.0, 0.5))
    run = train(*JOINT, *settings, "training.learning_rate=0.01")
    trained = load_trained(run, DataFiles(data=file))
    assert trained.task.facts[HAS_JOINT]
    assert call("export", run, "--data", file, "--out", tmp_path / "exports", "--device", "cpu") == 0
    folder = tmp_path / "exports" / "pairs"
    manifest = read_manifest(folder / "1")
    assert isinstance(manifest, MatcherManifest)
    assert manifest.num_words == 12
    assert manifest.encoding_size == manifest.dim + 12 * WORD_FIELDS
    texts = [" ".join(f"topic{topic}word{i}" for i in range(4)) for topic in (1, 2)]
    for format in FORMATS:
        same, other = load(folder, format=format).score([(texts[0], texts[0]), (texts[0], texts[1])])
        assert same["score"] > other["score"] + 0.3


def test_model_with_all_views_answers_as_its_views_were_weighed(
    train: Train, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logits of the model order the validation pairs as the combined logits of the stages do."""
    monkeypatch.setattr("model.tasks.lexical_matching.is_better", lambda *_: True)
    run = train(*JOINT, "model.encoder_pairs=0", "training.learning_rate=0.01")
    trained = load_trained(run, DataFiles(data=file))
    task = trained.task
    assert isinstance(task, LexicalMatchingTask)
    functions = module_functions(trained.finished.graphs, torch.device("cpu"))
    logits, targets = task.logits(functions, trained.data, task.pairs(trained.data, "val"))
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert task.value(logits, targets) == pytest.approx(last["validation_auc"], abs=0.02)
    losses = np.logaddexp(0, logits) - targets * logits
    assert losses.mean() == pytest.approx(last["validation_cross_entropy"], abs=0.05)


def test_joint_view_is_fitted_on_the_pairs_of_all_splits(
    train: Train, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("model.tasks.lexical_matching.is_better", lambda *_: True)
    run = train(*JOINT, "data.final_fit=true")
    assert f"{run / 'joint-view' / FINAL}: trained on all 400 pairs, " in capsys.readouterr().out
    best, final = (checkpoint.load(run / name).state["model"] for name in (BEST, FINAL))
    assert final["head.joint.weight"] == best["head.joint.weight"] > 0
    assert load_trained(run, DataFiles(data=file)).finished.final is not None


def test_resumed_run_keeps_the_fitted_view(train: Train, file: Path, tmp_path: Path) -> None:
    run = train()
    stored, best = (run / "lexical-view.npz").read_bytes(), checkpoint.load(run / BEST)
    (run / BEST).unlink()
    words = [word for setting in SMALL for word in ("--set", setting)]
    command = ("train", "--task", "text-matching", "--data", file, "--runs", tmp_path, "--device", "cpu", "--resume")
    assert call(*command, *words) == 0
    assert (run / "lexical-view.npz").read_bytes() == stored
    again = checkpoint.load(run / BEST).state["model"]
    assert all((again[name] == value).all() for name, value in best.state["model"].items())


def test_final_fit_reads_the_pairs_of_all_splits(train: Train, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("data.final_fit=true")
    assert f"{run / FINAL}: lexical view fitted on all 400 pairs\n" in capsys.readouterr().out
    assert load_trained(run, DataFiles(data=file)).finished.final is not None


def test_degrees_are_trained_and_reported(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graded = tmp_path / "pairs.csv"
    with graded.open("w", newline="") as stream:
        rows = [(a, b, 0.2 + 0.6 * label + 0.001 * (i % 100)) for i, (a, b, label) in enumerate(topics(400))]
        csv.writer(stream).writerows([("text_a", "text_b", "label"), *rows])
    run = train(data=graded)
    values = {one["metric"]: one["value"] for one in json.loads((run / "evaluation.json").read_text())}
    assert values["spearman"] > 0.6
    assert values["mae"] < 0.2
    assert "validation spearman" in capsys.readouterr().out
    head = (run / "predictions.csv").read_text().splitlines()[0]
    assert head == "row,source,label,score,score of the baseline"


@pytest.mark.usefixtures("without_files_for_cuda", "without_report")
@pytest.mark.parametrize("lowest", [0.0, 0.5])
def test_degrees_on_one_side_of_a_half_are_trained_exported_and_asked(
    train: Train, tmp_path: Path, lowest: float
) -> None:
    data = tmp_path / "pairs.csv"
    with data.open("w", newline="") as stream:
        rows = [(a, b, lowest + 0.1 + 0.3 * label) for a, b, label in topics(400)]
        csv.writer(stream).writerows([("text_a", "text_b", "label"), *rows])
    run = train("model.encoder_pairs=0", data=data)
    values = {one["metric"]: one["value"] for one in json.loads((run / "evaluation.json").read_text())}
    assert values["spearman"] > 0.6
    assert values["mae"] < 0.1
    assert call("export", run, "--data", data, "--out", tmp_path / "exports", "--device", "cpu") == 0
    model = load(tmp_path / "exports" / "pairs")
    texts = [" ".join(f"topic{topic}word{i}" for i in range(4)) for topic in (1, 2)]
    same, other = model.score([(texts[0], texts[0]), (texts[0], texts[1])])
    assert same["score"] > other["score"] + 0.2


def test_more_pairs_than_the_limit_are_sampled_as_pairs(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("model.tasks.lexical_matching.MAX_PAIRS", 50)
    settings = [f"data.{key}" for key in ("name=own", "text_column=text_a", "other_column=text_b")]
    config = load_recipe(find_recipe("pairs"), settings)
    assert isinstance(config, MatchingRun)
    task = LexicalMatchingTask(config)
    data = task.load(task.read(DataFiles(data=file)))
    pairs = task.pairs(data, "train")
    texts, found = labelled(task, data, pairs)
    assert len(found.targets) == 50
    assert capsys.readouterr().out == f"lexical view: fitted on a random 50 of {len(pairs)} pairs\n"
    known = {
        (data.texts[a], data.texts[b]): target
        for (a, b, _), target in zip(pairs.tolist(), data.targets(pairs), strict=True)
    }
    for (a, b), target in zip(found.index.tolist(), found.targets, strict=True):
        assert known[texts[a], texts[b]] == target


def test_texts_without_a_common_word_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pairs.csv"
    rows = "".join(f"a{i},b{i},{i % 2}\n" for i in range(100))
    path.write_text(f"text_a,text_b,label\n{rows}")
    command = ("train", "--task", "text-matching", "--data", path, "--runs", tmp_path / "runs", "--device", "cpu")
    assert call(*command) == 2
    assert capsys.readouterr().err.endswith("error: training documents: no word is in several documents\n")


def test_openings_are_exported_and_asked(tmp_path: Path) -> None:
    """The first bytes of a text tell its topic; words of any topic follow."""
    rows, generator = topics(300), np.random.default_rng(1)
    words = [word for a, b, _ in rows for word in (a + " " + b).split() if word.startswith("topic")]
    path = tmp_path / "titled.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("text_a", "text_b", "label"))
        for a, b, label in rows:
            long = [one.ljust(OPENING) + " ".join(generator.choice(words, 12)) for one in (a, b)]
            writer.writerow((*long, label))
    settings = ("model.encoder.seq_len=32", "model.lexical_view.max_length=512")
    keys = [word for setting in (*SMALL, *settings) for word in ("--set", setting)]
    assert call("train", "--task", "text-matching", "--data", path, "--runs", tmp_path, "--device", "cpu", *keys) == 0
    run = tmp_path / "titled-seed0"
    assert task_of(run, path).facts[CHOICE]["opening"]
    assert call("export", run, "--data", path, "--out", tmp_path / "exports", "--device", "cpu") == 0
    folder = tmp_path / "exports" / "titled"
    manifest = read_manifest(folder / "1")
    assert isinstance(manifest, MatcherManifest)
    assert manifest.dim == 2 * 16
    titles = [" ".join(f"topic{topic}word{i}" for i in range(4)) for topic in (1, 2)]
    texts = [title.ljust(OPENING) + " ".join(words[:12]) for title in titles]
    for format in FORMATS:
        model = load(folder, format=format)
        same, other = model.score([(texts[0], titles[0]), (texts[0], titles[1])])
        assert same["score"] > other["score"] + 0.2
