"""A model with several length buckets, from recipe to export: few files for all buckets."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from torch import nn

import artifact.loading
import model.export.graphs
from artifact.backends import create_backend
from artifact.backends.base import InferenceBackend, largest_error
from artifact.backends.onnx import OnnxBackend
from artifact.documents import OnOverflow, pad_rows
from artifact.errors import BadExport
from artifact.exports import sha256_of
from artifact.loading import load_export
from artifact.local import Model
from artifact.manifest import Format
from artifact.tasks.classification import ClassifierManifest
from model.config.recipes import load_recipe
from model.data.own import DataFiles
from model.nn.classifier import WordClassifier
from model.runs.load import load_trained
from model.tasks import task_of, two_views
from model.tasks.graphs import ExportGraph, golden_documents
from model.tasks.words import WordTask
from tests.support.commands import call, export, train
from tests.support.exported import has_attention, repeated_weights
from tests.support.shared import made_once
from tests.support.stretches import check_stretches

RECIPE = """
name = "tiny"
task = "text-classification"
seed = 0

[data]
name = "synthetic"
validation_fraction = 0.2

[model]
kind = "{kind}"

[model.encoder]
seq_len = {seq_len}
dim = 16
num_heads = 2
num_layers = 1
ffn_dim = 32

[model.encoder.options]
num_segments = 4
num_rows = 4
num_columns = 4

[training]
epochs = 1
batch_size = 32
learning_rate = 1e-3
"""
NGRAM_VIEW = """
[model.ngram_view]
longest = 2
num_ngrams = 1024
max_length = 512

[model.ngram_vectors]
dim = 16
epochs = 2
"""
PREFIXES = NGRAM_VIEW.replace("longest", "sublinear = true\nprefixes = true\nlongest")
VECTOR_VIEW = """
[model.vector_view]
rounds = [{}]
"""
BUCKETS = (256, 512)
OUTPUTS = ("logits", "contributions", "known")
FORMATS: tuple[Format, ...] = ("onnx", "torchscript")


def trained(folder: Path, kind: str, seq_len: int, *sections: str) -> Path:
    """Train briefly and return the folder of the run."""
    recipe = folder / "tiny.toml"
    recipe.write_text(RECIPE.format(kind=kind, seq_len=seq_len) + "".join(sections))
    return train(recipe, folder)


def ngram_run(factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose model has the n-gram view only."""
    folder = made_once(factory, "n-gram view", lambda folder: trained(folder, "words", 64, NGRAM_VIEW))
    return folder / "tiny-seed0"


@pytest.fixture(scope="module", params=["n-gram view", "prefixes", "both views"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose model has one view or two; in training, the second would not always stay."""
    if request.param == "n-gram view":
        return ngram_run(tmp_path_factory)
    if request.param == "prefixes":
        folder = made_once(tmp_path_factory, "prefixes", lambda folder: trained(folder, "words", 64, PREFIXES))
        return folder / "tiny-seed0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_views, "is_better", lambda *_: True)
        patch.setattr(two_views, "fit_weights", lambda _, second, __: (1.0, 0.0 if second is None else 2.0))
        sections = (NGRAM_VIEW, VECTOR_VIEW)
        folder = made_once(tmp_path_factory, "both views", lambda folder: trained(folder, "words", 64, *sections))
        return folder / "tiny-seed0"


@pytest.fixture(scope="module")
def classifier(run: Path) -> nn.Module:
    """The exported model in PyTorch."""
    return load_trained(run, DataFiles()).finished.model


Inputs = dict[str, np.ndarray]


def eager(classifier: nn.Module, inputs: Inputs, output: str = "logits") -> np.ndarray:
    return model.export.graphs.eager(ExportGraph("model", classifier, inputs, OUTPUTS, BUCKETS))[output]


def prose(count: int, bucket: int) -> Inputs:
    """Return documents similar to the training documents, from one byte to a full bucket; some have unknown words."""
    generator = np.random.default_rng(count)
    lengths = [1, bucket, *generator.integers(1, bucket + 1, count).tolist()][:count]
    rows = [generator.choice(list(b"+-+-ab cdh "), length).astype(np.uint8).tobytes() for length in lengths]
    return dict(zip(("bytes", "lengths"), pad_rows(rows, bucket), strict=True))


def test_model_has_the_views_and_buckets_of_its_recipe(run: Path, classifier: nn.Module) -> None:
    config = load_recipe(run.parent / "tiny.toml")
    task = task_of(config)
    assert isinstance(task, WordTask)
    assert task.config.model.buckets == BUCKETS
    assert isinstance(classifier, WordClassifier)
    assert (classifier.vector_view is None) == (task.config.model.vector_view is None)
    assert (classifier.weights[1] > 0) == (classifier.vector_view is not None)


def test_recipe_in_the_manifest_has_the_parts_of_the_graph(exported: Path, manifest: ClassifierManifest) -> None:
    stated, has_block = manifest.training.recipe["model"], has_attention(exported / "model.onnx")
    assert (stated["encoder"] is not None, stated["vector_view"] is not None) == (has_block, has_block)
    assert repeated_weights(exported / "model.ts") == []


def test_manifest_lists_a_file_for_each_bucket_and_format(exported: Path, manifest: ClassifierManifest) -> None:
    names = {
        ("onnx", 256): "model.256.onnx",
        ("onnx", 512): "model.onnx",
        ("torchscript", 256): "model.ts",
        ("torchscript", 512): "model.ts",
    }
    assert {(file.format, file.bucket): file.path for file in manifest.files} == names
    assert len(manifest.files) == len(names)
    assert all(file.sha256 == sha256_of(exported / file.path) for file in manifest.files)
    assert manifest.fixed_shapes is not None
    assert manifest.fixed_shapes.path == "model.fixed.onnx"
    assert manifest.fixed_shapes.sha256 == sha256_of(exported / "model.fixed.onnx")
    expected = {"README.md", "golden.npz", "manifest.json", "model.fixed.onnx", *names.values()}
    assert {path.name for path in exported.iterdir()} == expected
    assert [spec.shape for spec in manifest.inputs] == [(-1, -1), (-1,)]
    assert [spec.shape for spec in manifest.outputs] == [(-1, 2), (-1, -1, 2), (-1, 2)]
    assert manifest.max_length == BUCKETS[-1]
    assert manifest.words == "unicode"


@pytest.mark.parametrize("format", FORMATS)
def test_backend_agrees_with_pytorch_in_every_bucket(
    exported: Path, manifest: ClassifierManifest, classifier: nn.Module, format: Format
) -> None:
    backend = create_backend(manifest, exported, format=format, device="cpu")
    for bucket in BUCKETS:
        for count in (1, 2, 7):
            inputs = prose(count, bucket)
            assert largest_error(backend.run(inputs)["logits"], eager(classifier, inputs)) <= manifest.tolerance


def test_file_of_the_shortest_bucket_takes_its_weights_from_the_other(exported: Path) -> None:
    short, other = exported / "model.256.onnx", exported / "model.onnx"
    graph = onnx.load(short, load_external_data=False).graph
    assert [dimension.dim_value for dimension in graph.input[0].type.tensor_type.shape.dim][1] == 256
    stored = {tensor.name: tensor.external_data for tensor in graph.initializer}
    assert {entry.key: entry.value for entry in stored["ngram_view.table"]}["location"] == other.name
    assert len(graph.node) < len(onnx.load(other).graph.node)


@pytest.mark.parametrize("path", ["model.onnx", "model.256.onnx", "model.fixed.onnx", "model.ts"])
def test_files_agree_with_pytorch_on_characters_of_every_length_and_kind(
    exported: Path, manifest: ClassifierManifest, classifier: nn.Module, path: str
) -> None:
    if path == "model.ts":
        backend: InferenceBackend = create_backend(manifest, exported, format="torchscript", device="cpu")
    else:
        backend = OnnxBackend(dict.fromkeys(BUCKETS, exported / path), manifest)
    generator = np.random.default_rng(0)
    characters = list("+++---abAB cd\u00a0\u0301\u200d\u2212—á東❤\ufe0f😀")
    texts = [
        "".join(generator.choice(characters, 256)).encode()[:256] for _ in range(20)
    ]  # some end within a character
    inputs: Inputs = dict(zip(("bytes", "lengths"), pad_rows(texts, 256), strict=True))
    expected = eager(classifier, inputs)
    assert np.ptp(expected, axis=0).min() > 100 * manifest.tolerance
    assert largest_error(backend.run(inputs)["logits"], expected) <= manifest.tolerance


@pytest.mark.parametrize("format", FORMATS)
def test_backend_output_is_the_same_in_every_bucket(
    exported: Path, manifest: ClassifierManifest, format: Format
) -> None:
    backend = create_backend(manifest, exported, format=format, device="cpu")
    inputs = prose(9, 256)
    wide = {"bytes": np.pad(inputs["bytes"], ((0, 0), (0, 256))), "lengths": inputs["lengths"]}
    answers = backend.run(inputs)["logits"]
    assert np.ptp(answers, axis=0).min() > 100 * manifest.tolerance
    assert largest_error(backend.run(wide)["logits"], answers) <= manifest.tolerance


@pytest.mark.parametrize("format", FORMATS)
def test_backend_handles_documents_without_words(
    exported: Path, manifest: ClassifierManifest, classifier: nn.Module, format: Format
) -> None:
    backend = create_backend(manifest, exported, format=format, device="cpu")
    for bucket in BUCKETS:
        inputs: Inputs = dict(zip(("bytes", "lengths"), pad_rows([b" ", bytes(40), b" \n" * 128], bucket), strict=True))
        assert largest_error(backend.run(inputs)["logits"], eager(classifier, inputs)) <= manifest.tolerance


@pytest.mark.parametrize("format", FORMATS)
def test_answer_for_a_document_does_not_depend_on_its_batch(
    exported: Path, manifest: ClassifierManifest, format: Format
) -> None:
    backend = create_backend(manifest, exported, format=format, device="cpu")
    inputs = prose(33, 512)
    together = backend.run(inputs)["logits"]
    alone = [backend.run({name: part[i : i + 1] for name, part in inputs.items()})["logits"][0] for i in range(33)]
    assert largest_error(np.stack(alone), together) <= manifest.tolerance


@pytest.mark.parametrize("format", FORMATS)
def test_contributions_and_base_add_up_to_the_logits(
    exported: Path, manifest: ClassifierManifest, format: Format
) -> None:
    backend = create_backend(manifest, exported, format=format, device="cpu")
    assert manifest.stretches is not None
    for bucket in BUCKETS:
        outputs = backend.run(prose(9, bucket))
        assert outputs["contributions"].shape == (9, bucket // manifest.stretches.length, 2)
        assert outputs["contributions"].any()
        total = outputs["contributions"].sum(axis=1) + np.array(manifest.stretches.base, np.float32)
        assert np.abs(total - outputs["logits"]).max() < 1e-5


@pytest.mark.parametrize("format", FORMATS)
def test_backend_counts_the_known_words(
    exported: Path, manifest: ClassifierManifest, classifier: nn.Module, format: Format
) -> None:
    backend = create_backend(manifest, exported, format=format, device="cpu")
    for bucket in BUCKETS:
        inputs = prose(9, bucket)
        known = backend.run(inputs)["known"]
        assert np.array_equal(known, eager(classifier, inputs, "known"))
        assert (known[1:, 0] < known[1:, 1]).all()
        assert known.any(axis=0).all()


def test_manifest_states_the_known_words_of_validation_documents(
    run: Path, exported: Path, manifest: ClassifierManifest
) -> None:
    texts = load_trained(run, DataFiles()).data.validation.texts
    answers = Model(load_export(exported, device="cpu")).classify(texts)
    low, median = np.quantile([answer["coverage"]["known"] for answer in answers], (0.01, 0.5))
    assert 0 < low < median < 1
    assert manifest.known is not None
    assert [manifest.known.low, manifest.known.median] == pytest.approx([low, median], abs=1e-4)


@pytest.mark.parametrize("on_overflow", ["windows", "head", "tail", "head_tail"])
@pytest.mark.parametrize("format", FORMATS)
def test_stretches_of_an_answer_add_up_to_its_scores(
    exported: Path, manifest: ClassifierManifest, format: Format, on_overflow: OnOverflow
) -> None:
    loaded = Model(load_export(exported, format=format, device="cpu"))
    text = prose(3, 512)["bytes"][1].tobytes() * 5
    documents = [text[:length] for length in (1, 255, 256, 257, 512, 513, 700, 2500)]
    together = loaded.classify(documents, on_overflow=on_overflow, detail=True)
    for document, answer in zip(documents, together, strict=True):
        check_stretches(answer, manifest, len(document))
        alone = loaded.classify(document, on_overflow=on_overflow, detail=True)
        for ours, theirs in zip(alone["stretches"], answer["stretches"], strict=True):
            assert ours["contributions"] == pytest.approx(theirs["contributions"], abs=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_backend_rejects_a_length_that_is_no_bucket(
    exported: Path, manifest: ClassifierManifest, format: Format
) -> None:
    backend = create_backend(manifest, exported, format=format, device="cpu")
    with pytest.raises(KeyError):
        backend.run(prose(2, 128))


@pytest.mark.parametrize("format", FORMATS)
def test_export_can_be_served(exported: Path, format: Format) -> None:
    loaded = load_export(exported, format=format, device="cpu")
    golden = golden_documents(512)
    with np.load(exported / "golden.npz", allow_pickle=False) as stored:
        for name, array in golden.items():
            assert np.array_equal(stored[name], array)
        assert largest_error(loaded.backend.run(golden)["logits"], stored["logits"]) <= loaded.manifest.tolerance


def test_golden_documents_cover_every_bucket() -> None:
    _, lengths = golden_documents(512).values()
    assert {int(length > 256) for length in lengths} == {0, 1}
    assert {256, 257, 511, 512} <= set(lengths.tolist())


@pytest.mark.parametrize("row", [0, 3, 4, 7])
def test_changed_golden_output_is_rejected(exported: Path, tmp_path: Path, row: int) -> None:
    folder = with_golden(exported, tmp_path, lambda arrays: arrays["logits"][row].__iadd__(np.float32(0.01)))
    with pytest.raises(BadExport, match=r"golden\.npz: logits is \d\.\d\de-0\d from its golden output; allowed 1e-05$"):
        load_export(folder, device="cpu")


def test_golden_row_is_checked_in_the_bucket_that_serves_it(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is wrong in one bucket only is rejected."""

    def backend_that_is_wrong_in(bucket: int) -> Any:
        def create(*arguments: Any, **options: Any) -> InferenceBackend:
            backend = create_backend(*arguments, **options)
            right = backend.run

            def run(inputs: Inputs, limit_s: float) -> Inputs:
                asked.append(inputs["bytes"].shape)
                outputs = right(inputs, limit_s)
                outputs["logits"] = outputs["logits"] + np.float32(0.01 * (inputs["bytes"].shape[1] == bucket))
                return outputs

            monkeypatch.setattr(backend, "run", run)
            return backend

        return create

    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(artifact.loading, "create_backend", backend_that_is_wrong_in(1))
    load_export(exported, device="cpu")
    fitting = int((golden_documents(512)["lengths"] <= 256).sum())
    assert asked == [(fitting, 256), (8 - fitting, 512)]
    for bucket in (256, 512):
        monkeypatch.setattr(artifact.loading, "create_backend", backend_that_is_wrong_in(bucket))
        with pytest.raises(BadExport, match=r"golden\.npz: logits is .* from its golden output"):
            load_export(exported, device="cpu")


def with_golden(exported: Path, tmp_path: Path, alter: object) -> Path:
    """Return a copy of an export with changed golden tensors and the matching hash."""
    folder = shutil.copytree(exported, tmp_path / exported.parent.name / "1")
    with np.load(folder / "golden.npz", allow_pickle=False) as stored:
        arrays = dict(stored)
    assert callable(alter)
    alter(arrays)
    np.savez_compressed(folder / "golden.npz", allow_pickle=False, **arrays)
    text = (folder / "manifest.json").read_text()
    old, new = sha256_of(exported / "golden.npz"), sha256_of(folder / "golden.npz")
    assert old != new
    (folder / "manifest.json").write_text(text.replace(old, new))
    return folder


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("run", ["n-gram view"], indirect=True)
def test_export_that_disagrees_in_the_short_bucket_only_is_rejected(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = model.export.graphs.fitting

    def shifted(golden: Inputs, outputs: Inputs, bucket: int) -> tuple[Inputs, Inputs]:
        kept, expected = right(golden, outputs, bucket)
        return kept, {**expected, "logits": expected["logits"] + np.float32(0.25 * (bucket == 256))}

    monkeypatch.setattr(model.export.graphs, "fitting", shifted)
    assert call("export", run, "--out", tmp_path, "--device", "cpu") == 2
    assert re.match(r"error: onnx in one batch differs from eager by \d\.\d\de-0[12]; allowed", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_evaluate_reproduces_the_results_in_the_manifest(run: Path, exported: Path, tmp_path: Path) -> None:
    assert call("evaluate", exported, "--out", tmp_path / "export.json", "--device", "cpu") == 0
    assert call("evaluate", run, "--device", "cpu") == 0
    stated = json.loads((exported / "manifest.json").read_text())["results"]
    assert json.loads((tmp_path / "export.json").read_text()) == stated
    assert json.loads((run / "evaluation.json").read_text()) == stated


def test_published_classifier_beyond_dense_lengths_is_exported_in_every_bucket(tmp_path: Path) -> None:
    loaded = load_export(export(trained(tmp_path, "paper", 512), tmp_path), device="cpu")
    assert {file.bucket for file in loaded.manifest.files} == set(BUCKETS)
