"""Supreme Court arguments and UN speeches: reading, splits and groups."""

import json
import lzma
from pathlib import Path

import pytest

from model.config.data import DocumentsConfig
from model.data.documents import data_terms, load_test, load_training
from model.data.long_documents import SCOTUS, UN_DEBATE, UN_DEBATE_COUNTRY, LongDocuments
from model.errors import UserError

SETS = {"scotus": SCOTUS, "un-debate": UN_DEBATE, "un-debate-country": UN_DEBATE_COUNTRY}


def row(source: LongDocuments, text: object, label: object, split: object, group: object) -> dict[str, object]:
    return {"text": text, "label": label, source.split_key: split, source.group_key: group}


def write(folder: Path, source: LongDocuments, rows: list[dict[str, object]]) -> Path:
    lines = "".join(json.dumps(part) + "\n" for part in rows)
    (folder / source.file).write_bytes(lzma.compress(lines.encode()))
    return folder


@pytest.mark.parametrize("name", SETS)
def test_splits_and_groups_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    source = SETS[name]
    assert sorted(source.labels) == source.labels
    rows = [
        row(source, "naïve", 0, "train", 1955),
        row(source, "two", 1, "val", "BEL"),
        row(source, "three", 8, "train", "BRA"),
        row(source, "four", 3, "test", 2000),
    ]
    folder = write(tmp_path, source, rows)
    config = DocumentsConfig.model_validate({"name": name})
    data = load_training(config, folder)
    assert (data.train.texts, data.train.labels) == (["naïve".encode(), b"three"], [0, 8])
    assert data.train.groups == ("1955", "BRA")
    assert (data.validation.texts, data.validation.labels) == ([b"two"], [1])
    assert data.labels == source.labels
    test = load_test(config, folder, source.labels)
    assert (test.texts, test.labels) == ([b"four"], [3])
    with pytest.raises(UserError, match=f"{folder} has the labels .*; the model knows a, b"):
        load_test(config, folder, ["a", "b"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "validation"}, "split must be one of train, val, test, not 'validation'"),
        ({"text": ""}, "text must be a non-empty string, not str"),
        ({"text": 7}, "text must be a non-empty string, not int"),
        ({"label": 9}, r"label must be in 0\.\.8, not 9"),
        ({"label": True}, r"label must be in 0\.\.8, not True"),
        ({"term": None}, "term must not be missing"),
    ],
)
def test_error_about_a_bad_row_names_file_and_line(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    good = row(SCOTUS, "fine", 0, "train", 1955)
    write(tmp_path, SCOTUS, [good, good | changes])
    with pytest.raises(UserError, match=f"^{tmp_path / SCOTUS.file}:2: {message}$"):
        SCOTUS.read(tmp_path, "train")


def test_missing_split_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path, SCOTUS, [row(SCOTUS, "fine", 0, "train", 1955)])
    with pytest.raises(UserError, match="has no rows of split 'test'"):
        SCOTUS.read(folder, "test")


def test_only_the_arguments_forbid_commercial_use() -> None:
    assert data_terms("scotus") == (SCOTUS.terms, True)
    for name in ("un-debate", "un-debate-country"):
        assert data_terms(name) == (UN_DEBATE.terms, False)
