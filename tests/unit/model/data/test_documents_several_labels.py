"""Own documents with any number of labels: reading, splits, and the whole way from a file to an answer."""

import csv
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import artifact
from artifact.exports import read_manifest
from artifact.tasks.classification import ClassifierManifest
from model.config.data import DocumentsConfig
from model.data.documents import DocumentSet, columns_of, load_documents
from model.data.own import DataFiles, read_own
from model.errors import UserError
from tests.support.commands import call

pytestmark = pytest.mark.usefixtures("without_files_for_cuda")

CONFIG = DocumentsConfig(name="own")
WORDS = {"fruit": "apple pear plum", "sea": "wave shore tide", "metal": "iron copper tin", "rare": "zebra gnu"}
Row = tuple[str, Any]


def write_lines(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(json.dumps({"text": text, "label": labels}) + "\n" for text, labels in rows))
    return path


def write_table(path: Path, rows: Sequence[Row]) -> Path:
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([("text", "label"), *rows])
    return path


def loaded(path: Path, config: DocumentsConfig = CONFIG, **files: Any) -> DocumentSet:
    return load_documents(config, read_own(DataFiles(data=path, **files), columns_of(config)))


def labels_of(data: DocumentSet) -> dict[str, list[str]]:
    """Text -> labels, of all splits."""
    return {
        text.decode(): [label for label, is_there in zip(data.labels, target, strict=True) if is_there]
        for part in (data.train, data.validation, data.test)
        for text, target in zip(part.texts, part.labels, strict=True)
    }


ROWS: list[tuple[str, list[str]]] = [(f"text {i}", [["a", "b"], ["b"], [], ["a", "c", "b"]][i % 4]) for i in range(40)]
EXPECTED = {text: sorted(labels) for text, labels in ROWS}


def test_lists_are_read_from_lines_columnar_files_and_cells(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "a.jsonl", ROWS)
    parquet.write_table(
        pyarrow.table({"text": [text for text, _ in ROWS], "label": [labels for _, labels in ROWS]}),
        tmp_path / "a.parquet",
    )
    as_json = write_table(tmp_path / "a.csv", [(text, json.dumps(labels)) for text, labels in ROWS])
    as_python = write_table(tmp_path / "b.csv", [(text, str(labels)) for text, labels in ROWS])
    for path in (lines, tmp_path / "a.parquet", as_json, as_python):
        data = loaded(path)
        assert data.has_several_labels
        assert (data.labels, labels_of(data)) == (["a", "b", "c"], EXPECTED)


@pytest.mark.parametrize("separator", [";", "|", ", "])
def test_separator_splits_the_labels_of_a_cell(tmp_path: Path, separator: str) -> None:
    path = write_table(tmp_path / "a.csv", [(text, f"{separator} ".join(labels)) for text, labels in ROWS])
    data = loaded(path, DocumentsConfig(name="own", label_separator=separator))
    assert (data.labels, labels_of(data)) == (["a", "b", "c"], EXPECTED)
    assert data.notes[0] == "any number of labels a document: 1.50 in the mean, 10 documents have none"


def test_a_row_beside_lists_may_have_one_label_or_lack_them(tmp_path: Path) -> None:
    rows = [*ROWS, ("one", "a"), ("number", 7), ("numbers", [7, 7, None, "a "]), ("missing", None), ("unknown", "NaN")]
    data = loaded(write_lines(tmp_path / "a.jsonl", rows))
    found = labels_of(data)
    assert [found[name] for name in ("one", "number", "numbers")] == [["a"], ["7"], ["7", "a"]]
    assert found.keys().isdisjoint({"missing", "unknown"})
    assert any("2 rows without a label are left out" in note for note in data.notes)


def test_labels_without_a_list_or_separator_stay_classes(tmp_path: Path) -> None:
    data = loaded(write_table(tmp_path / "a.csv", [(f"text {i}", "ab"[i % 2] + ";c") for i in range(20)]))
    assert not data.has_several_labels
    assert data.labels == ["a;c", "b;c"]


@pytest.mark.parametrize("seed", range(5))
def test_every_label_is_in_train_and_splits_have_their_share(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    shares = {"often": 0.5, "some": 0.2, "few": 0.03}
    rows = [(f"text {i}", [label for label, share in shares.items() if generator.random() < share]) for i in range(600)]
    rows += [("once", ["single", "often"]), ("twice", ["pair"]), ("again", ["pair", "some"])]
    data = loaded(write_lines(tmp_path / "a.jsonl", rows))
    parts = {
        name: np.array(part.labels) for name, part in vars(data).items() if name in ("train", "validation", "test")
    }
    assert parts["train"].any(axis=0).all()
    total = sum(part.sum(axis=0) for part in parts.values())
    for name in ("validation", "test"):
        assert len(parts[name]) / len(rows) == pytest.approx(0.1, abs=0.02)
        share = dict(zip(data.labels, parts[name].sum(axis=0) / total, strict=True))
        assert share["single"] == share["pair"] == 0
        assert 0.05 <= share["often"] <= 0.15
        assert share["few"] > 0


def test_labels_that_training_lacks_are_left_out_and_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ROWS)
    test = write_lines(tmp_path / "test.jsonl", [("new", ["a", "other"]), ("next", ["else"])])
    data = loaded(path, DocumentsConfig(name="own", test_file=True), test=test)
    assert np.array(data.test.labels).tolist() == [[1, 0, 0], [0, 0, 0]]
    assert "2 labels that no training document has are left out: else, other" in data.notes


def test_words_for_missing_values_among_labels_are_left_out_and_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [*ROWS, ("one", ["a", "NA", None]), ("two", ["none"])])
    found = loaded(path)
    assert (labels_of(found)["one"], labels_of(found)["two"]) == (["a"], [])
    assert "2 labels are left out; read as missing: 'NA' 1, 'none' 1" in found.notes
    rows = [*((text, ";".join(labels)) for text, labels in ROWS), ("one", "a; NA;"), ("two", "none"), ("three", " ")]
    found = loaded(write_table(tmp_path / "a.csv", rows), DocumentsConfig(name="own", label_separator=";"))
    assert (labels_of(found)["one"], labels_of(found)["two"], labels_of(found)["three"]) == (["a"], [], [])
    assert "2 labels are left out; read as missing: 'NA' 1, 'none' 1" in found.notes


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(f"text {i}", ["a"]) for i in range(9)], "only the label 'a' in column 'label'; at least two are needed"),
        ([(f"text {i}", [str(i)]) for i in range(9)], "a.jsonl:1: no label has 3 different texts; at least one needs"),
        ([*ROWS, ("x", ["a\u0007"])], "a.jsonl:41: the label 'a\\x07' contains a control character"),
        ([*ROWS, ("x", [{"a": 1}])], "a.jsonl:41: label must be a string, an integer or a boolean, not an object"),
        ([*ROWS, ("x", [["a"]])], "a.jsonl:41: label must be a string, an integer or a boolean, not a list"),
    ],
)
def test_labels_that_cannot_be_used_are_an_error(tmp_path: Path, rows: Sequence[Row], message: str) -> None:
    with pytest.raises(UserError) as caught:
        loaded(write_lines(tmp_path / "a.jsonl", rows))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        [f"{i * 1.25:.2f}" for i in range(100)],
        [str(1_000 + 137 * i) for i in range(60)],
        [str(18 + i % 50) for i in range(2_000)],
    ],
    ids=["prices", "whole prices", "ages"],
)
def test_a_numeric_target_is_refused_in_one_sentence(tmp_path: Path, values: list[str]) -> None:
    path = write_table(tmp_path / "a.csv", [(f"text {i}", value) for i, value in enumerate(values)])
    with pytest.raises(UserError, match=r"column 'label' holds \d+ different numbers .* and regression is not offered"):
        loaded(path)


@pytest.mark.parametrize(
    "values",
    [
        [str(i % 10) for i in range(100)],
        [str(i % 5 / 2) for i in range(100)],
        [str(1 + i % 115) for i in range(1_150)],
        [str(1_000 + 37 * (i % 40)) for i in range(800)],
    ],
    ids=["ratings", "half stars", "numbered classes", "codes"],
)
def test_numbers_may_be_classes(tmp_path: Path, values: list[str]) -> None:
    data = loaded(write_table(tmp_path / "a.csv", [(f"text {i}", value) for i, value in enumerate(values)]))
    assert len(data.labels) == len(set(values))


def documents(count: int) -> list[tuple[str, list[str]]]:
    generator, found = random.Random(0), []
    for number in range(count):
        labels = [name for name in ("fruit", "sea", "metal") if generator.random() < 0.3]
        labels += ["rare"] if number % 40 == 0 else []
        words = [generator.choice(WORDS[label].split()) for label in labels for _ in range(3)]
        words += [generator.choice(["the", "of", "in", "on", "by"]) for _ in range(6)]
        generator.shuffle(words)
        found.append((f"{' '.join(words)} {number}", labels))
    return found


def test_from_a_file_to_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = documents(240)
    path = write_table(tmp_path / "a.csv", [(text, "; ".join(labels)) for text, labels in rows])
    small = ("model.ngram_view.num_ngrams=256", "model.ngram_view.max_length=256", "model.ngram_vectors.epochs=2")
    options = ("--label-separator", ";", "--runs", tmp_path / "runs", "--device", "cpu")
    settings = [part for setting in small for part in ("--set", setting)]
    assert call("train", "--task", "text-classification", "--data", path, *options, *settings) == 0
    printed = capsys.readouterr().out
    assert "micro F1 chooses the model" in printed
    assert re.search(r"one against the rest .*: [+-]\d+\.\d ± \d+\.\d points", printed)
    assert call("evaluate", tmp_path / "runs" / "a") == 0
    evaluated = capsys.readouterr().out
    assert call("export", tmp_path / "runs" / "a", "--out", tmp_path / "exports") == 0
    manifest = read_manifest(tmp_path / "exports" / "a" / "1")
    assert isinstance(manifest, ClassifierManifest)
    assert manifest.thresholds is not None
    assert len(manifest.thresholds) == len(manifest.labels) == 4
    results = {(result.metric, result.condition): result for result in manifest.results}
    for metric in ("micro_f1", "macro_f1", "exact_match"):
        assert f"{results[metric, 'windows'].value:.4f}" in evaluated
        assert "one against the rest" in results[metric, "windows"].compared_with
    assert results["micro_f1", "windows"].value > 0.8
    model = artifact.load(tmp_path / "exports" / "a")
    found = model.classify(["a pear and a plum, apple", "copper and iron and tin on the shore by the tide", "of the"])
    assert [set(result["labels"]) for result in found] == [{"fruit"}, {"metal", "sea"}, set()]
    for result in found:
        chosen = [one["label"] for one in result["scores"] if one["score"] >= one["threshold"]]
        assert chosen == result["labels"]
    assert Counter(one["label"] for one in found[0]["scores"]) == Counter(WORDS.keys())
    assert call("evaluate", tmp_path / "exports" / "a", "--data", path, "--out", tmp_path / "e.json") == 0
    again = {(one["metric"], one["condition"]): one["value"] for one in json.loads((tmp_path / "e.json").read_text())}
    assert again["micro_f1", "windows"] == pytest.approx(results["micro_f1", "windows"].value, abs=1e-6)
