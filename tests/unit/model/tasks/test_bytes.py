"""Training of a classifier of bytes on own documents, with and without unlabelled ones, and its export."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from artifact.backends import create_backend
from artifact.backends.base import InferenceBackend, largest_error
from artifact.backends.onnx import OnnxBackend
from artifact.documents import pad_rows, softmax
from artifact.exports import read_manifest
from artifact.loading import load_export
from artifact.local import Model
from artifact.manifest import Format
from artifact.tasks.classification import ClassifierManifest
from model.data.own import DataFiles
from model.nn.classifier import ByteClassifier
from model.runs.load import load_trained
from model.tasks import two_views
from model.tasks.bytes import ByteCorpus, ByteRound, ByteTask
from model.tasks.graphs import module_outputs
from model.tasks.ngrams import CANDIDATES, count, fit
from model.tasks.regression import regression_on_probabilities
from model.tasks.two_views import NgramView, fit_ngrams
from tests.support.commands import call, export
from tests.support.shared import made_once
from tests.support.stretches import check_stretches
from tests.unit.model.tasks.test_words import facts_of, metrics, own_files, same_states, state_of

SETTINGS = [
    "model.kind=bytes",
    "training.epochs=1",
    "training.warmup_steps=2",
    "model.ngram_view.num_ngrams=1024",
    "model.ngram_view.max_length=512",
    "model.vector_view.num_buckets=1024",
    "model.encoder.seq_len=64",
    "model.encoder.dim=16",
    "model.encoder.num_heads=2",
    "model.encoder.ffn_dim=16",
    "model.encoder.options.num_rows=8",
    "model.encoder.options.num_columns=8",
    "model.ngram_vectors.dim=16",
    "model.ngram_vectors.epochs=2",
]
RUN = "runs/films-seed0"
UNLABELLED = ("--unlabelled", "days.jsonl", "--set", "model.vector_view.rounds=[{}, {rate=0.5}]")
"""Options for unlabelled documents, whose path `train` completes."""
BUCKETS = (256, 512)


def train(folder: Path, *options: object) -> int:
    """Train on the files of `own_files` in a folder."""
    overrides = [part for setting in SETTINGS for part in ("--set", setting)]
    paths = [folder / option if option == "days.jsonl" else option for option in options]
    command = ("train", "--task", "text-classification", "--data", folder / "films.jsonl", "--runs", folder / "runs")
    return call(*command, "--device", "cpu", *overrides, *paths)


def keep_both_views(patch: pytest.MonkeyPatch) -> None:
    """Keep the vector view, which training would leave out here, with a weight."""
    patch.setattr(two_views, "is_better", lambda *_: True)
    patch.setattr(two_views, "fit_weights", lambda _, second, __: (1.0, 0.0 if second is None else 0.5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with documents, a run with both views and its export."""

    def make(folder: Path) -> None:
        own_files(folder)
        with pytest.MonkeyPatch.context() as patch:
            keep_both_views(patch)
            assert train(folder, *UNLABELLED) == 0
        export(folder / RUN, folder / "exports")

    return made_once(tmp_path_factory, "bytes", make)


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return folder / RUN


@pytest.fixture(scope="module")
def exported(folder: Path) -> Path:
    return folder / "exports/films/1"


@pytest.fixture(scope="module")
def manifest(exported: Path) -> ClassifierManifest:
    manifest = read_manifest(exported)
    assert isinstance(manifest, ClassifierManifest)
    return manifest


@pytest.fixture(scope="module")
def classifier(run: Path) -> nn.Module:
    """The exported model in PyTorch."""
    return load_trained(run, DataFiles(data=run.parents[1] / "films.jsonl")).finished.model


def test_every_stage_is_recorded(run: Path) -> None:
    assert [record["stage"] for record in metrics(run)] == ["n-gram view", "round 1", "round 2"]
    assert ["vector_view_accuracy" in record for record in metrics(run)] == [False, True, True]
    assert [record["stage"] for record in metrics(run / "teacher")] == ["n-gram view"]
    assert metrics(run)[0]["validation_accuracy"] == 1
    assert (facts_of(run)["has_vector_view"], facts_of(run)["ngram_view"]["prefixes"]) == (True, False)
    assert "words" not in facts_of(run)


def test_without_unlabelled_documents_the_frequent_ngrams_are_the_whole_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits, original = list[int | None](), count

    def noted_count(*arguments: Any) -> Any:
        limits.append(arguments[-1])
        return original(*arguments)

    own_files(tmp_path)
    monkeypatch.setattr(two_views, "count", noted_count)
    assert train(tmp_path) == 0
    assert limits == [1024 * CANDIDATES]
    out, run = capsys.readouterr().out, tmp_path / RUN
    assert "n-gram view, chosen by cross-validation: n-grams of 3, 5, 7 bytes" in out
    assert "the vector view with S3Attention was not trained: it needs --unlabelled documents" in out
    assert not (run / "teacher").exists()
    assert [record["stage"] for record in metrics(run)] == ["n-gram view"]
    assert not [name for name in state_of(run) if name.startswith("vector_view.")]
    trained = load_trained(run, DataFiles(data=tmp_path / "films.jsonl"))
    assert isinstance(trained.finished.model, ByteClassifier)
    assert trained.finished.model.vector_view is None
    with torch.inference_mode():
        documents = (torch.from_numpy(part) for part in pad_rows([b"a good film", b"a bad film"], 256))
        assert trained.finished.model(*documents)[0].argmax(1).tolist() == [1, 0]


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize("stage", ["teacher", "n-gram view", "round 2"])
def test_interrupted_run_resumes_to_the_same_model(
    folder: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    batches, fitted = ByteRound.batches, list[int]()

    def interrupted_batches(learner: ByteRound, epoch: int) -> Iterator[Any]:
        for i, batch in enumerate(batches(learner, epoch)):
            if stage == f"round {learner.seed[-1]}" and i == 2:
                raise KeyboardInterrupt
            yield batch

    def interrupted_fit(*arguments: Any, **keywords: Any) -> Any:
        fitted.append(1)
        if {1: "teacher", 2: "n-gram view"}.get(len(fitted)) == stage:
            raise KeyboardInterrupt
        return fit(*arguments, **keywords)

    own_files(tmp_path)
    keep_both_views(monkeypatch)
    monkeypatch.setattr(two_views, "fit", interrupted_fit)
    with monkeypatch.context() as patch:
        patch.setattr(ByteRound, "batches", interrupted_batches)
        assert train(tmp_path, *UNLABELLED) == 130
    assert train(tmp_path, *UNLABELLED, "--resume") == 0
    assert len(fitted) == (2 if stage == "round 2" else 3)
    assert metrics(tmp_path / RUN) == metrics(run)
    assert same_states(state_of(tmp_path / RUN), state_of(run))
    assert facts_of(tmp_path / RUN) == facts_of(run)
    assert (folder / "films.jsonl").read_bytes() == (tmp_path / "films.jsonl").read_bytes()


@pytest.mark.usefixtures("without_report")
def test_unlabelled_documents_have_the_probabilities_of_the_teacher(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the n-gram view of words for the n-gram view and the first round, then those of both views of bytes."""
    taught, teachers, corpora = list[NDArray[np.float32]](), list[NgramView](), list[ByteCorpus]()
    learner, soft = ByteCorpus.learner, list[NDArray[np.float64]]()

    def noted_learner(corpus: ByteCorpus, targets: NDArray[np.float32], seed: str) -> ByteRound:
        taught.append(targets)
        corpora.append(corpus)
        return learner(corpus, targets, seed)

    def noted_fit(*arguments: Any) -> NgramView:
        teachers.append(fit_ngrams(*arguments))
        return teachers[-1]

    def noted_regression(x: Any, probabilities: NDArray[np.float64], *others: Any) -> Any:
        soft.append(probabilities)
        return regression_on_probabilities(x, probabilities, *others)

    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / RUN / "ngram-view.npz").unlink()
    keep_both_views(monkeypatch)
    monkeypatch.setattr("model.tasks.ngrams.regression_on_probabilities", noted_regression)
    monkeypatch.setattr(ByteCorpus, "learner", noted_learner)
    monkeypatch.setattr("model.tasks.bytes.fit_ngrams", noted_fit)
    assert train(tmp_path, *UNLABELLED, "--resume") == 0
    (teacher,), unlabelled = teachers, corpora[0].data.unlabelled
    assert len(unlabelled) == 200
    documents = [torch.from_numpy(part) for part in pad_rows(unlabelled, 256)]
    with torch.inference_mode():
        logits = teacher.model(*documents)[0].numpy()
    first, second = taught
    assert set(first[:48].ravel()) == {0, 1}
    assert np.array_equal(second[:48], first[:48])
    assert first[48:] == pytest.approx(softmax(logits), abs=1e-6)
    (of_ngrams,) = soft
    assert of_ngrams == pytest.approx(first, abs=1e-6)
    assert second[48:].sum(1) == pytest.approx(1)
    assert np.abs(second[48:] - first[48:]).max() > 1e-3


def test_manifest_describes_a_model_of_bytes(exported: Path, manifest: ClassifierManifest) -> None:
    written = json.loads((exported / "manifest.json").read_text())
    assert (written.get("words"), written.get("known")) == (None, None)
    assert manifest.stretches is not None
    assert manifest.stretches.length == 256
    assert manifest.max_length == BUCKETS[-1]
    assert manifest.labels == ("0", "1")
    assert not manifest.reads_text
    assert [spec.shape for spec in manifest.outputs] == [(-1, 2), (-1, -1, 2)]
    stated = manifest.training.recipe["model"]
    assert (stated["kind"], stated["ngram_view"]["sizes"]) == ("bytes", [3, 5, 7])


def documents(count: int, bucket: int) -> dict[str, NDArray[Any]]:
    """Return documents of words of the training documents and any other bytes, from one byte to a full bucket."""
    generator = np.random.default_rng(count)
    parts = [b"good ", b"Bad ", b"film ", b"number 7", b"day", bytes(3), bytes(range(200, 256)), b"\xff"]
    rows = [b"".join(generator.choice(np.array(parts, dtype=object), bucket))[:bucket] for _ in range(count)]
    sizes = [bucket, 1, *generator.integers(1, bucket + 1, count).tolist()][:count]
    rows = [row[:size] for row, size in zip(rows, sizes, strict=True)]
    return dict(zip(("bytes", "lengths"), pad_rows(rows, bucket), strict=True))


@pytest.mark.parametrize("path", ["model.onnx", "model.fixed.onnx", "model.ts"])
def test_files_agree_with_pytorch_in_every_bucket(
    exported: Path, manifest: ClassifierManifest, classifier: nn.Module, path: str
) -> None:
    if path == "model.fixed.onnx":
        backend: InferenceBackend = OnnxBackend(dict.fromkeys(BUCKETS, exported / path), manifest)
    else:
        format: Format = "onnx" if path == "model.onnx" else "torchscript"
        backend = create_backend(manifest, exported, format=format, device="cpu")
    assert manifest.stretches is not None
    for bucket in BUCKETS:
        for size in (1, 2, 7):
            inputs = documents(size, bucket)
            expected = module_outputs(classifier, [inputs["bytes"], inputs["lengths"]], torch.device("cpu"))
            found = backend.run(inputs)
            assert largest_error(found["logits"], expected[0]) <= manifest.tolerance
            assert largest_error(found["contributions"], expected[1]) <= manifest.tolerance
            total = found["contributions"].sum(axis=1) + np.array(manifest.stretches.base, np.float32)
            assert np.abs(total - found["logits"]).max() < 1e-5
    assert np.ptp(expected[0], axis=0).min() > 100 * manifest.tolerance


def test_answers_of_the_export_are_those_of_the_trained_model(
    folder: Path, exported: Path, manifest: ClassifierManifest, run: Path
) -> None:
    loaded = Model(load_export(exported, device="cpu"))
    trained = load_trained(run, DataFiles(data=folder / "films.jsonl"))
    task = trained.task
    assert isinstance(task, ByteTask)

    def compute(inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        return module_outputs(trained.finished.model, [inputs["bytes"], inputs["lengths"]], torch.device("cpu"))[0]

    text = documents(1, 512)["bytes"][0].tobytes() * 3
    texts = [*trained.data.test.texts, *(text[:length] for length in (1, 256, 257, 512, 513, 1300)), b"\x00"]
    expected = softmax(task.document_logits(compute, texts).astype(np.float64))
    answers = loaded.classify(texts, detail=True)
    for one, answer, probabilities in zip(texts, answers, expected, strict=True):
        scores = {score["label"]: score["score"] for score in answer["scores"]}
        assert [scores["0"], scores["1"]] == pytest.approx(probabilities.tolist(), abs=1e-5)
        check_stretches(answer, manifest, len(one))
        assert answer["coverage"]["known"] is None
    assert [answer["label"] for answer in answers[: len(trained.data.test.labels)]] == [
        str(label) for label in trained.data.test.labels
    ]


def test_model_of_single_bytes_with_a_convolution_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The export compares both formats with PyTorch."""
    keep_both_views(monkeypatch)
    own_files(tmp_path)
    stem = ("--set", "model.ngram_view.sizes=[1]", "--set", "model.vector_view.channels=4")
    assert train(tmp_path, *UNLABELLED, *stem) == 0
    assert "vector_view.convolution.weight" in state_of(tmp_path / RUN)
    export(tmp_path / RUN, tmp_path / "exports")
    assert {path.name for path in (tmp_path / "exports/films/1").iterdir()} >= {"model.onnx", "model.ts"}


@pytest.mark.usefixtures("without_report")
def test_evaluate_reproduces_the_results_in_the_manifest(folder: Path, exported: Path, tmp_path: Path) -> None:
    options = ("--data", folder / "films.jsonl", "--out", tmp_path / "export.json", "--device", "cpu")
    assert call("evaluate", exported, *options) == 0
    stated = json.loads((exported / "manifest.json").read_text())["results"]
    assert json.loads((tmp_path / "export.json").read_text()) == stated
    assert next(result for result in stated if result["metric"] == "accuracy")["value"] == 1
