"""Invalid exports are rejected at load with one line that names the export and the cause."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import artifact
import artifact.exports
import artifact.loading
from artifact.backends import create_backend
from artifact.backends.base import InferenceBackend, Tensors
from artifact.errors import BadExport
from artifact.exports import CARD, MAX_CARD_BYTES, created_at, read_card, read_manifest, version_folder
from artifact.files import MAX_JSON_BYTES
from artifact.loading import load_export
from artifact.manifest import MANIFEST, MAX_EXPORT_BYTES, MAX_FILE_BYTES, Precision
from artifact.tasks import TASKS
from artifact.tasks.classification import ClassifierManifest
from service.__main__ import main
from tests.support.oversized import make_endless, make_sparse
from tests.support.paths import EXPORTS
from tests.support.versions import rehash

CLASSIFIER, MATCHER, FORECASTER = "imdb-s3", "aan", "ettm2"

Raw = dict[str, Any]
CONTRIBUTIONS: Raw = {"name": "contributions", "datatype": "FP32", "shape": [-1, -1, 2]}
KNOWN: Raw = {"name": "known", "datatype": "FP32", "shape": [-1, 2]}
Arrays = dict[str, np.ndarray]


def place(source: str, target: str) -> None:
    """Link weights and copy files that a test may change."""
    if source.endswith((".onnx", ".ts")):
        os.symlink(source, target)
    else:
        shutil.copyfile(source, target)


def copy(name: str, folder: Path) -> Path:
    source = version_folder(EXPORTS / name)
    return Path(shutil.copytree(source, folder / name / source.name, copy_function=place))


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    return copy(CLASSIFIER, tmp_path)


@pytest.fixture
def matcher(tmp_path: Path) -> Path:
    return copy(MATCHER, tmp_path)


@pytest.fixture
def forecaster(tmp_path: Path) -> Path:
    return copy(FORECASTER, tmp_path)


def edit(folder: Path, change: Callable[[Raw], object]) -> None:
    path = folder / "manifest.json"
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))


def replace(folder: Path, name: str, content: bytes) -> None:
    """Replace a file and update its hash in the manifest."""
    path = folder / name
    path.unlink()
    path.write_bytes(content)
    rehash(folder, name)


def rewrite(folder: Path, name: str, change: Callable[[Arrays], Arrays]) -> None:
    """Write changed arrays to an archive and update its hash in the manifest."""
    with np.load(folder / name) as archive:
        arrays = change(dict(archive))
    np.savez(folder / "changed.npz", allow_pickle=True, **arrays)
    replace(folder, name, (folder / "changed.npz").read_bytes())
    (folder / "changed.npz").unlink()


def check_refusal(folder: Path, reason: str, *words: str) -> None:
    with pytest.raises(BadExport) as caught:
        load_export(folder, device="cpu")
    message = str(caught.value)
    assert message.startswith(f"{folder.parent.name}/{folder.name}: ")
    assert len(message.splitlines()) == 1
    for word in words:
        assert word in message, message
    assert caught.value.reason == reason


@pytest.mark.parametrize("name", [CLASSIFIER, MATCHER, FORECASTER])
def test_valid_export_is_loaded(tmp_path: Path, name: str) -> None:
    loaded = load_export(copy(name, tmp_path), device="cpu")
    assert loaded.manifest.name == name
    assert (loaded.head is not None) == (name == MATCHER)
    assert isinstance(loaded.task, TASKS[loaded.manifest.task])


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("name", [CLASSIFIER, MATCHER, FORECASTER])
def test_other_schema_versions_are_rejected(tmp_path: Path, name: str, version: int) -> None:
    folder = copy(name, tmp_path)
    edit(folder, lambda raw: raw.update(schema_version=version))
    check_refusal(folder, "schema", f"schema version {version}; this service reads 2")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: raw.pop("task"), "task"),
        (lambda raw: raw.update(version=2**53), "version"),
        (lambda raw: raw.update(task="summarisation"), "task: 'summarisation' is none of text-classification, "),
        (lambda raw: raw.update(task="forecasting"), "channels"),
        (lambda raw: raw.update(labels=["no", "yes"]), "labels"),
        (lambda raw: raw.update(max_length=raw["max_length"] + 1), "max_length"),
        (lambda raw: raw.update(window_overlap=raw["max_length"]), "window_overlap"),
        (lambda raw: raw.update(window_overlap=-1), "window_overlap"),
        (lambda raw: raw.update(inputs=raw["inputs"][::-1]), "not INT32, UINT8"),
        (lambda raw: raw.update(inputs=raw["inputs"][:1]), "not UINT8"),
        (lambda raw: raw["outputs"][0].update(shape=[-1]), "(-1, dim), not (-1,)"),
        (lambda raw: raw["outputs"][0].update(shape=[-1, 0]), "(-1, dim), not (-1, 0)"),
        (lambda raw: raw["outputs"].append(CONTRIBUTIONS), "(-1, dim), not (-1, 1280), (-1, -1, 2)"),
        (lambda raw: raw["outputs"][0].update(shape=[-1, 965]), "encodings need ((-1, 965), (-1, 965))"),
        (lambda raw: raw.update(num_words=427), "encodings of 1280 numbers are too short"),
        (lambda raw: raw.pop("head"), "head"),
        (lambda raw: raw["head"].update(files=[]), "head.files"),
        (lambda raw: raw["head"]["files"].pop(), "same formats"),
        (lambda raw: raw["head"]["files"][0].update(bucket=1), "bucket"),
        (lambda raw: raw["head"]["files"][0].update(path="../../head.onnx"), "path"),
        (lambda raw: raw["head"]["files"][0].update(path="none.onnx"), "none.onnx is missing"),
        (lambda raw: raw["head"]["files"][0].update(sha256="0" * 64), "sha256"),
        (lambda raw: raw["head"]["inputs"].pop(), "the head's inputs"),
        (lambda raw: raw["head"]["outputs"][0].update(shape=[-1, 2]), "the head's output"),
        (lambda raw: raw["head"]["outputs"][0].update(name="other"), "other"),
        (lambda raw: raw.update(calibration=raw["golden"]), "calibration"),
    ],
)
def test_invalid_field_of_a_matcher_is_rejected(matcher: Path, change: Callable[[Raw], object], words: str) -> None:
    edit(matcher, change)
    with pytest.raises(BadExport) as caught:
        load_export(matcher, device="cpu")
    check_refusal(matcher, caught.value.reason, words)
    assert caught.value.reason in {"manifest", "missing", "hash", "golden"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: raw.update(channels=[]), "channels"),
        (lambda raw: raw.update(channels=raw["channels"][:1] * len(raw["channels"])), "channels must differ"),
        (lambda raw: raw.update(channels=raw["channels"][:-1]), "means and scales"),
        (lambda raw: raw["mean"].pop(), "means and scales"),
        (lambda raw: raw["scale"].append(1.0), "means and scales"),
        (lambda raw: raw["mean"].__setitem__(0, float("nan")), "mean.0"),
        (lambda raw: raw["mean"].__setitem__(0, None), "mean.0"),
        (lambda raw: raw["scale"].__setitem__(0, 0.0), "scale.0"),
        (lambda raw: raw["scale"].__setitem__(0, -1.0), "scale.0"),
        (lambda raw: raw["scale"].__setitem__(0, float("inf")), "scale.0"),
        (lambda raw: raw.update(context_length=raw["context_length"] + 1), "shapes"),
        (lambda raw: raw.update(context_length=1), "context_length"),
        (lambda raw: raw.update(horizon=raw["horizon"] - 1), "shapes"),
        (lambda raw: raw.update(horizon=0), "horizon"),
        (lambda raw: raw.update(min_observations=1), "min_observations"),
        (lambda raw: raw.update(min_observations=raw["context_length"] + 1), "min_observations"),
        (lambda raw: raw.pop("frequency"), "frequency"),
        (lambda raw: raw.update(frequency="1month"), "expected an optional number and one of ms, s, min, h, d, b"),
        (lambda raw: raw.pop("calibration"), "calibration"),
        (lambda raw: raw["calibration"].update(path="/etc/passwd"), "calibration.path"),
        (lambda raw: raw["calibration"].update(path="none.npz"), "none.npz is missing"),
        (lambda raw: raw["calibration"].update(sha256="0" * 64), "sha256"),
        (lambda raw: raw.update(calibration=raw["golden"]), "'calibration.npz' is not in manifest.json"),
        (lambda raw: raw.update(calibration_examples=0), "calibration_examples"),
        (lambda raw: raw.update(calibration_examples=raw["calibration_examples"] + 1), "calibration_examples"),
        (lambda raw: raw.update(calibration_source="guess"), "calibration_source"),
        (lambda raw: raw.update(quantiles_reliable="maybe"), "quantiles_reliable"),
        (lambda raw: raw.pop("quantiles_reliable"), "quantiles_reliable"),
        (lambda raw: raw["files"][0].update(bucket=1), "bucket"),
        (lambda raw: raw["inputs"][0].update(shape=[-1, 1, 1]), "shapes"),
        (lambda raw: raw["inputs"].append(raw["inputs"][0]), "shapes"),
        (lambda raw: raw["outputs"][0].update(datatype="FP64"), "datatype"),
        (lambda raw: raw["results"][0].update(value=float("nan")), "results.0.value"),
        (lambda raw: raw.update(max_length=512), "max_length"),
    ],
)
def test_invalid_field_of_a_forecaster_is_rejected(
    forecaster: Path, change: Callable[[Raw], object], words: str
) -> None:
    edit(forecaster, change)
    with pytest.raises(BadExport) as caught:
        load_export(forecaster, device="cpu")
    check_refusal(forecaster, caught.value.reason, words)
    assert caught.value.reason in {"manifest", "missing", "hash", "unlisted", "calibration"}


def drop_onnx(raw: Raw) -> None:
    raw["files"] = [file for file in raw["files"] if file["format"] != "onnx"]


def set_outputs(raw: Raw, *others: Raw, **fields: object) -> None:
    """Replace the outputs after the first, and fields of the manifest; without `known`, none is stated."""
    raw["outputs"][1:] = others
    raw.update({"known": None, **fields})


def set_precision(files: list[Raw], precision: str) -> None:
    for file in files:
        file["precision"] = precision


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: raw.update(temperature=0), "temperature"),
        (lambda raw: raw.update(stretches=None), "a second output needs `stretches`"),
        (lambda raw: set_outputs(raw), "`stretches` need a second output of shape (-1, any, 2), not ()"),
        (lambda raw: set_outputs(raw, KNOWN), "`stretches` need a second output of shape (-1, any, 2), not ((-1, 2),)"),
        (lambda raw: set_outputs(raw, CONTRIBUTIONS, CONTRIBUTIONS), "a third output has the shape (-1, 2)"),
        (lambda raw: set_outputs(raw, CONTRIBUTIONS, KNOWN, KNOWN), "a third output has the shape (-1, 2)"),
        (lambda raw: raw.update(known={"low": 0.2, "median": 1.5}), "known.median"),
        (
            lambda raw: set_outputs(raw, CONTRIBUTIONS, known={"low": 0.2, "median": 0.5}),
            "`known` needs a third output",
        ),
        (lambda raw: raw["stretches"].update(base=[0]), "2 labels do not fit a base of 1 numbers"),
        (lambda raw: raw["stretches"].update(length=0), "stretches.length"),
        (lambda raw: raw["outputs"][1].update(name="parts"), "golden.npz has no tensor parts"),
        (lambda raw: raw.update(temperature=-1.0), "temperature"),
        (lambda raw: raw.update(temperature=float("nan")), "temperature"),
        (lambda raw: raw.update(reliability=[{"score": 0.5}]), "reliability.0.accuracy"),
        (lambda raw: raw["reliability"][0].update(score=float("inf")), "reliability.0.score"),
        (lambda raw: raw.update(files=raw["files"][:-1]), "the longest torchscript bucket is 2048, below max_length"),
        (lambda raw: raw["files"][0].update(bucket=0), "files.0.bucket"),
        (lambda raw: raw["files"][0].update(precision="bfloat16"), "files.0.precision"),
        (lambda raw: raw["files"][0].update(precision="float16"), "have one precision, not float16 and float32"),
        (lambda raw: set_precision(raw["files"], "float16"), "files have precision float32, not float16"),
        (lambda raw: set_precision(raw["float16"]["files"], "float32"), "have precision float16 and format onnx"),
        (lambda raw: raw["float16"]["files"][0].update(format="torchscript"), "have precision float16 and format onnx"),
        (lambda raw: raw["float16"]["files"].pop(), "the buckets [256, 512, 1024, 2048], those in float32 [256, 512"),
        (
            lambda raw: raw["float16"].update(weights_from="model.ts"),
            "weights_from of `float16` is model.ts, not model.256.onnx or model.onnx",
        ),
        (lambda raw: raw.update(weights_from="model.onnx"), "weights_from is for `float16` only, not model.onnx"),
        (lambda raw: drop_onnx(raw), "the buckets [256, 512, 1024, 2048, 4096], those in float32 []"),
        (lambda raw: raw["float16"].update(tolerance=0.1), "float16.tolerance"),
        (lambda raw: raw["float16"]["fixed_shapes"].update(sha256="0" * 64), "model.float16.fixed.onnx has sha256"),
        (lambda raw: raw["files"][0].update(sha256="0" * 64), "model.256.onnx has sha256"),
        (lambda raw: raw.update(min_length=1), "min_length"),
        (lambda raw: raw["inputs"][0].update(shape=[-1, 4096], name="text"), "golden.npz has no tensor text"),
    ],
)
def test_invalid_field_of_a_classifier_is_rejected(
    classifier: Path, change: Callable[[Raw], object], words: str
) -> None:
    edit(classifier, change)
    with pytest.raises(BadExport) as caught:
        load_export(classifier, device="cpu")
    check_refusal(classifier, caught.value.reason, words)
    assert caught.value.reason in {"manifest", "hash", "golden"}


CONTROL = ["\x1b[2J", "a\n", "a\nb", "\r", "\x00", "\x7f", "\x9b31m", "\u2028", "\u202egood"]


@pytest.mark.parametrize("text", CONTROL)
def test_control_characters_are_rejected(tmp_path: Path, text: str) -> None:
    """They would reach terminals and logs that show the names."""
    classifier, forecaster = copy(CLASSIFIER, tmp_path), copy(FORECASTER, tmp_path)
    edit(classifier, lambda raw: raw["labels"].__setitem__(1, text))
    check_refusal(classifier, "manifest", "labels.1: ")
    edit(classifier, lambda raw: raw.update(labels=["a", "b"], data_terms=text))
    check_refusal(classifier, "manifest", "data_terms: ")
    edit(forecaster, lambda raw: raw["channels"].__setitem__(0, text))
    check_refusal(forecaster, "manifest", "channels.0: ")
    edit(forecaster, lambda raw: raw.update(name=text))
    check_refusal(forecaster, "manifest", "name: ")


@pytest.mark.parametrize(
    "label", ["sehr gut", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001f44d\U0001f3fd", "a\u00a0b"]
)
def test_labels_in_any_language_are_accepted(classifier: Path, label: str) -> None:
    edit(classifier, lambda raw: raw["labels"].__setitem__(1, label))
    manifest = load_export(classifier, device="cpu").manifest
    assert isinstance(manifest, ClassifierManifest)
    assert manifest.labels[1] == label


@pytest.mark.parametrize("row", range(8))
def test_wrong_golden_output_of_a_classifier_is_rejected(classifier: Path, row: int) -> None:
    def change(arrays: Arrays) -> Arrays:
        arrays["logits"][row] += np.float32(0.01)
        return arrays

    rewrite(classifier, "golden.npz", change)
    check_refusal(classifier, "golden", "logits is ", "from its golden output; allowed 1e-05")


def test_archive_with_a_pickle_is_rejected(classifier: Path, tmp_path: Path) -> None:
    """Reading a pickle would run the code in it."""

    def change(arrays: Arrays) -> Arrays:
        return {**arrays, "logits": np.array([Payload(tmp_path / "ran")], dtype=object)}

    rewrite(classifier, "golden.npz", change)
    check_refusal(classifier, "golden")
    assert not (tmp_path / "ran").exists()


class Payload:
    """Makes a file when it is read from a pickle."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[[Path], object], tuple[Path]]:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_float16_has_golden_outputs_of_its_own(classifier: Path, precision: Precision) -> None:
    """A wrong one matters only if float16 is loaded."""

    def change(arrays: Arrays) -> Arrays:
        arrays["logits"][3] += np.float32(0.5)
        return arrays

    rewrite(classifier, "golden.float16.npz", change)
    with nullcontext() if precision == "float32" else pytest.raises(BadExport, match=r"logits is 5\.00e-01 from"):
        load_export(classifier, device="cpu", precision=precision)


def test_files_of_a_head_are_in_float32(tmp_path: Path) -> None:
    matcher = copy(MATCHER, tmp_path)
    edit(matcher, lambda raw: set_precision(raw["head"]["files"], "float16"))
    check_refusal(matcher, "manifest", "files have precision float32, not float16")
    edit(matcher, lambda raw: set_precision(raw["head"]["files"], "float32"))
    edit(matcher, lambda raw: raw["head"].update(weights_from="model.onnx"))
    check_refusal(matcher, "manifest", "weights_from is for `float16` only, not model.onnx")


@pytest.mark.parametrize("name", [CLASSIFIER, MATCHER, FORECASTER])
def test_wrong_weights_in_float16_are_found(tmp_path: Path, name: str) -> None:
    """By the golden outputs, whose tolerance is small where float16 changes little."""
    folder = copy(name, tmp_path)
    replace(folder, "model.onnx", (folder / "model.onnx").read_bytes())  # ONNX Runtime follows no link to weights
    graph = onnx.load(folder / "model.float16.onnx", load_external_data=False)
    for tensor in graph.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT16 and tensor.raw_data:
            values = 1.1 * onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), tensor.name))
    replace(folder, "model.float16.onnx", graph.SerializeToString())
    load_export(folder, device="cpu")
    with pytest.raises(BadExport, match="from its golden output; allowed"):
        load_export(folder, device="cpu", precision="float16")


def test_each_golden_row_is_computed_once_and_every_bucket_computes_one(
    classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = []

    def create(*arguments: Any, **options: Any) -> InferenceBackend:
        backend = create_backend(*arguments, **options)
        right = backend.run

        def run(inputs: Tensors, limit_s: float) -> Arrays:
            computed.append((inputs["bytes"].shape[1], inputs["lengths"].tolist()))
            return right(inputs, limit_s)

        monkeypatch.setattr(backend, "run", run)
        return backend

    monkeypatch.setattr(artifact.loading, "create_backend", create)
    load_export(classifier, device="cpu")
    assert computed == [
        (256, [1, 2, 17]),
        (512, [17]),
        (1024, [17]),
        (2048, [2048]),
        (4096, [2049, 4095, 4096, 4096]),
    ]


def test_bucket_that_no_golden_row_fits_is_rejected(classifier: Path) -> None:
    def change(arrays: Arrays) -> Arrays:
        return {**arrays, "lengths": np.maximum(arrays["lengths"], 300)}

    rewrite(classifier, "golden.npz", change)
    check_refusal(classifier, "golden", "golden.npz has no row for one of the buckets")


def spoiled(arrays: Arrays) -> Arrays:
    errors = arrays["errors"].copy()
    errors[0, 0, 0] = np.nan
    return {**arrays, "errors": errors}


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: {**arrays, "errors": arrays["errors"][:, :-1]},
        lambda arrays: {**arrays, "errors": arrays["errors"][:-1]},
        lambda arrays: {**arrays, "errors": arrays["errors"][::-1]},
        lambda arrays: {**arrays, "errors": arrays["errors"].astype(np.float64)},
        lambda arrays: {**arrays, "errors": np.float32(1)},
        spoiled,
        lambda arrays: {**arrays, "levels": arrays["levels"][::-1]},
        lambda arrays: {**arrays, "levels": np.zeros_like(arrays["levels"])},
        lambda arrays: {**arrays, "levels": np.float64(0.5)},
        lambda arrays: {**arrays, "levels": arrays["levels"].astype(str)},
        lambda arrays: {"levels": arrays["levels"][:0], "errors": arrays["errors"][:0]},
        lambda arrays: {"errors": arrays["errors"]},
        lambda arrays: {"levels": arrays["levels"]},
        lambda arrays: {"levels": arrays["levels"][1:], "errors": arrays["errors"][1:]},
        lambda arrays: {**arrays, "levels": arrays["levels"].astype(object)},
    ],
)
def test_invalid_calibration_is_rejected(forecaster: Path, change: Callable[[Arrays], Arrays]) -> None:
    rewrite(forecaster, "calibration.npz", change)
    check_refusal(forecaster, "calibration", "calibration.npz")


@pytest.mark.parametrize("content", [b"", b"levels", b"PK\x03\x04", b"\x93NUMPY"])
def test_calibration_that_is_no_npz_archive_is_rejected(forecaster: Path, content: bytes) -> None:
    replace(forecaster, "calibration.npz", content)
    check_refusal(forecaster, "calibration", "calibration.npz is not a valid .npz archive")


def test_changed_calibration_is_rejected(forecaster: Path) -> None:
    content = bytearray((forecaster / "calibration.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (forecaster / "calibration.npz").write_bytes(content)
    check_refusal(forecaster, "hash", "calibration.npz has sha256")


def test_damaged_head_is_rejected(matcher: Path) -> None:
    content = (matcher / "head.onnx").read_bytes()
    for damaged in (b"", b"not a graph", content[: len(content) // 2]):
        replace(matcher, "head.onnx", damaged)
        check_refusal(matcher, "backend", "head.onnx cannot be loaded")
    (matcher / "head.onnx").write_bytes(content)
    check_refusal(matcher, "hash", "head.onnx has sha256")
    (matcher / "head.onnx").unlink()
    check_refusal(matcher, "missing", "head.onnx is missing")


def test_weights_in_an_unlisted_file_are_rejected(matcher: Path) -> None:
    model = onnx.load(matcher / "head.onnx")
    onnx.save_model(model, matcher / "apart.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    replace(matcher, "head.onnx", (matcher / "apart.onnx").read_bytes())
    (matcher / "apart.onnx").unlink()
    check_refusal(matcher, "unlisted", "'w.bin' is not in manifest.json")


@pytest.mark.parametrize("name", [".hidden", "notes\n.md", "model.onnx.data"])
def test_unlisted_file_is_rejected(classifier: Path, name: str) -> None:
    (classifier / name).touch()
    check_refusal(classifier, "unlisted", repr(name), "is not in manifest.json; remove it")


def test_card_may_be_written_edited_and_left_out(classifier: Path) -> None:
    (classifier / CARD).unlink(missing_ok=True)
    read_manifest(classifier)
    assert read_card(classifier) == ""
    for text in ("# A card", "x" * (MAX_CARD_BYTES + 1)):
        (classifier / CARD).write_text(text)
        read_manifest(classifier)
        assert read_card(classifier) == text[:MAX_CARD_BYTES]
    (classifier / CARD).write_bytes(b"\xff")
    assert read_card(classifier) == "\ufffd"
    (classifier / CARD).unlink()
    os.mkfifo(classifier / CARD)
    assert read_card(classifier) == ""


def test_folder_inside_an_export_is_rejected(classifier: Path) -> None:
    (classifier / "more").mkdir()
    check_refusal(classifier, "unlisted", "'more' is not in manifest.json")


def test_head_with_a_different_graph_is_rejected(matcher: Path) -> None:
    replace(matcher, "head.onnx", (matcher / "model.onnx").read_bytes())
    check_refusal(matcher, "golden", "golden.npz", "failed")


@pytest.mark.parametrize("change", [lambda logits: logits + np.float32(0.5), lambda logits: logits[:-1]])
def test_wrong_golden_outputs_of_a_head_are_rejected(matcher: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    name = json.loads((matcher / "manifest.json").read_text())["head"]["outputs"][0]["name"]
    rewrite(matcher, "golden.npz", lambda arrays: {**arrays, name: change(arrays[name])})
    check_refusal(matcher, "golden", f"{name} is ", "from its golden output")


@pytest.mark.parametrize(
    ("inside", "given"),
    [("x", "."), ("x/1", ".."), ("x/2", "."), ("", "x"), ("", "./x/2"), ("", "link")],
)
def test_newest_version_is_found_from_any_working_directory(
    inside: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1", "2"):
        (tmp_path / "x" / version).mkdir(parents=True)
        (tmp_path / "x" / version / "manifest.json").touch()
    (tmp_path / "link").symlink_to("x")
    monkeypatch.chdir(tmp_path / inside)
    assert version_folder(Path(given)) == tmp_path / ("link" if given == "link" else "x") / "2"


def test_export_is_loaded_from_its_own_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = version_folder(EXPORTS / "ili")
    for folder in (EXPORTS / "ili", newest):
        monkeypatch.chdir(folder)
        assert artifact.load(".", device="cpu").manifest.name == "ili"
        assert main(["check", ".", "--device", "cpu"]) == 0
        assert capsys.readouterr().out.split()[:2] == ["ili", newest.name]


@pytest.mark.parametrize("name", ["manifest.json", "golden.npz", "model.onnx"])
def test_pipe_in_place_of_a_file_is_rejected(classifier: Path, name: str) -> None:
    """Opening a pipe for reading would block for ever."""
    (classifier / name).unlink()
    os.mkfifo(classifier / name)
    with pytest.raises(BadExport, match=name):
        load_export(classifier, device="cpu")


def no_hash(path: Path) -> str:
    raise AssertionError(f"{path} is hashed")


def test_sparse_file_is_rejected_before_it_is_hashed(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (classifier / "model.onnx").unlink()
    make_sparse(classifier / "model.onnx", 20 * 2**30)
    monkeypatch.setattr(artifact.exports, "sha256_of", no_hash)
    check_refusal(classifier, "size", f"model.onnx has {20 * 2**30} bytes; allowed {MAX_FILE_BYTES}")


def test_sparse_files_are_limited_together(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = sorted(path for path in classifier.iterdir() if path.name != "manifest.json")[:5]
    for path in paths:
        path.unlink()
        make_sparse(path, MAX_FILE_BYTES)
    monkeypatch.setattr(artifact.exports, "sha256_of", no_hash)
    check_refusal(classifier, "size", "its files have ", f" bytes together; allowed {MAX_EXPORT_BYTES}")


def test_sparse_manifest_is_rejected(classifier: Path) -> None:
    make_sparse(classifier / "manifest.json", 20 * 2**30)
    check_refusal(classifier, "manifest", f"manifest.json cannot be read: it has more than {MAX_JSON_BYTES} bytes")


def test_archive_is_limited_in_its_unpacked_size(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(classifier / "bomb.npz", bytes=np.zeros(10**6, np.uint8))
    replace(classifier, "golden.npz", (classifier / "bomb.npz").read_bytes())
    (classifier / "bomb.npz").unlink()
    monkeypatch.setattr(artifact.loading, "MAX_FILE_BYTES", 10**5)
    check_refusal(classifier, "size", "golden.npz has 1000128 bytes unpacked; allowed 100000")


def test_model_that_never_ends_is_stopped(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_endless(classifier)
    monkeypatch.setattr(artifact.loading, "LOAD_LIMIT_S", 0.2)
    check_refusal(classifier, "timeout", "golden.npz: computing the golden inputs takes more than 0.2 s")


def test_export_is_as_old_as_its_manifest(classifier: Path) -> None:
    os.utime(classifier / MANIFEST, (0, 1_234_567_890))
    assert created_at(classifier) == 1_234_567_890
    (classifier / MANIFEST).unlink()
    assert created_at(classifier) == 0
