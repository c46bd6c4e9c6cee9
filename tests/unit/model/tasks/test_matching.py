import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from artifact.backends import create_backend
from artifact.backends.base import largest_error
from artifact.documents import pad_rows, sigmoid
from artifact.exports import read_manifest
from artifact.manifest import Format
from artifact.tasks.matching import MatcherManifest
from model.config.recipes import find_recipe, load_recipe
from model.config.run import MatchingRun
from model.data.own import DataFiles
from model.export.graphs import DATATYPES
from model.nn.matcher import Matcher
from model.runs.load import load_trained
from model.tasks import task_of
from model.tasks.graphs import module_functions
from model.tasks.link import area_under_roc
from model.tasks.matching import CONTRAST, MatchingTask, PairLearner
from model.training import checkpoint
from model.training.learner import TrainingBatch
from tests.support.commands import call, export, train

ROUNDING = 1e-6
"""Single-precision rounding: the last bits depend on where arrays are in memory."""


def matching(*overrides: str) -> MatchingTask:
    config = load_recipe(find_recipe("synthetic-pairs"), list(overrides))
    assert isinstance(config, MatchingRun)
    return MatchingTask(config)


def learner_of(*overrides: str) -> PairLearner:
    task = matching(*overrides)
    return task.learner(task.load(Path("absent")))


@pytest.fixture
def learner() -> PairLearner:
    return learner_of()


def same(left: list[TrainingBatch], right: list[TrainingBatch]) -> bool:
    return all(torch.equal(a, b) for x, y in zip(left, right, strict=True) for a, b in zip(x, y, strict=True))


def number_of(learner: PairLearner) -> dict[bytes, int]:
    """Map the first 128 bytes of each document to its index."""
    numbers = {text[:128]: number for number, text in enumerate(learner.data.texts)}
    assert len(numbers) == len(learner.data.texts)
    return numbers


def test_batches_depend_on_the_epoch(learner: PairLearner) -> None:
    again, other = learner_of(), learner_of("seed=1")
    assert same(list(learner.batches(3)), list(again.batches(3)))
    assert not same(list(learner.batches(3)), list(learner.batches(4)))
    assert not same(list(learner.batches(3)), list(other.batches(3)))


def test_batches_are_pairs_of_the_training_split_half_of_them_positive(learner: PairLearner) -> None:
    numbers = number_of(learner)
    known = {tuple(row) for row in learner.data.table["train"].tolist()}
    batches = list(learner.batches(0))
    assert len(batches) == 400 // 32
    for documents, lengths, a, b, labels, _ in batches:
        assert labels.tolist() == [1.0] * 16 + [0.0] * 16
        rows = [numbers[bytes(row[:n].tolist())] for row, n in zip(documents, lengths.tolist(), strict=True)]
        assert len(set(rows)) == len(rows)
        assert set(a.tolist()) | set(b.tolist()) == set(range(len(rows)))
        for i, j, label in zip(a.tolist(), b.tolist(), labels.tolist(), strict=True):
            assert (rows[i], rows[j], int(label)) in known


def test_batches_mark_pairs_that_are_no_negatives(learner: PairLearner) -> None:
    numbers = number_of(learner)
    positive = {(a, b) for a, b, label in learner.train.tolist() if label}
    others = 0
    for documents, lengths, a, b, _, is_known in learner.batches(0):
        rows = [numbers[bytes(row[:n].tolist())] for row, n in zip(documents, lengths.tolist(), strict=True)]
        assert is_known.shape == (16, 16)
        for i in range(16):
            for j in range(16):
                left, right = rows[a[i]], rows[b[j]]
                expected = left == right or (left, right) in positive or (right, left) in positive
                assert bool(is_known[i, j]) == expected
        assert is_known.diagonal().all()
        others += int(is_known.sum()) - 16
    assert others > 0


@pytest.mark.parametrize(("examples", "batches"), [(0, 12), (32, 1), (95, 2), (1000, 31)])
def test_number_of_batches_follows_the_recipe(examples: int, batches: int) -> None:
    learner = learner_of(f"training.examples_per_epoch={examples}")
    assert learner.examples_per_epoch == 32 * batches
    assert len(list(learner.batches(0))) == batches


@pytest.mark.parametrize(("most", "longest"), [(150, 128), (100, 100)])
def test_documents_are_truncated_to_the_recipe_and_the_window(most: int, longest: int) -> None:
    documents, lengths, *_ = next(learner_of(f"data.max_bytes={most}").batches(0))
    assert documents.shape[1] == 128
    assert lengths.max() == longest


def test_initialise_counts_each_ngram_once_per_document(learner: PairLearner) -> None:
    torch.manual_seed(0)
    model = learner.build()
    assert isinstance(model, Matcher)
    seen: list[tuple[torch.Tensor, int]] = []
    model.encoder.stem.initialise = lambda frequencies, count: seen.append((frequencies, count))  # type: ignore[method-assign]
    model.encoder.standardise = lambda *_: None  # type: ignore[method-assign]
    learner.initialise(model, torch.device("cpu"))
    expected = np.zeros(1024)
    used = sorted({number for a, b, _ in learner.train.tolist() for number in (a, b)})
    for number in used:
        document, lengths = pad_rows([learner.data.texts[number][:128]], 128)
        rows = model.encoder.stem.rows(torch.from_numpy(document), torch.from_numpy(lengths)).flatten().tolist()
        for row in set(rows) - {0}:
            expected[row - 1] += 1
    [(frequencies, count)] = seen
    assert count == len(used)
    assert frequencies.tolist() == expected.tolist()


def test_recipe_selects_all_pairs_or_disjoint_ones(learner: PairLearner) -> None:
    other = learner_of("data.disjoint=true")
    assert (len(learner.train), len(learner.task.pairs(learner.data, "val"))) == (400, 100)
    assert other.train.tolist() == other.data.disjoint("train").tolist()
    assert other.task.pairs(other.data, "val").tolist() == other.data.disjoint("val").tolist()


def slow_loss(logit: Callable[[int, int], float], batch: TrainingBatch) -> float:
    """Cross-entropy of every pair, and of the partner of each document among those not known to match it."""
    _, _, a, b, labels, is_known = (part.tolist() for part in batch)
    pairs = [
        math.log1p(math.exp(-logit(i, j))) if label else math.log1p(math.exp(logit(i, j)))
        for i, j, label in zip(a, b, labels, strict=True)
    ]
    contrast = []
    for i in range(len(is_known)):
        rivals = [j for j in range(len(is_known)) if j == i or not is_known[i][j]]
        total = sum(math.exp(logit(a[i], b[j])) for j in rivals)
        contrast.append(math.log(total) - logit(a[i], b[i]))
    return sum(pairs) / len(pairs) + CONTRAST * sum(contrast) / len(contrast)


def test_loss_equals_its_definition_and_excludes_known_pairs(learner: PairLearner) -> None:
    torch.manual_seed(0)
    model = learner.build().eval()
    assert isinstance(model, Matcher)
    torch.nn.init.normal_(model.encoder.stem.weight)
    last = model.head.mlp[-1]
    assert isinstance(last, torch.nn.Linear)
    torch.nn.init.normal_(last.weight)
    batch = next(batch for batch in learner.batches(0) if batch[5].sum() > 16)
    vectors = model(*batch[:2]).detach()

    def logit(i: int, j: int) -> float:
        return float(model.head(vectors[i : i + 1], vectors[j : j + 1]).detach())

    found = float(learner.loss(model, batch).detach())
    # single precision: logits of order ten, from sums of some hundred terms
    assert found == pytest.approx(slow_loss(logit, batch), rel=1e-5)
    all_rivals = (*batch[:5], torch.eye(16, dtype=torch.bool))
    assert slow_loss(logit, all_rivals) > slow_loss(logit, batch) + 1e-3
    assert float(learner.loss(model, all_rivals).detach()) == pytest.approx(slow_loss(logit, all_rivals), rel=1e-5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short training run."""
    return train("synthetic-pairs", tmp_path_factory.mktemp("runs"), "training.epochs=2")


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of the run as version 1."""
    return export(run, tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="module")
def manifest(exported: Path) -> MatcherManifest:
    manifest = read_manifest(exported)
    assert isinstance(manifest, MatcherManifest)
    return manifest


@pytest.fixture(scope="module")
def matcher(run: Path) -> Matcher:
    """The exported model: the best checkpoint, calibrated and rounded."""
    matcher = load_trained(run, DataFiles()).finished.model
    assert isinstance(matcher, Matcher)
    return matcher


def test_training_selects_the_epoch_by_the_validation_pairs(run: Path) -> None:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert records[1]["training_loss"] < records[0]["training_loss"]
    config, progress, _, state = checkpoint.load(run / "best.pt")
    assert progress.best == max(record["validation_auc"] for record in records) > 0.9
    task = task_of(config)
    assert isinstance(task, MatchingTask)
    model = task.build()
    checkpoint.load_weights(model, state, run / "best.pt")
    assert task.learner(task.load(Path("absent"))).validate(model.eval(), torch.device("cpu")) == progress.best


def test_export_writes_two_graphs_and_lists_them_in_the_manifest(exported: Path, manifest: MatcherManifest) -> None:
    names = {"head.onnx", "head.ts", "model.onnx", "model.ts"}
    others = {"README.md", "golden.npz", "manifest.json", "model.fixed.onnx"}
    assert {path.name for path in exported.iterdir()} == names | others
    assert {file.path for graph in manifest.graphs for file in graph.files} == names
    assert manifest.fixed_shapes is not None
    assert manifest.head.fixed_shapes is not None
    assert (manifest.fixed_shapes.path, manifest.fixed_shapes.for_all_batches) == ("model.fixed.onnx", True)
    assert (manifest.head.fixed_shapes.path, manifest.head.fixed_shapes.for_all_batches) == ("head.onnx", False)
    assert [spec.shape for spec in (*manifest.inputs, *manifest.outputs)] == [(-1, 128), (-1,), (-1, 16)]
    assert [spec.shape for spec in (*manifest.head.inputs, *manifest.head.outputs)] == [(-1, 16), (-1, 16), (-1, 1)]
    assert (manifest.max_length, manifest.window_overlap, manifest.dim) == (128, 16, 16)
    assert manifest.training.validation.metric == "auc"
    assert (manifest.data_terms, manifest.non_commercial) == ("Generated; no terms.", False)


def random_inputs(manifest: MatcherManifest) -> list[dict[str, NDArray[Any]]]:
    generator = np.random.default_rng(1)
    rows = [generator.bytes(int(generator.integers(1, 129))) for _ in range(5)]
    a, b = generator.standard_normal((2, 5, manifest.dim)).astype(np.float32)
    return [dict(zip(("bytes", "lengths"), pad_rows(rows, 128), strict=True)), {"a": a, "b": b}]


@pytest.mark.parametrize("format", ["onnx", "torchscript"])
def test_backends_agree_with_pytorch_on_other_inputs(
    exported: Path, manifest: MatcherManifest, matcher: Matcher, format: Format
) -> None:
    runs = module_functions(matching().graphs(matcher), torch.device("cpu"))
    for graph, run, inputs in zip(manifest.graphs, runs, random_inputs(manifest), strict=True):
        output = graph.outputs[0]
        backend = create_backend(graph, exported, format=format, device="cpu")
        found = backend.run(inputs)[output.name]
        assert output.datatype == DATATYPES[str(found.dtype)]
        assert largest_error(found, run(inputs)) <= manifest.tolerance
        for i in range(5):
            alone = backend.run({name: array[i : i + 1] for name, array in inputs.items()})[output.name]
            assert largest_error(alone, found[i : i + 1]) <= manifest.tolerance


def test_golden_outputs_equal_those_of_pytorch(exported: Path, matcher: Matcher) -> None:
    sources = matching().graphs(matcher)
    with np.load(exported / "golden.npz", allow_pickle=False) as golden:
        assert sorted(golden) == ["a", "b", "bytes", "lengths", "logits", "vectors"]
        for source, run in zip(sources, module_functions(sources, torch.device("cpu")), strict=True):
            again = run({name: golden[name] for name in source.golden})
            assert largest_error(again, golden[source.outputs[0]]) <= ROUNDING


def test_evaluate_reproduces_the_results_in_the_manifest(
    exported: Path, manifest: MatcherManifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "evaluation.json"
    assert call("evaluate", exported, "--out", target, "--device", "cpu") == 0
    results = json.loads(target.read_text())
    assert results == json.loads(manifest.model_dump_json())["results"]
    assert [(r["metric"], r["condition"], r["split"], r["examples"]) for r in results] == [
        ("accuracy", "all pairs, first 200 bytes", "test", 100),
        ("auc", "all pairs, first 200 bytes", "test", 100),
    ]
    out = capsys.readouterr().out
    for r in results:
        assert re.search(rf"{r['metric']} +{r['condition']} +test +100 +{r['value']:.4f} +{r['value']:.4f}\n", out)


def test_evaluate_of_a_run_measures_the_model_it_would_export(run: Path, manifest: MatcherManifest) -> None:
    assert call("evaluate", run, "--device", "cpu") == 0
    results = json.loads((run / "evaluation.json").read_text())
    assert [r["value"] for r in results] == pytest.approx([r.value for r in manifest.results], abs=1e-3)


def test_results_equal_those_of_each_pair_alone(manifest: MatcherManifest, matcher: Matcher) -> None:
    task = matching()
    data = task.load(Path("absent"))
    pairs, texts = data.table["test"], [text[: task.config.data.max_bytes] for text in data.texts]
    encode, compare = module_functions(task.graphs(matcher), torch.device("cpu"))

    def vector(text: bytes) -> NDArray[np.float32]:
        windows = [text] if len(text) <= 128 else [text[:128], text[-128:]]
        parts: dict[str, NDArray[Any]] = dict(zip(("bytes", "lengths"), pad_rows(windows, 128), strict=True))
        mean: NDArray[np.float64] = encode(parts).astype(np.float64).mean(axis=0, keepdims=True)
        return mean.astype(np.float32)

    assert 128 < max(len(texts[i]) for i in pairs[:, :2].flat) <= 200
    scores = [sigmoid(compare({"a": vector(texts[a]), "b": vector(texts[b])}))[0, 0] for a, b, _ in pairs]
    right = sum((score >= 0.5) == label for score, label in zip(scores, pairs[:, 2], strict=True))
    values = {result.metric: result.value for result in manifest.results}
    assert values["accuracy"] == pytest.approx(right / 100, abs=1e-6)
    assert values["auc"] == pytest.approx(area_under_roc(np.array(scores), pairs[:, 2]), abs=1e-6)
