"""Labelled documents in compressed JSON Lines: reading, splits, groups, and errors that name file and line."""

import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from model.config.data import DocumentsConfig
from model.data.documents import data_terms, load_documents
from model.data.imdb import IMDB
from model.data.lines import LabelledLines, read_lines
from model.data.long_documents import SCOTUS, UN_DEBATE, UN_DEBATE_COUNTRY
from model.data.newsgroups import POSTS
from model.errors import UserError

SETS = {"scotus": SCOTUS, "un-debate": UN_DEBATE, "un-debate-country": UN_DEBATE_COUNTRY}


def row(source: LabelledLines, text: object, label: object, split: object, group: object = None) -> dict[str, object]:
    return {"text": text, "label": label, source.split_key: split, source.group_key or "group": group}


def write(folder: Path, source: LabelledLines, rows: list[object]) -> Path:
    lines = [part if isinstance(part, str) else json.dumps(part) for part in rows]
    (folder / source.file).write_bytes(lzma.compress("".join(line + "\n" for line in lines).encode()))
    return folder


@pytest.mark.parametrize("name", SETS)
def test_splits_and_groups_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    source = SETS[name]
    rows: list[object] = [
        row(source, "na\u00efve", 0, "train", 1955),
        row(source, "two", 1, "val", "BEL"),
        row(source, "three", 8, "train", "BRA"),
        row(source, "four", 3, "test", 2000),
    ]
    data = load_documents(DocumentsConfig.model_validate({"name": name}), write(tmp_path, source, rows))
    assert (data.train.texts, data.train.labels) == (["na\u00efve".encode(), b"three"], [0, 8])
    assert data.train.groups == ("1955", "BRA")
    assert (data.validation.texts, data.validation.labels) == ([b"two"], [1])
    assert (data.test.texts, data.test.labels) == ([b"four"], [3])
    assert data.labels == source.labels


@pytest.mark.parametrize("source", [IMDB, POSTS, SCOTUS, UN_DEBATE, UN_DEBATE_COUNTRY])
def test_labels_are_sorted_and_different(source: LabelledLines) -> None:
    assert sorted(set(source.labels)) == source.labels


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ('{"split": "train", "te', "not JSON"),
        ("", "not JSON"),
        ("[1, 2]", "expected an object, not list"),
        ({"split": "dev"}, "split must be one of train, val, test, not 'dev'"),
        ({"split": ["train"]}, "split must be one of"),
        ({"text": ""}, "text must be a non-empty string, not str"),
        ({"text": 7}, "text must be a non-empty string, not int"),
        ({"text": "half a pair \ud800"}, "text is not valid Unicode"),
        ({"label": 9}, "label must be in 0..8, not 9"),
        ({"label": -1}, "label must be in 0..8, not -1"),
        ({"label": True}, "label must be in 0..8, not True"),
        ({"label": "1"}, "label must be in 0..8, not '1'"),
        ({"term": None}, "term must not be missing"),
    ],
)
def test_error_about_a_bad_row_names_file_and_line(changes: object, message: str, tmp_path: Path) -> None:
    """Also if the row is of another split than the one that is read."""
    good = row(SCOTUS, "fine", 0, "train", 1955)
    write(tmp_path, SCOTUS, [good, good | changes if isinstance(changes, dict) else changes])
    for split in ("train", "test"):
        with pytest.raises(UserError) as caught:
            SCOTUS.read(tmp_path, split)
        assert str(caught.value).startswith(f"{tmp_path / SCOTUS.file}:2: {message}")


def test_row_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / IMDB.file).write_bytes(lzma.compress(b'{"split": "train", "text": "\xff", "label": 1}\n'))
    with pytest.raises(UserError, match=r"xz:1: not JSON"):
        IMDB.read(tmp_path, "train")


def test_missing_file_or_split_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^{tmp_path}/\S+ does not exist; --data-dir or LONGDOC_DATA"):
        SCOTUS.read(tmp_path, "train")
    with pytest.raises(UserError, match=rf"^{tmp_path}: "):
        list(read_lines(tmp_path))
    folder = write(tmp_path, SCOTUS, [row(SCOTUS, "fine", 0, "train", 1955)])
    with pytest.raises(UserError, match="has no rows of split 'test'"):
        SCOTUS.read(folder, "test")


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda _: b"", lambda _: b"plain text\n" * 9])
def test_error_names_a_damaged_file(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "lines.xz"
    path.write_bytes(damage(lzma.compress(b"".join(b'{"number": %d}\n' % i for i in range(2000)))))
    with pytest.raises(UserError, match=rf"^{path}: \S"):
        list(read_lines(path))


def test_only_the_arguments_forbid_commercial_use() -> None:
    assert data_terms("scotus") == (SCOTUS.terms, True)
    for name in ("un-debate", "un-debate-country"):
        assert data_terms(name) == (UN_DEBATE.terms, False)
