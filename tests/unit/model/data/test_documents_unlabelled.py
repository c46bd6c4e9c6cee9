"""Unlabelled documents: what is read, and what is left out."""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from model.config.data import DocumentsConfig
from model.data.documents import columns_of, load_documents, with_unlabelled
from model.data.own import DataFiles, read_own
from model.errors import UserError

OWN = DocumentsConfig(name="own", unlabelled=True)


def lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    return lines(tmp_path / "train.jsonl", [{"text": f"document {i}", "label": i % 2} for i in range(40)])


def unlabelled(path: Path, **files: Any) -> tuple[bytes, ...]:
    source = read_own(DataFiles(data=path, **files), columns_of(OWN))
    return with_unlabelled(OWN, load_documents(OWN, source), source).unlabelled


def test_texts_of_every_labelled_split_are_left_out(labelled: Path, tmp_path: Path) -> None:
    held = {name: lines(tmp_path / f"{name}.jsonl", [{"text": name, "label": 0}]) for name in ("validation", "test")}
    texts = ["document 1", "document 2", "validation", "test", "new", "new", "newer"]
    file = lines(tmp_path / "more.jsonl", [{"text": text} for text in texts])
    assert unlabelled(labelled, unlabelled=file, **held) == (b"new", b"newer")


def test_labels_and_splits_of_unlabelled_documents_are_ignored(labelled: Path, tmp_path: Path) -> None:
    file = tmp_path / "more.csv"
    file.write_text("text,label,split\nnew,3,nowhere\nnewer,,\n")
    assert unlabelled(labelled, unlabelled=file) == (b"new", b"newer")


def test_folder_of_unlabelled_documents_needs_no_subfolders(labelled: Path, tmp_path: Path) -> None:
    for name in ("a.txt", "deep/er/b.txt"):
        (path := tmp_path / "more" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    assert sorted(unlabelled(labelled, unlabelled=tmp_path / "more")) == [b"a.txt", b"deep/er/b.txt"]


def test_bad_row_and_missing_file_are_named(labelled: Path, tmp_path: Path) -> None:
    file = lines(tmp_path / "more.jsonl", [{"text": "new"}, {"body": "newer"}])
    with pytest.raises(UserError, match=r"more.jsonl:2: no column 'text'"):
        unlabelled(labelled, unlabelled=file)
    with pytest.raises(UserError, match="name it with --unlabelled"):
        unlabelled(labelled)


def test_reviews_without_labels_are_those_of_the_data_set(tmp_path: Path) -> None:
    rows = [{"split": split, "text": f"{split} {i}", "label": i % 2} for split in ("train", "test") for i in range(9)]
    with lzma.open(tmp_path / "imdb_labelled.jsonl.xz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    with lzma.open(tmp_path / "imdb_unsup.jsonl.xz", "wt") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in ("test 1", "train 0", "new", "new"))
    config = DocumentsConfig(name="imdb", unlabelled=True, validation_fraction=0.3)
    data = load_documents(config, tmp_path)
    assert with_unlabelled(config, data, tmp_path).unlabelled == (b"new",)
