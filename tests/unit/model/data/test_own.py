"""Own documents and pairs: reading, splits, and the whole way from a file to an answer."""

import gzip
import json
import lzma
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from artifact.encodings import RAW, codec_of
from artifact.exports import read_manifest
from artifact.tasks.classification import ClassifierManifest
from artifact.tasks.matching import MatcherManifest
from model.config.data import DocumentsConfig, PairsConfig
from model.config.recipes import choose_recipe, find_recipe, load_recipe
from model.config.run import ClassificationRun
from model.data import own
from model.data import pairs as pairs_module
from model.data.documents import DocumentSet, columns_of, load_documents
from model.data.own import DataFiles, TextColumns, read_own
from model.data.own_recipe import TextLayout, read_texts
from model.data.pairs import SPLITS, Pairs, load_test_pairs
from model.errors import UserError
from model.runs.load import find_run, load_trained
from model.tasks import task_of
from model.tasks.graphs import backend_function, module_functions
from model.tasks.tfidf import value_of
from model.training import checkpoint
from service.__main__ import main as service
from tests.support.commands import call

pytestmark = pytest.mark.usefixtures("without_files_for_cuda")

CONFIG = DocumentsConfig(name="own")
SMALL = ["model.ngram_view.num_ngrams=1024"]
SMALL_PAIRS = [
    *("training.epochs=1", "model.stem.num_buckets=1024", "model.encoder.dim=8", "model.encoder.num_heads=1"),
    *("model.encoder.ffn_dim=8", "model.head_dim=8"),
]
ONE_LENGTH = {
    "text-classification": ("model.ngram_view.max_length=256",),
    "text-matching": ("model.encoder.seq_len=16", "model.lexical_view.max_length=256"),
}
"""Sets one row length, 256 bytes. The recipe would choose several, whose graph takes longer to export."""

Write = Callable[[str, bytes | str], Path]
"""Writes content to a file below tmp_path, given its name."""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def read(path: Path, *columns: str) -> list[tuple[tuple[bytes, ...], str]]:
    """Texts and labels, without their places."""
    return [(row.texts, row.label) for row in own.read(path, TextColumns(columns or ("text",), "label")).rows]


def json_lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(labels: str) -> str:
    """Return a CSV file with a different text for every letter, which is its label; a dot is a row without a label."""
    return "text,label\n" + "".join(f"text {i},{label.strip('.')}\n" for i, label in enumerate(labels))


def train(
    path: Path, runs: Path, *arguments: object, task: str = "text-classification", one_length: bool = True
) -> int:
    small = SMALL if task == "text-classification" else SMALL_PAIRS
    small = [*small, *ONE_LENGTH[task]] if one_length else small
    overrides = [part for setting in small for part in ("--set", setting)]
    return call("train", "--task", task, "--data", path, "--runs", runs, "--device", "cpu", *overrides, *arguments)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "text,label\none,x\ntwo,y\n", [("one", "x"), ("two", "y")]),
        ("a.csv", "label,id,text\nx,1,one\ny,2,two", [("one", "x"), ("two", "y")]),
        ("a.csv", b'\xef\xbb\xbf"text",label\n"one\n1",x\n', [("one\n1", "x")]),
        ("A.TSV", "text\tlabel\none, 1\tx\n", [("one, 1", "x")]),
        ("A.TSV.GZ", gzip.compress(b"text\tlabel\none, 1\tx\n", mtime=0), [("one, 1", "x")]),
        ("a.csv.xz", lzma.compress(b"\xef\xbb\xbftext,label\none,x\n"), [("one", "x")]),
        ("a.ndjson", '{"text": "one", "label": true}\n{"label": 7, "text": "é"}', [("one", "true"), ("é", "7")]),
    ],
)  # fmt: skip
def test_file_is_read(write: Write, name: str, content: bytes | str, expected: list[tuple[str, str]]) -> None:
    assert read(write(name, content)) == [((text.encode(),), label) for text, label in expected]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\none,\ntwo, \nthree,x\n"),
        ("a.csv", "text,label\none,NA\ntwo,nan\nthree,x\n"),
        ("a.tsv", "text\tlabel\none\tNULL\ntwo\t n/a \nthree\tx\n"),
        ("a.jsonl", '{"text": "one"}\n{"text": "two", "label": null}\n{"text": "three", "label": "x"}\n'),
        ("a.jsonl", '{"text": "one", "label": NaN}\n{"text": "two", "label": "None"}\n{"text": "three", "label": "x"}'),
    ],
)
def test_missing_label_is_empty(write: Write, name: str, content: str) -> None:
    assert [label for _, label in read(write(name, content))] == ["", "", "x"]


def test_parquet_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"label": ["x", None], "id": [1, 2], "text": ["one", "two"]}), path)
    assert read(path) == [((b"one",), "x"), ((b"two",), "")]
    with pytest.raises(UserError, match=rf"^{path}: no column 'body'; columns: label, id, text; --text-column names"):
        read(path, "body")
    path.write_bytes(b"PAR1")
    with pytest.raises(UserError, match=rf"^{path}: "):
        read(path)


def test_folder_of_splits_is_no_folder_of_labels(write: Write, tmp_path: Path) -> None:
    for name in ("train", "test"):
        write(f"texts/{name}/good/1.txt", "one")
    with pytest.raises(UserError, match="its subfolders test, train are splits, not labels; name each with --data, "):
        read(tmp_path / "texts")


def test_folder_holds_a_folder_of_files_for_each_class(write: Write, tmp_path: Path) -> None:
    files = {
        "good/1.txt": b"caf\xe9",
        "good/deep/2": bytes(range(256)),
        "bad ones/3.html": "Größe".encode("utf-16"),
        "bad ones/.DS_Store": b"",
        ".git/4": b"hidden",
        "README": b"in no class",
    }
    for name, content in files.items():
        write(f"texts/{name}", content)
    (tmp_path / "texts" / "empty").mkdir()
    found = {(texts, label) for texts, label in read(tmp_path / "texts")}
    assert found == {
        ((files["good/1.txt"],), "good"),
        ((files["good/deep/2"],), "good"),
        (("Größe".encode(),), "bad ones"),
    }
    notes = own.read(tmp_path / "texts", TextColumns(("text",), "label")).notes
    told = "2 texts are not UTF-8, the first is {}/texts/good/1.txt; --encoding names their encoding, such as cp1252"
    assert notes == (told.format(tmp_path),)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-be"])
def test_option_names_the_encoding(write: Write, encoding: str) -> None:
    path = write("a.csv", "text,label\ndéjà vu,größer\n".encode(encoding))
    found = own.read(path, TextColumns(("text",), "label", encoding=codec_of(encoding))).rows
    assert [(row.texts, row.label) for row in found] == [(("déjà vu".encode(),), "größer")]
    write("folder/x/1.txt", "déjà vu".encode(encoding))
    (row,) = own.read(path.parent / "folder", TextColumns(("text",), "label", encoding=codec_of(encoding))).rows
    assert row.texts == ("déjà vu".encode(),)


def test_run_remembers_its_encoding(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"größe {i},{'äö'[i % 2]}\n" for i in range(40))
    path, runs = write("a.csv", ("text,label\n" + rows).encode("cp1252")), tmp_path / "runs"
    assert train(path, runs) == 2
    told = f"error: {path}:2: byte 3 of line 2 is not UTF-8; --encoding names the encoding, such as cp1252\n"
    assert capsys.readouterr().err == told
    assert train(path, runs, "--encoding", "windows-1252") == 0
    assert "classes: ä 20, ö 20" in capsys.readouterr().out
    assert call("evaluate", runs / "a", "--device", "cpu") == 0
    assert call("evaluate", runs / "a", "--encoding", "utf-8", "--device", "cpu") == 2
    assert capsys.readouterr().err == "error: --encoding needs --data, your own file or folder\n"
    other = write("b.csv", "text,label\n" + rows)
    assert call("evaluate", runs / "a", "--data", other, "--device", "cpu") == 2
    assert "b.csv:2: the label 'Ã¤' is not in training" in capsys.readouterr().err
    assert call("evaluate", runs / "a", "--data", other, "--encoding", "utf-8", "--device", "cpu") == 0
    assert f"{other}: 4 rows of the test split" in capsys.readouterr().out  # the content is that of training
    with pytest.raises(SystemExit):
        train(path, runs, "--encoding", "klingon")
    assert (
        "argument --encoding: unknown: 'klingon'; name one such as utf-16, latin-1 or cp1252" in capsys.readouterr().err
    )


def test_model_of_bytes_reads_them_as_they_are(write: Write, tmp_path: Path) -> None:
    content = "\ufeffGröße".encode("utf-16-le")
    for i in range(40):
        write(f"texts/{'xy'[i % 2]}/{i}", content + bytes([i, 0]))
    found = own.read(tmp_path / "texts", TextColumns(("text",), "label", encoding=RAW))
    assert found.notes == ()
    assert {row.texts[0][: len(content)] for row in found.rows} == {content}
    recipe = choose_recipe("lra-text", None, ["data.name=own", "training.batch_size=4"], None)
    assert isinstance(recipe, ClassificationRun)
    assert recipe.model.kind == "paper"
    task = task_of(recipe)
    data = task.load(task.read(DataFiles(data=tmp_path / "texts")))
    assert all(text.startswith(content) for text in data.train.texts)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_named_columns_are_read(write: Write, suffix: str) -> None:
    path = write("a.csv", "b,a,label\ntwo,one,1\n")
    if suffix == "jsonl":
        path = write("a.jsonl", json_lines([{"b": "two", "a": "one", "label": 1}]))
    assert read(path, "a", "b") == [((b"one", b"two"), "1")]


NO_TEXT = "no column 'text'; columns: {}; --text-column names another one"
TABLE_ERRORS: list[tuple[str, bytes | str, str]] = [
    ("a.csv", "body,label\none,x\n", f":1: {NO_TEXT.format('body, label')}\n"),
    ("a.csv", "text,class\none,x\n", ":1: no column 'label'; columns: text, class; --label-column names another one\n"),
    (
        "a.tsv",
        "text,label\none,x\n",
        f":1: {NO_TEXT.format('text,label')}; the columns seem to be separated by commas: end its name in .csv\n",
    ),
    (
        "a.csv",
        "text\tlabel\none\tx\n",
        f":1: {NO_TEXT.format('text	label')}; the columns seem to be separated by tabs: end its name in .tsv\n",
    ),
    (
        "a.csv",
        "I loved this film from its first minute to the last,pos,2024,1\nIt was dull,neg,2023,2\n",
        f":1: {NO_TEXT.format('I loved this film from its fir..., pos, 2024 and 1 more')}; if these are values",
    ),
    ("a.csv", "text,label\n", " has no rows\n"),
    ("a.csv", "text,label\n,x\nNA,y\n", " has no texts, the first is missing at {}:2\n"),
    ("a.csv", "text,label\none,x\ntwo\n", ":3: expected 2 columns, not 1\n"),
    (
        "a.csv",
        b"text,label\none,x\ncaf\x82\xe9,y\n",
        ":3: byte 4 of line 3 is not UTF-8; --encoding names the encoding, such as cp1252\n",
    ),
]
LINES_ERRORS: list[tuple[str, bytes | str, str]] = [
    ("a.jsonl", '{"text": "one", "label": 1}\n\n{"text": "two"', ":3: not JSON: Expecting ',' delimiter"),
    ("a.jsonl", '{"body": "one", "label": 1}\n', f":1: {NO_TEXT.format('body, label')}\n"),
    (
        "a.jsonl",
        '{"text": "one", "label": 1.5}\n',
        ":1: label must be a string, an integer or a boolean, not a fraction",
    ),
    ("a.jsonl", "\n\n", " has no rows\n"),
]
OTHER_ERRORS: list[tuple[str, bytes | str, str]] = [
    (
        "a.txt",
        "text",
        ": expected a file that ends in .csv, .tsv, .jsonl, .ndjson (also with .gz or .xz) or .parquet, or a folder "
        "with one subfolder per class\n",
    ),
    ("a.csv", table("xxxx"), ": only the label 'x' in column 'label'; at least two are needed"),
    ("a.csv", table("...."), ": no label in column 'label'; at least two are needed"),
    (
        "a.csv",
        "text,label\none,NA\ntwo,none\nthree,NA\n",
        ": no label in column 'label'; at least two are needed; 3 rows without a label are left out, the first at "
        "{}:2; read as missing: 'NA' 2, 'none' 1\n",
    ),
    (
        "a.csv",
        "text,label,split\none,x,train\none,x,test\n",
        " has no labelled row for training; 1 are left out because they are also in validation or test\n",
    ),
    ("a.csv", table("xyx.xyx"), ":3: label 'y' has 2 different texts; at least 3 are needed"),
    ("a.csv", table("xxxyy") + "text 4,y\n", ":5: label 'y' has 2 different texts; at least 3 are needed"),
    ("a.csv", table("xxxx") + "text 0,y\n" * 3, ":6: label 'y' has 0 different texts; at least 3 are needed"),
]


@pytest.mark.parametrize(("name", "content", "message"), [*TABLE_ERRORS, *LINES_ERRORS, *OTHER_ERRORS])
def test_error_about_unusable_data_is_one_line_with_the_location(
    write: Write, name: str, content: bytes | str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(name, content)
    assert train(path, tmp_path / "runs") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}{message.replace('{}', str(path))}")
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_error_names_a_missing_file(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / name, tmp_path / "runs") == 2
    assert capsys.readouterr().err == f"error: {tmp_path / name} does not exist\n"


def test_error_names_a_label_that_is_not_utf_8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = os.fsencode(tmp_path / "texts") + b"/caf\xe9"
    os.makedirs(folder)
    Path(os.fsdecode(folder), "1.txt").write_text("text")
    assert train(tmp_path / "texts", tmp_path / "runs") == 2
    told = f"error: {tmp_path}/texts: the name of its subfolder b'caf\\xe9' is not UTF-8; rename it\n"
    assert capsys.readouterr().err == told


def test_error_names_an_empty_folder_or_file(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts" / "x").mkdir(parents=True)
    assert train(tmp_path / "texts", tmp_path / "runs") == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/texts has no rows\n"
    write("texts/x/1.txt", b"")
    assert train(tmp_path / "texts", tmp_path / "runs") == 2
    told = f"error: {tmp_path}/texts has no texts, the first is missing at {tmp_path}/texts/x/1.txt\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        ("text-classification", ["text", "more"], "text-classification needs 1, not 2: text more"),
        ("text-matching", ["text"], "text-matching needs 2, or 3 with texts that do not match, not 1: text"),
        (
            "text-matching",
            ["a", "b", "c", "d"],
            "text-matching needs 2, or 3 with texts that do not match, not 4: a b c d",
        ),
    ],
)
def test_wrong_number_of_text_columns_is_an_error(
    write: Write, task: str, columns: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("a.csv", table("xyxyxy"))
    assert train(path, path.parent / "runs", "--text-column", *columns, task=task) == 2
    assert capsys.readouterr().err == f"error: --text-column: {message}\n"


def loaded(path: Path, config: DocumentsConfig = CONFIG, **files: Any) -> DocumentSet:
    """Return user data in splits."""
    return load_documents(config, read_own(DataFiles(data=path, **files), columns_of(config)))


def parts_of(path: Path, config: DocumentsConfig = CONFIG) -> tuple[DocumentSet, dict[str, list[tuple[bytes, int]]]]:
    """Return the data and the rows of every split."""
    data = loaded(path, config)
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    return data, {name: list(zip(part.texts, part.labels, strict=True)) for name, part in splits.items()}


@pytest.mark.parametrize("counts", [(3, 3), (3, 400), (10, 20, 30), (57, 4, 8)])
def test_every_split_has_every_label_in_its_share(write: Write, counts: tuple[int, ...]) -> None:
    labels = [label for label, count in zip("cab", counts, strict=False) for _ in range(count)]
    random.Random(0).shuffle(labels)
    data, parts = parts_of(write("a.csv", table("".join(labels))))
    assert data.labels == sorted(set(labels))
    assert len(data.notes) == 1  # the classes
    for index, label in enumerate(data.labels):
        count = labels.count(label)
        share = max(1, round(0.1 * count))
        found = {name: sum(number == index for _, number in rows) for name, rows in parts.items()}
        assert found == {"train": count - 2 * share, "validation": share, "test": share}
    rows = [(text.decode(), data.labels[label]) for rows in parts.values() for text, label in rows]
    assert sorted(rows) == sorted((f"text {i}", label) for i, label in enumerate(labels))


def test_fractions_of_the_splits_are_settings_and_keep_training_rows(write: Write) -> None:
    path = write("a.csv", table("x" * 100 + "y" * 4))
    _, parts = parts_of(path, DocumentsConfig(name="own", validation_fraction=0.5, test_fraction=0.4))
    assert {name: [label for _, label in rows].count(0) for name, rows in parts.items()} == {
        "train": 10,
        "validation": 50,
        "test": 40,
    }
    assert [label for _, label in parts["train"]].count(1) == 2  # 2 and 2 of 4 would leave none for training


def test_splits_depend_only_on_the_texts_and_their_seed(write: Write) -> None:
    rows = table("xy" * 40).splitlines()
    first = parts_of(write("a.csv", "\n".join(rows) + "\n"))[1]
    other_order = parts_of(write("b.csv", "\n".join([rows[0], *reversed(rows[1:])]) + "\n"))[1]
    other_seed = parts_of(tmp := write("a.csv", "\n".join(rows) + "\n"), DocumentsConfig(name="own", split_seed=1))[1]
    assert parts_of(tmp)[1] == first
    assert {name: sorted(found) for name, found in other_order.items()} == {n: sorted(f) for n, f in first.items()}
    assert set(other_seed["test"]) != set(first["test"])


def splits_of(
    path: Path, validation: Path | None = None, test: Path | None = None, **settings: Any
) -> dict[str, list[str]]:
    """Texts of every split."""
    files = DataFiles(Path("data"), path, validation, test)
    config = DocumentsConfig(name="own", **settings)
    data = load_documents(config, read_own(files, columns_of(config)))
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    return {name: [text.decode() for text in part.texts] for name, part in parts.items()}


def test_files_of_their_own_are_the_splits(write: Write) -> None:
    """Training texts that are in another file are left out of training."""
    path = write("train.csv", table("xy" * 20) + "same,x\nother,y\n")
    validation = write("val.csv", "text,label\nv1,x\nother,y\nsame,x\n")
    test = write("test.csv", "text,label\nt1,y\nsame,x\nt2,\n")
    parts = splits_of(path, validation, test)
    assert parts == {"train": [f"text {i}" for i in range(40)], "validation": ["v1", "other"], "test": ["t1", "same"]}
    notes = loaded(path, validation=validation, test=test).notes
    assert notes == (
        "classes: x 22, y 22",
        f"1 rows without a label are left out, the first at {test}:4",
        "3 rows are left out of training or validation: their text is also in a later split",
    )
    alone = splits_of(path, None, test)
    assert alone["test"] == ["t1", "same"]
    assert len(alone["validation"]) == 4
    assert sorted(alone["train"] + alone["validation"]) == sorted([*(f"text {i}" for i in range(40)), "other"])


def test_column_assigns_rows_to_splits(write: Write) -> None:
    values = {"train": "train", "Training": "train", "val": "validation", "dev": "validation", "TEST": "test"}
    rows = "".join(f"{value} {label},{label},{value}\n" for value in values for label in "xy")
    path = write("a.csv", "text,label,fold\n" + rows)
    parts = splits_of(path, split_column="fold")
    assert {text.split()[0]: name for name, found in parts.items() for text in found} == values
    with pytest.raises(UserError, match=r"a.csv:2: fold must be one of train, training, validation, .*, not 'tran'; "):
        splits_of(write("a.csv", path.read_text().replace(",train", ",tran")), split_column="fold")


@pytest.mark.parametrize("given", ["validation", "test"])
def test_split_without_rows_is_taken_from_training(write: Write, given: str) -> None:
    rows = "".join(f"text {i},{'xy'[i % 2]},train\n" for i in range(40))
    path = write("a.csv", f"text,label,split\n{rows}more,x,{given}\n")
    (missing,) = {"validation", "test"} - {given}
    parts = splits_of(path, split_column="split")
    assert (parts[given], len(parts[missing]), len(parts["train"])) == (["more"], 4, 36)


def grouped(groups: int, rows: int, label_of: Callable[[int, int], str]) -> str:
    """A table of groups of rows with the columns text, label and author."""
    lines = [f"text {i} of {group},{label_of(group, i)},{group}\n" for i in range(rows) for group in range(groups)]
    return "text,label,author\n" + "".join(lines)


def groups_of(texts: list[str]) -> list[str]:
    return [text.partition(" of ")[2] for text in texts]


def test_rows_of_a_group_are_in_the_same_split(write: Write) -> None:
    path = write("a.csv", grouped(40, 5, lambda group, i: "xy"[(group + (i == 3)) % 2]))
    parts = splits_of(path, group_column="author")
    found = {name: Counter(groups_of(texts)) for name, texts in parts.items()}
    assert {name: len(groups) for name, groups in found.items()} == {"train": 32, "validation": 4, "test": 4}
    assert {count for groups in found.values() for count in groups.values()} == {5}
    for groups in found.values():  # the labels of the groups are those of most of their rows
        assert sum(int(group) % 2 for group in groups) == len(groups) / 2
    train = loaded(path, DocumentsConfig(name="own", group_column="author")).train
    assert list(train.groups) == groups_of([text.decode() for text in train.texts])
    assert splits_of(path) != parts


def test_rows_of_given_splits_need_no_groups(write: Write) -> None:
    path = write("a.csv", grouped(40, 5, lambda group, _: "xy"[group % 2]))
    test = write("test.csv", "text,label\none,x\ntwo,y\n")
    parts = splits_of(path, None, test, group_column="author")
    assert parts["test"] == ["one", "two"]
    assert len(set(groups_of(parts["validation"]))) == 4


def test_label_without_enough_groups_is_an_error(write: Write) -> None:
    path = write("a.csv", grouped(4, 5, lambda group, i: "xy"[i % 5 == group % 3]))
    with pytest.raises(UserError, match=r"a.csv:\d+: label 'y' has 0 groups in which it is the most frequent; at leas"):
        splits_of(path, group_column="author")


def test_label_that_is_rare_in_every_group_is_accepted_with_given_splits(write: Write) -> None:
    path = write("a.csv", grouped(4, 5, lambda group, i: "xy"[i % 5 == group % 3]))
    held_out = [write(f"{name}.csv", f"text,label\n{name},x\n") for name in ("validation", "test")]
    parts = splits_of(path, *held_out, group_column="author")
    assert {name: len(texts) for name, texts in parts.items()} == {"train": 20, "validation": 1, "test": 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "text,label\none,x\n",
            ":1: no column 'author'; columns: text, label; --group-column names another one",
        ),
        (
            "a.jsonl",
            '{"text": "one", "label": 1}\n',
            ": no column 'author'; columns: text, label; --group-column names another one",
        ),
        (
            "a.jsonl",
            '{"text": "one", "label": 1, "author": ""}\n',
            ":1: author must be a non-empty string or an integer",
        ),
        ("a.csv", "text,label,author\none,x,a\ntwo,y,\n", ":3: author must be a non-empty string or an integer"),
        ("folder/x/1.txt", "text", "folder: a folder has no column 'author'; give a CSV or JSON Lines file"),
    ],
)
def test_missing_group_is_an_error(
    write: Write, name: str, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(name, content)
    data = path.parents[1] if "folder" in name else path
    assert train(data, data.parent / "runs", "--group-column", "author") == 2
    assert message in capsys.readouterr().err


def test_pairs_have_no_groups(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = write("a.jsonl", json_lines(pair_rows(40)))
    assert train(pairs, tmp_path, "--group-column", "author", task="text-matching") == 2
    assert (
        "--group-column needs --data and --task text-classification or series-classification" in capsys.readouterr().err
    )


def test_label_that_training_lacks_is_named(write: Write) -> None:
    test = write("test.csv", "text,label\none,x\ntwo,z\n")
    with pytest.raises(UserError, match=rf"^{test}:3: the label 'z' is not in training; known: x, y$"):
        splits_of(write("a.csv", table("xy" * 20)), None, test)


def test_held_out_file_is_measured_whole(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not a tenth of its rows, as of the file that was trained on."""
    generator = random.Random(3)
    rows = [f"{sentence(generator, topic)},{topic}\n" for topic in TOPICS]
    path = write("topics.csv", "text,label\n" + "".join(rows))
    held = write("held.csv", "text,label\n" + f"{rows[0]}unlabelled,\n" + "".join(f"tea {i},tea\n" for i in range(36)))
    assert train(path, tmp_path / "runs") == 0
    run, exports = tmp_path / "runs" / "topics-seed0", tmp_path / "exports"
    assert call("export", run, "--out", exports, "--device", "cpu") == 0
    results = {(r.metric, r.condition): r for r in read_manifest(exports / "topics" / "1").results}
    assert value_of(results["accuracy", "windows"].compared_with) is not None
    found = {}
    for folder in (run, exports / "topics"):
        capsys.readouterr()
        target = tmp_path / "out.json"
        assert call("evaluate", folder, "--data", held, "--out", target, "--device", "cpu") == 0
        out = capsys.readouterr().out
        assert out.startswith(f"all 37 labelled rows of {held}, which is not the training data\n")
        assert ("no TF-IDF baseline: an export holds no training data" in out) == (folder != run)
        found[folder] = json.loads((target if folder != run else run / "evaluation-held.json").read_text())
        assert {(result["split"], result["examples"]) for result in found[folder]} == {("held-out", 37)}
        assert ("1 of the measured texts are also in training or validation\n" in out) == (folder == run)
    for results in found.values():
        for result in results:
            del result["compared_with"], result["baselines"]  # an export has nothing to fit a baseline to
    assert found[run] == found[exports / "topics"]


def test_run_of_several_files_measures_its_test_file(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, test = write("reviews/train.csv", table("xy" * 20)), write("test.csv", "text,label\none,x\ntwo,y\nthree,y\n")
    assert train(path, tmp_path / "runs", "--test", test) == 0
    run, exports = tmp_path / "runs" / "reviews", tmp_path / "exports"
    capsys.readouterr()
    assert call("evaluate", run, "--device", "cpu") == 0
    assert capsys.readouterr().out.startswith(f"{test}: 3 rows of the test split\n")
    assert call("export", run, "--out", exports, "--device", "cpu") == 0
    results = read_manifest(exports / "reviews" / "1").results
    assert {result.examples for result in results} == {3}
    capsys.readouterr()
    assert call("evaluate", exports / "reviews", "--data", path, "--device", "cpu") == 2
    told = f"error: reviews was trained on {path}; give its test file, or evaluate the run\n"
    assert capsys.readouterr().err == told
    test.unlink()
    assert call("export", run, "--out", exports, "--device", "cpu") == 2
    assert f"trained on {test}, which does not exist; give its new place with --test" in capsys.readouterr().err


def test_split_column_is_found_by_its_name(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"text {i},{'xy'[i % 2]},{'dev' if i < 6 else 'train'}\n" for i in range(60))
    path = write("a.csv", f"text,label,split\n{rows}one,x,test\n")
    assert train(path, tmp_path / "runs") == 0
    assert "54 training and 6 validation documents, on cpu\n" in capsys.readouterr().out
    other = write("b.csv", path.read_text().replace("dev", "oak"))
    assert train(other, tmp_path / "runs") == 2
    assert f"error: {other}:2: split must be one of train," in capsys.readouterr().err
    assert train(other, tmp_path / "runs", "--set", "data.split_column=") == 0


def test_baseline_is_compared_and_stored(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model of a single n-gram is behind, and the commands say so."""
    generator = random.Random(3)
    path = write("topics.csv", "text,label\n" + "".join(f"{sentence(generator, t)},{t}\n" for t in TOPICS))
    assert train(path, tmp_path / "runs", "--set", "model.ngram_view.num_ngrams=1") == 0
    out = capsys.readouterr().out
    assert re.search(r"\nwarning: validation accuracy \d\.\d{4} is below that of TF-IDF and logistic regression", out)
    assert re.search(r"\nTF-IDF and logistic regression \(.*\): validation accuracy \d\.\d{4}\n", out)
    run = tmp_path / "runs" / "topics-seed0"
    assert call("evaluate", run, "--device", "cpu") == 0
    printed = capsys.readouterr().out
    results = {(r["metric"], r["condition"]): r for r in json.loads((run / "evaluation.json").read_text())}
    theirs = value_of(results["accuracy", "windows"]["compared_with"])
    assert theirs is not None
    assert theirs >= 0.9
    assert value_of(results["macro_f1", "windows"]["compared_with"]) is not None
    assert results["ece", "windows"]["compared_with"] == "nothing"
    ours = results["accuracy", "windows"]["value"]
    assert re.search(rf"accuracy +windows +test +12 +{ours:.4f} +{theirs:.4f}\n", printed)
    assert ours < theirs
    assert "warning: this model is behind TF-IDF and logistic regression" in printed


def test_copies_are_in_one_split_and_conflicts_are_noted(write: Write) -> None:
    rows = [f"text {i % 30},{'xy'[i % 2]}" for i in range(120)]
    rows += ["text 0,y", "text 3,x", "text 1,x"]
    path = write("a.csv", "text,label\n" + "\n".join(rows) + "\n")
    data, parts = parts_of(path)
    texts = {name: {text for text, _ in found} for name, found in parts.items()}
    assert sum(map(len, texts.values())) == 30
    assert sum(map(len, parts.values())) == 123
    assert data.notes == (
        "classes: x 62, y 61",
        "93 rows repeat the text of another; copies are kept in one split",
        f"3 of them with another label, the first at {path}:122",
    )


def test_words_for_a_missing_label_are_counted(write: Write) -> None:
    rows = [*(f"text {i},{'xy'[i % 2]}" for i in range(40)), "one,NA", "two,n/a", "three,", "four,NA"]
    data = loaded(path := write("a.csv", "text,label\n" + "\n".join(rows) + "\n"))
    missing = f"4 rows without a label are left out, the first at {path}:42; read as missing: 'NA' 2, 'n/a' 1"
    assert (data.labels, data.notes) == (["x", "y"], ("classes: x 20, y 20", missing))


def test_rows_without_a_text_are_dropped_and_counted(write: Write, tmp_path: Path) -> None:
    lines = [f"text {i},{'xy'[i % 2]}" for i in range(40)]
    path = write("a.csv", "text,label\n" + "\n".join([*lines, ",x", " ,y", "NaN,x"]) + "\n")
    data, parts = parts_of(path)
    assert sum(map(len, parts.values())) == 40
    assert data.notes[1:] == (f"3 rows without a text are left out, the first at {path}:42",)
    for i in range(40):
        write(f"folder/{'xy'[i % 2]}/{i}.txt", f"text {i}")
    write("folder/x/empty.txt", "\n")
    notes = loaded(tmp_path / "folder").notes
    assert notes[1:] == (f"1 rows without a text are left out, the first at {tmp_path}/folder/x/empty.txt",)


@pytest.mark.parametrize(
    ("labels", "notes"),
    [
        (["yes", "no"], ()),
        (["yes", "YES", "no"], ("'YES' 10, 'yes' 10",)),
        (["yes", " yes", "YES", "no"], ("' yes' 10, 'YES' 10, 'yes' 10; spaces around a label are ignored",)),
        (["very good", "very_good", "Very-Good", "bad"], ("'Very-Good' 10, 'very good' 10, 'very_good' 10",)),
        (["1", "1.0", "2", "2.5"], ("'1' 10, '1.0' 10",)),
        (["Straße", "STRASSE", "ﬁn", "fin"], ("'STRASSE' 10, 'Straße' 10", "'fin' 10, 'ﬁn' 10")),
        (["1", "-1", "+1", "a1", "a-1", "c", "c++", "sci.space", "scispace"], ()),
    ],
)
def test_labels_that_are_likely_the_same_are_named(write: Write, labels: list[str], notes: tuple[str, ...]) -> None:
    rows = (f"text {i} {label},{label}\n" for i in range(10) for label in labels)
    data = loaded(write("a.csv", "text,label\n" + "".join(rows)))
    warnings = tuple(f"warning: labels that are likely the same: {note}" for note in notes)
    assert sorted(data.notes[1:]) == sorted(warnings)
    assert data.labels == sorted({label.strip() for label in labels})


def test_classes_are_printed_with_their_counts(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(write("a.csv", table("x" * 25 + "y" * 15)), tmp_path / "runs") == 0
    assert "\nclasses: x 25, y 15\n" in capsys.readouterr().out
    many = "".join(f"text {i},c{i % 60:02}\n" for i in range(300)) + "more,c07\n"
    (note,) = loaded(write("b.csv", "text,label\n" + many)).notes
    assert note.startswith("classes: c07 6, c00 5, ")
    assert note.endswith(" and 10 smaller ones")


def test_integers_beside_missing_values_are_labels(write: Write, tmp_path: Path) -> None:
    """Pandas turns 1 into 1.0 where a value is missing, and writes it so to Parquet and JSON."""
    labels = [*(float(i % 2) for i in range(40)), None]
    texts = [f"text {i}" for i in range(41)]
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": texts, "label": pyarrow.array(labels, pyarrow.float64())}), path)
    found = loaded(path)
    lines: list[dict[str, object]] = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    assert found.labels == ["0", "1"]
    assert found.train == loaded(write("a.jsonl", json_lines(lines))).train
    assert "1 rows without a label are left out" in found.notes[1]


def test_values_in_objects_are_columns(write: Write) -> None:
    rows: list[dict[str, object]] = [{"doc": {"body": f"text {i}", "meta": {"kind": "xy"[i % 2]}}} for i in range(40)]
    config = DocumentsConfig(name="own", text_column="doc.body", label_column="doc.meta.kind")
    assert len(loaded(write("a.jsonl", json_lines(rows)), config).train) == 32
    with pytest.raises(UserError, match=r"a.jsonl:1: no column 'text'; columns: doc.body, doc.meta.kind; --text-"):
        loaded(write("a.jsonl", json_lines(rows)))


def test_rows_without_a_label_are_dropped_and_counted(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("a.csv", table("xy" * 20 + "." * 1000))
    assert train(path, tmp_path / "runs") == 0
    out = capsys.readouterr().out
    assert "32 training and 4 validation documents, on cpu\n" in out
    assert f"1000 rows without a label are left out, the first at {path}:42" in out
    data, parts = parts_of(path)
    assert sum(map(len, parts.values())) == 40
    assert data.labels == ["x", "y"]


@pytest.mark.parametrize(
    ("labels", "metric"), [("xy" * 20, "accuracy"), ("xxxy" * 10, "accuracy"), ("xxxxy" * 10, "macro_f1")]
)
def test_imbalanced_data_are_validated_by_macro_f1(
    write: Write, labels: str, metric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(write("a.csv", table(labels)), tmp_path / "runs") == 0
    out = capsys.readouterr().out
    assert ("the largest class is over 3 times the smallest: macro F1 chooses the model" in out) == (
        metric != "accuracy"
    )
    _, progress, facts, _ = checkpoint.load(tmp_path / "runs" / "a-seed0" / "last.pt")
    assert (facts["labels"], facts["metric"]) == (["x", "y"], metric)
    assert list(progress.history[0])[1] == f"validation_{metric}"


WORDS = {"tea": "kettle leaf pot steep cup", "rail": "track station signal sleeper train"}


def sentence(generator: random.Random, topic: str) -> str:
    """Return mostly words of all topics and at least three words of one topic."""
    words = [
        *generator.choices(["the", "a", "of", "and", "in", "with", "some", "over"], k=9),
        *generator.choices(WORDS[topic].split(), k=3),
    ]
    generator.shuffle(words)
    return " ".join(words)


def predicted(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, object]]:
    capsys.readouterr()
    assert service(["predict", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


TOPICS = list(WORDS) * 60


def test_classifier_learns_documents_of_a_table(write: Write, tmp_path: Path) -> None:
    generator = random.Random(3)
    rows = "".join(f'1,"{sentence(generator, topic)}\n",{topic}\n' for topic in TOPICS)
    path = write("topics.csv", 'id,"the ""body""",größe\n' + rows)
    columns = ["--text-column", 'the "body"', "--label-column", "größe"]
    assert train(path, tmp_path / "runs", *columns) == 0
    run = tmp_path / "runs" / "topics-seed0"
    assert call("evaluate", run, "--data", path, "--device", "cpu") == 0
    figures = {
        (found["metric"], found["condition"]): found for found in json.loads((run / "evaluation.json").read_text())
    }
    assert figures["accuracy", "windows"]["examples"] == 12
    assert figures["accuracy", "windows"]["value"] >= 0.9


def test_folder_of_documents_is_trained_exported_and_served(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = random.Random(3)
    path = tmp_path / "topics"
    for i, topic in enumerate(TOPICS):
        write(f"topics/{topic}/{i}.txt", sentence(generator, topic).encode("utf-16"))
    assert train(path, tmp_path / "runs", one_length=False) == 0
    assert "TF-IDF and logistic regression" in capsys.readouterr().out  # it finds words: the texts are decoded
    run, exports = tmp_path / "runs" / "topics-seed0", tmp_path / "exports"
    assert call("export", run, "--data", path, "--out", exports, "--device", "cpu") == 0
    manifest = read_manifest(exports / "topics" / "1")
    assert isinstance(manifest, ClassifierManifest)
    assert manifest.labels == ("rail", "tea")
    assert (manifest.max_length, manifest.training.data, manifest.data_terms) == (512, "own", "Own data.")
    assert not manifest.non_commercial
    figures = {(result.metric, result.condition): result for result in manifest.results}
    assert figures["accuracy", "windows"].examples == 12
    assert figures["accuracy", "windows"].value >= 0.9
    target = tmp_path / "evaluation.json"
    assert call("evaluate", exports / "topics", "--data", path, "--out", target, "--device", "cpu") == 0
    assert json.loads(target.read_text()) == json.loads(manifest.model_dump_json())["results"]
    assert call("evaluate", run, "--data", path, "--device", "cpu") == 0
    assert json.loads((run / "evaluation.json").read_text()) == json.loads(target.read_text())
    asked = [write(f"{i}.txt", sentence(generator, topic).encode("utf-16")) for i, topic in enumerate(WORDS)]
    answers = predicted(capsys, exports / "topics", *asked)
    assert [answer["label"] for answer in answers] == list(WORDS)


def test_run_remembers_its_file_and_an_export_does_not(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, exports = write("a.csv", table("xxxyyy")), tmp_path / "exports"
    run = tmp_path / "runs" / "a"
    monkeypatch.chdir(tmp_path)
    assert train(Path("a.csv"), tmp_path / "runs") == 0
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    capsys.readouterr()
    assert call("evaluate", run, "--device", "cpu") == 0
    assert capsys.readouterr().out.startswith(f"{path}: 2 rows of the test split\n")
    moved = path.rename(tmp_path / "moved.csv")
    for command in (("export", run, "--out", exports), ("evaluate", run)):
        capsys.readouterr()
        assert call(*command, "--device", "cpu") == 2
        told = f"error: a was trained on {path}, which does not exist; give its new place with --data\n"
        assert capsys.readouterr().err == told
    assert not exports.exists()
    assert call("export", run, "--out", exports, "--data", moved, "--device", "cpu") == 0
    capsys.readouterr()
    assert call("evaluate", exports / "a", "--device", "cpu") == 2
    told = "error: a was trained on data of your own; pass it, or a held-out file, with --data\n"
    assert capsys.readouterr().err == told
    moved.write_text(table("xxxyyyx"))
    assert call("export", run, "--out", exports, "--data", moved, "--device", "cpu") == 2
    told = f"error: {moved} is not what a was trained on: its rows differ from those of then\n"
    assert capsys.readouterr().err == told


def test_run_is_found_without_its_seed_if_there_is_one(tmp_path: Path) -> None:
    for name in ("a-seed0", "b-seed0", "b-seed1", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "best.pt").touch()
    assert find_run(tmp_path / "a") == tmp_path / "a-seed0"
    for name in ("c", "b-seed1"):
        assert find_run(tmp_path / name) == tmp_path / name
    with pytest.raises(UserError, match=f"^{tmp_path}/b has several runs; choose one of {tmp_path}/b-seed0, "):
        find_run(tmp_path / "b")
    with pytest.raises(
        UserError, match=f"^{tmp_path}/none does not exist; in {tmp_path} there are a-seed0, b-seed0, b"
    ):
        find_run(tmp_path / "none")


def test_final_fit_is_exported_with_the_results_of_the_split(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = random.Random(3)
    path = write("topics.csv", "text,label\n" + "".join(f"{sentence(generator, t)},{t}\n" for t in TOPICS))
    run, exports = tmp_path / "runs" / "topics-seed0", tmp_path / "exports"
    assert train(path, tmp_path / "runs", "--set", "data.final_fit=true") == 0
    assert "topics-seed0/final.pt: n-gram view fitted on all 120 documents" in capsys.readouterr().out
    assert call("evaluate", run, "--device", "cpu") == 0
    assert call("export", run, "--out", exports, "--device", "cpu") == 0
    manifest = read_manifest(exports / "topics" / "1")
    assert isinstance(manifest, ClassifierManifest)
    assert json.loads((run / "evaluation.json").read_text()) == json.loads(manifest.model_dump_json())["results"]
    best = load_trained(run, DataFiles())
    assert best.finished.final is not None
    differences = [
        (a - b).abs().max().item()
        for a, b in zip(
            best.finished.final.state_dict().values(), best.finished.model.state_dict().values(), strict=True
        )
    ]
    assert max(differences) > 0
    exported = module_functions(best.finished.exported, torch.device("cpu"))[0]
    served = backend_function(manifest, exports / "topics" / "1", "cpu")
    inputs = best.finished.graphs[0].golden
    assert served(inputs) == pytest.approx(exported(inputs), abs=1e-4)
    capsys.readouterr()
    assert call("evaluate", exports / "topics", "--data", path, "--device", "cpu") == 2
    told = f"error: topics was trained on all rows of {path}; give a held-out file, or evaluate the run\n"
    assert capsys.readouterr().err == told
    (run / "final.pt").unlink()
    assert call("export", run, "--out", exports, "--device", "cpu") == 2
    assert capsys.readouterr().err.endswith(f"error: {run}/final.pt does not exist; train with --resume to fit it\n")
    assert train(path, tmp_path / "runs", "--set", "data.final_fit=true", "--resume") == 0
    assert (run / "final.pt").is_file()


def test_final_fit_of_pairs_is_beside_the_best_model(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("links.jsonl", json_lines(pair_rows(200)))
    settings = ["--text-column", "a", "b", "--set", "data.final_fit=true"]
    assert train(path, tmp_path / "runs", *settings, task="text-matching") == 0
    assert "links-seed0/final.pt: lexical view fitted on all 200 pairs" in capsys.readouterr().out
    best = load_trained(tmp_path / "runs" / "links-seed0", DataFiles())
    assert best.finished.final is not None
    functions = module_functions(best.finished.graphs, torch.device("cpu"))
    result, _ = best.task.measure(functions, best.data).results
    assert 0 < result.examples < 50


def test_training_on_a_file_is_resumed(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("a.csv", table("xxxyyy"))
    assert train(path, tmp_path / "runs") == 0
    assert train(path, tmp_path / "runs", "--resume") == 0
    assert train(path, tmp_path / "runs") == 2
    assert "a-seed0 exists; resume it with --resume" in capsys.readouterr().err
    path.write_text(table("xxxyyy").replace("text,", "body,"))
    assert train(path, tmp_path / "runs", "--resume", "--text-column", "body") == 2
    assert "was trained with another recipe" in capsys.readouterr().err


def pair_rows(count: int, seed: int = 1) -> list[dict[str, object]]:
    """Return pairs that match if they have the same topic; every first text is in two pairs."""
    generator = random.Random(seed)
    rows: list[dict[str, object]] = []
    for i in range(count // 2):
        topic, other = generator.sample(list(WORDS), 2)
        first = f"{i} {sentence(generator, topic)}"
        rows += [{"a": first, "b": sentence(generator, t), "label": int(t == topic)} for t in (topic, other)]
    return rows


DEGREES = "must be 0 or 1, no or yes, or a degree from 0 to 1, not "
PAIRS = PairsConfig(name="own", text_column="a", other_column="b")


def load_pairs(config: PairsConfig, path: Path, test: Path | None = None) -> Pairs:
    return pairs_module.load_pairs(config, read_own(DataFiles(data=path, test=test), pairs_module.columns_of(config)))


def test_pairs_are_split_by_their_first_text(write: Write) -> None:
    rows = pair_rows(400)
    path = write("pairs.jsonl", json_lines(rows))
    pairs = load_pairs(PAIRS, path)
    found = [
        {"a": pairs.texts[a].decode(), "b": pairs.texts[b].decode(), "label": label}
        for split in SPLITS
        for a, b, label in pairs.table[split].tolist()
    ]
    assert sorted(map(str, found)) == sorted(map(str, rows))
    firsts = [{a for a, _, _ in pairs.table[split].tolist()} for split in SPLITS]
    assert sum(map(len, firsts)) == len(set.union(*firsts)) == 200
    assert [len(part) for part in firsts] == pytest.approx([160, 20, 20], abs=15)
    again = load_pairs(PAIRS, write("again.jsonl", json_lines(rows[::-1])))
    for split in SPLITS:
        texts = [sorted((p.texts[a], p.texts[b], y) for a, b, y in p.table[split].tolist()) for p in (pairs, again)]
        assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "a,b,label\none,two,1\none,three,maybe\n", f":3: label {DEGREES}'maybe'"),
        ("a.csv", "a,b,label\none,two,\n", ": no label in column 'label'; 1 rows without a label are left out"),
        ("a.csv", "a,b,label,split\none,two,1,test\none,two,1,train\n", " has no labelled row for training; 1 "),
        ("a.csv", "a,c,label\none,two,1\n", ":1: no column 'b'; columns: a, c, label"),
        ("a.csv", "a,b,label\none,,1\n", " has no texts, the first is missing at "),
        ("a.jsonl", '{"a": "one", "b": "two", "label": 2}\n', f":1: label {DEGREES}'2'"),
        ("a.jsonl", '{"a": "one", "b": 2, "label": 1}\n', ":1: b must be a string, not a number"),
        ("a.csv", "a,b,label\none,two,1\n", ": the "),
    ],
)  # fmt: skip
def test_error_about_unusable_pairs_is_one_line_with_the_location(
    write: Write, name: str, content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(name, content)
    assert train(path, tmp_path / "runs", "--text-column", "a", "b", task="text-matching") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}{message}")
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("labels", [(1, 0), (True, False), (1.0, 0.0), ("True", "False"), ("1.0", "0.0"), (" 1", "0 ")])
def test_labels_of_pairs_have_several_spellings(write: Write, labels: tuple[object, object]) -> None:
    rows = [{**row, "label": labels[not row["label"]]} for row in pair_rows(100)]
    found = load_pairs(PAIRS, write("a.jsonl", json_lines(rows)))
    expected = load_pairs(PAIRS, write("b.jsonl", json_lines(pair_rows(100))))
    for split in SPLITS:
        assert found.table[split].tolist() == expected.table[split].tolist()


def test_pairs_without_a_label_or_text_are_dropped_and_counted(write: Write) -> None:
    rows = pair_rows(100)
    rows += [{"a": "one", "b": "two", "label": "NA"}, {"a": "", "b": "two", "label": 1}]
    pairs = load_pairs(PAIRS, path := write("a.jsonl", json_lines(rows)))
    assert sum(map(len, pairs.table.values())) == 100
    assert pairs.notes == (
        "classes: 0 50, 1 50",
        f"1 rows without a text are left out, the first at {path}:102",
        f"1 rows without a label are left out, the first at {path}:101; read as missing: 'NA' 1",
    )


def test_repeated_and_equal_texts_of_pairs_are_counted(write: Write) -> None:
    rows = [*pair_rows(100), {"a": "one", "b": "one", "label": 1}]
    rows += [rows[3], rows[3], {**rows[4], "label": int(not rows[4]["label"])}]
    pairs = load_pairs(PAIRS, write("a.jsonl", json_lines(rows)))
    assert sum(map(len, pairs.table.values())) == 102
    assert pairs.notes[1:] == (
        "1 pairs are of a text with itself",
        "2 pairs repeat another one with the same label and are left out",
        "1 pairs occur with different labels",
    )


@pytest.mark.parametrize("texts", [4, 10, 40])
def test_few_first_texts_are_in_all_splits(write: Write, texts: int) -> None:
    """Each with a pair of both labels, so that each split needs one."""
    rows = [{"a": f"question {i // 2}", "b": f"answer {i}", "label": i % 2} for i in range(2 * texts)]
    for seed in range(5):
        pairs = load_pairs(PAIRS.model_copy(update={"split_seed": seed}), write("a.jsonl", json_lines(rows)))
        held_out = max(1, texts // 10)
        assert [len(pairs.table[split]) for split in ("val", "test")] == [2 * held_out] * 2
        for split in SPLITS:
            assert set(pairs.table[split][:, 2].tolist()) == {0, 1}


def test_split_without_pairs_of_both_labels_is_an_error(write: Write) -> None:
    rows = [{**row, "label": 1} for row in pair_rows(100)]
    with pytest.raises(UserError, match=r"the train split .* has \d+ pairs of label 1, 0 of label 0; both are needed"):
        load_pairs(PAIRS, write("a.jsonl", json_lines(rows)))


@pytest.mark.parametrize(("no", "yes"), [("no", "yes"), ("False", "True"), (0, 1), ("0.0", "1.0")])
def test_labels_of_pairs_may_be_words(write: Write, no: object, yes: object) -> None:
    rows = [{**row, "label": yes if row["label"] else no} for row in pair_rows(100)]
    expected = load_pairs(PAIRS, write("b.jsonl", json_lines(pair_rows(100)))).table
    assert all(
        (found == expected[split]).all()
        for split, found in load_pairs(PAIRS, write("a.jsonl", json_lines(rows))).table.items()
    )


def test_labels_of_pairs_may_be_degrees(write: Write) -> None:
    rows = [{**row, "label": (0.75 if row["label"] else 0.25) + 0.001 * i} for i, row in enumerate(pair_rows(100))]
    pairs = load_pairs(PAIRS.model_copy(update={"graded": True}), path := write("a.jsonl", json_lines(rows)))
    found = {
        (pairs.texts[a].decode(), pairs.texts[b].decode()): degree
        for table in pairs.table.values()
        for (a, b, _), degree in zip(table.tolist(), pairs.targets(table), strict=True)
    }
    assert found == {(str(row["a"]), str(row["b"])): row["label"] for row in rows}
    config = PAIRS.model_copy(update={"graded": True})
    other = load_test_pairs(config, read_own(DataFiles(data=path), pairs_module.columns_of(config)).data)
    joined = pairs.with_test(other)
    assert joined.targets(joined.table["train"]).tolist() == pairs.targets(pairs.table["train"]).tolist()
    assert sorted(joined.targets(joined.table["test"])) == sorted(found.values())
    with pytest.raises(UserError, match=r"label must be 0 or 1, or no or yes, not '0\.\d+'"):
        load_pairs(PAIRS, path)
    rows[3]["label"] = 4.5
    with pytest.raises(UserError, match=rf"a.jsonl:4: label {DEGREES}'4.5'"):
        load_pairs(PAIRS.model_copy(update={"graded": True}), write("a.jsonl", json_lines(rows)))


def test_each_split_needs_two_different_degrees(write: Write) -> None:
    config = PAIRS.model_copy(update={"graded": True})
    rows = [{**row, "label": 0.5 if row["label"] else 0.75} for row in pair_rows(100)]
    pairs = load_pairs(config, path := write("a.jsonl", json_lines(rows)))
    assert all(set(pairs.targets(table)) == {0.5, 0.75} for table in pairs.table.values())
    held = read_own(DataFiles(data=path), pairs_module.columns_of(config)).data
    assert len(load_test_pairs(config, held).table["test"]) == 100
    rows = [{**row, "label": 0.75, "split": "test" if i < 10 else "train"} for i, row in enumerate(rows)]
    path = write("b.jsonl", json_lines([{**rows[0], "label": 0.5}, *rows[1:]]))
    found = r"b\.jsonl: the train split .* has \d+ pairs of degree 0\.75; two different degrees are needed; --hard-neg"
    with pytest.raises(UserError, match=found):
        load_pairs(config.model_copy(update={"split_column": "split"}), path)
    path = write("c.jsonl", json_lines([{**row, "label": 0.25} for row in rows[:7]]))
    held = read_own(DataFiles(data=path), pairs_module.columns_of(config)).data
    with pytest.raises(UserError, match=r"test split has 7 pairs of degree 0\.25; two different degrees are needed$"):
        load_test_pairs(config, held)


def test_three_texts_are_a_pair_that_matches_and_one_that_does_not(write: Write) -> None:
    rows: list[dict[str, object]] = [
        {"q": f"query {i // 2}", "yes": f"match {i // 2}", "no": f"other {i}"} for i in range(100)
    ]
    config = PairsConfig(name="own", text_column="q", other_column="yes", negative_column="no")
    pairs = load_pairs(config, write("a.jsonl", json_lines(rows)))
    found = [
        (pairs.texts[a].decode(), pairs.texts[b].decode(), label)
        for table in pairs.table.values()
        for a, b, label in table.tolist()
    ]
    matches = [(f"query {i}", f"match {i}", 1) for i in range(50)]
    assert sorted(found) == sorted(matches + [(f"query {i // 2}", f"other {i}", 0) for i in range(100)])


def test_hard_negatives_make_pairs_of_matches_alone_a_data_set(write: Write) -> None:
    rows: list[dict[str, object]] = [{"a": f"red tea {i}", "b": f"red tea pot {i}", "label": "yes"} for i in range(100)]
    path = write("a.jsonl", json_lines(rows))
    with pytest.raises(UserError, match="both are needed; --hard-negatives adds pairs that do not match"):
        load_pairs(PAIRS, path)
    pairs = load_pairs(PAIRS.model_copy(update={"hard_negatives": 2}), path)
    known = {(str(row["a"]), str(row["b"])) for row in rows}
    for split, table in pairs.table.items():
        negatives = table[pairs.targets(table) == 0]
        assert len(negatives) == 2 * int(pairs.targets(table).sum()) > 0, split
        assert not known & {(pairs.texts[a].decode(), pairs.texts[b].decode()) for a, b, _ in negatives.tolist()}
    assert re.search(r"hard negatives: \d+ train, \d+ val, \d+ test pairs are added", " ".join(pairs.notes))


def test_hard_negatives_are_added_to_a_held_out_file_of_matches_alone(write: Write) -> None:
    rows: list[dict[str, object]] = [{"a": f"red tea {i}", "b": f"red tea pot {i}", "label": 1} for i in range(20)]
    file = read_own(DataFiles(data=write("a.jsonl", json_lines(rows))), pairs_module.columns_of(PAIRS)).data
    with pytest.raises(UserError, match=r"has 20 pairs of label 1, 0 of label 0; both are needed$"):
        load_test_pairs(PAIRS, file)
    pairs = load_test_pairs(PAIRS.model_copy(update={"hard_negatives": 2}), file)
    assert sorted(pairs.targets(pairs.table["test"]).tolist()) == [0.0] * 40 + [1.0] * 20


def test_hard_negatives_match_in_no_order() -> None:
    texts = [f"red tea {name}".encode() for name in ("pot", "cup", "mug", "can")]
    table = {"train": np.array([[0, 1, 1], [2, 0, 1], [3, 2, 1]]), "val": np.zeros((0, 3), np.int64)}
    table["test"] = table["val"]
    pairs, _ = pairs_module.with_hard_negatives(Pairs(texts, table, np.zeros(4, np.int64)), 3)
    negatives = [(a, b) for a, b, grade in pairs.table["train"].tolist() if not grade]
    assert sorted(negatives) == [(2, 1), (3, 0), (3, 1)]  # 0 and 2 match, as 2 and 0


def test_pairs_may_have_files_or_a_column_of_splits(write: Write) -> None:
    rows = pair_rows(100)
    path = write("train.jsonl", json_lines([*rows, rows[0]]))
    test = write("test.jsonl", json_lines([*rows[:2], {"a": "new", "b": "pair", "label": 1}]))
    pairs = load_pairs(PAIRS, path, test)
    sizes = {split: len(table) for split, table in pairs.table.items()}
    assert sizes["test"] == 3
    assert sizes["train"] + sizes["val"] == 98
    assert pairs.notes[1:] == ("3 pairs are left out of training or validation: they are also in a later split",)
    values = ["train"] * 80 + ["dev"] * 10 + ["test"] * 10
    split = write("a.jsonl", json_lines([{**row, "fold": value} for row, value in zip(rows, values, strict=True)]))
    table = load_pairs(PairsConfig(name="own", text_column="a", other_column="b", split_column="fold"), split).table
    assert {name: len(found) for name, found in table.items()} == {"train": 80, "val": 10, "test": 10}


def test_held_out_pairs_are_measured_whole(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, held = (
        write("links.jsonl", json_lines(pair_rows(200))),
        write("held.jsonl", json_lines(pair_rows(40, seed=2))),
    )
    assert train(path, tmp_path / "runs", "--text-column", "a", "b", task="text-matching") == 0
    out = capsys.readouterr().out
    assert re.search(r"\nTF-IDF cosine \(.*\): validation auc \d\.\d{4}\n", out)
    run, exports = tmp_path / "runs" / "links-seed0", tmp_path / "exports"
    assert call("export", run, "--out", exports, "--device", "cpu") == 0
    figures = []
    for folder in (run, exports / "links"):
        capsys.readouterr()
        assert call("evaluate", folder, "--data", held, "--out", tmp_path / "out.json", "--device", "cpu") == 0
        told = f"all 40 labelled rows of {held}, which is not the training data\n"
        assert capsys.readouterr().out.startswith(told)
        results = json.loads((run / "evaluation-held.json" if folder == run else tmp_path / "out.json").read_text())
        assert {result["examples"] for result in results} == {40}
        figures.append([result["value"] for result in results])
    assert figures[0] == pytest.approx(figures[1], abs=1e-6)


def test_folder_of_pairs_is_an_error(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("texts/x/1", "one")
    assert train(tmp_path / "texts", tmp_path / "runs", task="text-matching") == 2
    assert (
        capsys.readouterr().err
        == f"error: {tmp_path}/texts: pairs cannot be read from a folder; give a CSV or JSON Lines file\n"
    )


def _with_splits(rows: list[dict[str, object]], tested: int) -> str:
    """Lines of rows, a tenth of which each are validation and test rows."""
    named = {tested: "test", 1: "val"}
    return json_lines([{**row, "split": named.get(i // 2 % 10, "train")} for i, row in enumerate(rows)])


def test_file_of_pairs_is_trained_exported_and_served(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("links.jsonl", _with_splits(pair_rows(400), tested=0))
    settings = ["--text-column", "a", "b", "--set", "training.epochs=6", "--set", "model.encoder.dim=16"]
    assert train(path, tmp_path / "runs", *settings, task="text-matching", one_length=False) == 0
    run, exports = tmp_path / "runs" / "links-seed0", tmp_path / "exports"
    assert call("export", run, "--data", path, "--out", exports, "--device", "cpu") == 0
    manifest = read_manifest(exports / "links" / "1")
    assert isinstance(manifest, MatcherManifest)
    assert (manifest.max_length, manifest.data_terms, manifest.non_commercial) == (512, "Own data.", False)
    assert {result.metric: result.value for result in manifest.results}["auc"] > 0.9
    assert all(value_of(result.compared_with) is not None for result in manifest.results)
    assert all(result.compared_with.startswith("TF-IDF cosine (") for result in manifest.results)
    target = tmp_path / "evaluation.json"
    assert call("evaluate", exports / "links", "--data", path, "--out", target, "--device", "cpu") == 0
    assert json.loads(target.read_text()) == json.loads(manifest.model_dump_json())["results"]
    generator = random.Random(9)
    tea, rail = (sentence(generator, topic) for topic in WORDS)
    asked = write("asked.jsonl", json_lines([{"a": tea, "b": sentence(generator, "tea")}, {"a": tea, "b": rail}]))
    alike, different = predicted(capsys, exports / "links", "--jsonl", asked)
    assert float(str(alike["score"])) > float(str(different["score"]))
    write("links.jsonl", _with_splits(pair_rows(400), tested=5))
    capsys.readouterr()
    assert call("evaluate", exports / "links", "--data", path, "--out", target, "--device", "cpu") == 2
    assert "links.jsonl: its rows are those that links was trained on, but not in the splits" in capsys.readouterr().err


def test_data_with_labels_unknown_to_the_model_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"text": f"{word} number {i}", "label": label} for i in range(20) for word, label in (("a", "x"), ("b", "y"))
    ]
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_text("".join(json.dumps(row) + "\n" for row in rows))
    second.write_text("".join(json.dumps({**row, "label": {"x": "z"}.get(row["label"], "y")}) + "\n" for row in rows))
    common = ["--task", "text-classification", "--device", "cpu", "--runs", tmp_path, "--set", "training.epochs=1"]
    assert call("train", "--data", first, *common) == 0
    run = tmp_path / "first-seed0"
    for command, told in (
        (["export", run, "--out", tmp_path / "exports"], f"{second} is not what first was trained on"),
        (["evaluate", run], f"{second}:1: the label 'z' is not in training; known: x, y"),
    ):
        capsys.readouterr()
        assert call(*command, "--data", second, "--device", "cpu") == 2
        assert f"error: {told}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "folder/\x1b[2J/a.txt"])
def test_label_with_a_control_character_is_rejected_before_training(write: Write, name: str) -> None:
    rows = json_lines([{"text": "a", "label": "\x1b[2J"}]) if name.endswith("jsonl") else "text,label\na,\x1b[2J\n"
    path = write(name, rows)
    with pytest.raises(UserError, match=r"the label '\\x1b\[2J' contains a control character"):
        read(path.parent.parent if "folder" in name else path)


def test_each_file_is_read_once_a_command(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, new = write("a.csv", table("xy" * 20)), write("new.csv", table("xy" * 21))
    test = write("test.csv", "text,label\none,x\ntwo,y\n")
    read_rows, opened, run = own._rows, list[Path](), tmp_path / "runs" / "a-seed0"

    def rows(file: Path, columns: Any) -> Any:
        opened.append(file)
        return read_rows(file, columns)

    monkeypatch.setattr(own, "_rows", rows)
    assert train(path, tmp_path / "runs", "--test", test, "--set", "data.final_fit=true") == 0
    assert Counter(opened) == {path: 1, test: 1}
    for arguments, files in (
        ((), (path, test)),
        (("--data", path), (path, test)),
        (("--data", new), (new, path, test)),
    ):
        opened.clear()
        assert call("evaluate", run, *arguments, "--device", "cpu") == 0
        assert Counter(opened) == dict.fromkeys(files, 1)


@pytest.mark.parametrize(
    ("task_name", "recipe", "columns"),
    [("text-classification", "documents", ("text",)), ("text-matching", "pairs", ("text", "other"))],
)
def test_training_rows_are_in_the_splits_of_training_or_refused(
    write: Write, task_name: str, recipe: str, columns: tuple[str, ...]
) -> None:
    """With other splits, the model would be measured on documents that it has learned from."""

    def content(tested: int) -> str:
        lines = [f"text {i},word {i},{i // 3 % 2},{'test' if i % 3 == tested else 'train'}" for i in range(60)]
        return "\n".join(["text,other,label,split", *lines, ""])

    files = DataFiles(data=write("a.csv", content(0)))
    keys, texts = read_texts(task_name, files, TextLayout(columns), {})
    task = task_of(load_recipe(find_recipe(recipe), [], keys))
    task = task.with_facts_of(task.load(texts))
    header, *lines = content(0).splitlines()
    write("a.csv", "\n".join([header, *lines[::-1], ""]))
    task.load(task.read(files))
    write("a.csv", content(1))
    with pytest.raises(UserError, match=r"a\.csv: its rows are those that a was trained on, but not in the splits of"):
        task.load(task.read(files))
