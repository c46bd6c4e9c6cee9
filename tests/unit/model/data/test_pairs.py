"""Pairs of papers: reading, and disjoint splits."""

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.config.data import PairsConfig
from model.data.pairs import AAN_TERMS, DOCUMENTS, PAIRS, SPLITS, Pairs, data_terms, load_pairs
from model.errors import UserError

Row = dict[str, Any]


Write = Callable[[list[Row | str], list[Row | str]], Path]
"""Writes documents and pairs as AAN files and returns the folder."""


def test_disjoint_splits_share_no_cited_paper() -> None:
    pairs = load_pairs(PairsConfig(name="synthetic-pairs"), Path("absent"))
    cited = {split: set(pairs.disjoint(split)[:, 1].tolist()) for split in SPLITS}
    assert all(cited.values())
    assert not cited["train"] & cited["val"]
    assert not cited["train"] & cited["test"]
    assert not cited["val"] & cited["test"]
    for split in SPLITS:
        assert {tuple(row) for row in pairs.disjoint(split).tolist()} < {
            tuple(row) for row in pairs.table[split].tolist()
        }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_rows(documents: list[Row | str], pairs: list[Row | str]) -> Path:
        for name, rows in ((DOCUMENTS, documents), (PAIRS, pairs)):
            lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
            (tmp_path / name).write_bytes(lzma.compress("".join(line + "\n" for line in lines).encode()))
        return tmp_path

    return write_rows


def papers() -> list[Row | str]:
    return [{"id": f"P{i}", "text": f"naïve text {i}", "fold": i % 4} for i in range(8)]


def pair(split: object = "train", a: object = "P0", b: object = "P1", label: object = 1) -> Row:
    return {"split": split, "id_a": a, "id_b": b, "label": label}


def one_pair_a_split() -> list[Row | str]:
    return [pair(split) for split in SPLITS]


def test_aan_returns_documents_folds_and_pairs_of_indices(write: Write) -> None:
    rows: list[Row | str] = [pair("test", "P3", "P4", 0), pair("train", "P7", "P0"), pair("val"), pair("train")]
    pairs = load_pairs(PairsConfig(name="aan"), write(papers(), rows))
    assert pairs.texts == [f"naïve text {i}".encode() for i in range(8)]
    assert pairs.folds.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert {split: table.tolist() for split, table in pairs.table.items()} == {
        "train": [[7, 0, 1], [0, 1, 1]],
        "val": [[0, 1, 1]],
        "test": [[3, 4, 0]],
    }


def test_aan_disjoint_pairs_depend_on_the_fold_of_the_cited_paper() -> None:
    table = np.array([[8, cited, 1] for cited in range(8)])
    folds = np.array([0, 1, 2, 3, 0, 1, 2, 3, 9])
    pairs = Pairs([b"text"] * 9, dict.fromkeys(SPLITS, table), folds)
    cited = {split: pairs.disjoint(split)[:, 1].tolist() for split in SPLITS}
    assert cited == {"train": [2, 3, 6, 7], "val": [1, 5], "test": [0, 4]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1, 2], "expected an object, not list"),
        ({"text": "x", "fold": 1}, "expected id, a non-empty text and fold"),
        ({"id": 3, "text": "x", "fold": 1}, "expected id, a non-empty text"),
        ({"id": "x", "fold": 1}, "expected id, a non-empty text"),
        ({"id": "x", "text": "", "fold": 1}, "expected id, a non-empty text"),
        ({"id": "x", "text": 5, "fold": 1}, "expected id, a non-empty text"),
        ({"id": "x", "text": "x"}, "expected id, a non-empty text"),
        ({"id": "x", "text": "x", "fold": 1.0}, "expected id, a non-empty text"),
        ({"id": "x", "text": "x", "fold": True}, "expected id, a non-empty text"),
        pytest.param('{"id": "x", "te', "not JSON"),
        pytest.param(
            {"id": "x", "text": "half a pair \ud800", "fold": 1},
            "text is not valid Unicode",
        ),
        pytest.param(
            {"id": "P0", "text": "x", "fold": 1},
            "'P0' occurs twice",
        ),
    ],
)
def test_aan_error_about_a_bad_document_names_file_and_line(write: Write, row: Row, message: str) -> None:
    folder = write([*papers()[:2], row, *papers()[2:]], one_pair_a_split())
    with pytest.raises(UserError) as caught:
        load_pairs(PairsConfig(name="aan"), folder)
    assert str(caught.value).startswith(f"{folder / DOCUMENTS}:3: {message}")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("7", "expected an object, not int"),
        (pair("dev"), "expected split train, val, test and label 0 or 1"),
        (pair(None), "expected split"),
        (pair(label=2), "expected split"),
        (pair(label=None), "expected split"),
        (pair(label="1"), "expected split"),
        (pair(label=True), "expected split"),
        (pair(label=1.0), "expected split"),
        pytest.param('{"split": "train"', "not JSON"),
        pytest.param(pair(a=["P0"]), "['P0'] is not in"),
        (pair(a="P99"), "'P99' is not in aan_retrieval_docs"),
        (pair(b="P98"), "'P98' is not in aan_retrieval_docs"),
        (pair(b=None), "None is not in aan_retrieval_docs"),
    ],
)
def test_aan_error_about_a_bad_pair_names_file_and_line(write: Write, row: Row | str, message: str) -> None:
    folder = write(papers(), [*one_pair_a_split(), row, pair()])
    with pytest.raises(UserError) as caught:
        load_pairs(PairsConfig(name="aan"), folder)
    assert str(caught.value).startswith(f"{folder / PAIRS}:4: {message}")


@pytest.mark.parametrize("name", [DOCUMENTS, PAIRS])
@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda _: b"", lambda _: b"plain text\n" * 9])
def test_aan_error_names_a_damaged_file(write: Write, name: str, damage: Callable[[bytes], bytes]) -> None:
    path = write(papers(), one_pair_a_split() * 500) / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=rf"^{path}: \S"):
        load_pairs(PairsConfig(name="aan"), path.parent)


@pytest.mark.parametrize("name", [DOCUMENTS, PAIRS])
def test_aan_error_about_a_missing_file_names_its_path(write: Write, name: str) -> None:
    path = write(papers(), one_pair_a_split()) / name
    path.unlink()
    with pytest.raises(UserError, match=rf"^{path} does not exist; --data-dir"):
        load_pairs(PairsConfig(name="aan"), path.parent)


@pytest.mark.parametrize("missing", SPLITS)
def test_aan_file_without_pairs_of_a_split_is_an_error(write: Write, missing: str) -> None:
    rows: list[Row | str] = [row for row in one_pair_a_split() if isinstance(row, dict) and row["split"] != missing]
    with pytest.raises(UserError, match=f"has no rows of split '{missing}'"):
        load_pairs(PairsConfig(name="aan"), write(papers(), rows)).disjoint(missing)


def test_terms_are_those_of_the_data_set_or_what_the_recipe_says_of_own_pairs() -> None:
    assert data_terms(PairsConfig(name="own")) == ("Own data.", False)
    assert data_terms(PairsConfig(name="own", terms="CC BY 4.0.")) == ("CC BY 4.0.", False)
    assert data_terms(PairsConfig(name="aan")) == (AAN_TERMS, True)
    with pytest.raises(ValueError, match=r"terms must not be set for data\.name 'aan'; only 'own' has it"):
        PairsConfig(name="aan", terms="CC BY 4.0.")
