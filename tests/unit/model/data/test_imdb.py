"""Reading IMDb reviews."""

import lzma
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from model.data import imdb
from model.errors import UserError
from tests.support.reviews import review, write_reviews

Write = Callable[[list[object]], Path]
"""Writes rows as an IMDb file and returns the folder."""


TEST_ROW = {"split": "test", "text": "seen by nobody", "label": 1}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return partial(write_reviews, tmp_path)


def test_read_returns_utf8_bytes_and_labels_of_one_split(write: Write) -> None:
    folder = write([review("naïve", 0), review("fine"), review("other", 0, "test")])
    assert imdb.read(folder, "train") == [("naïve".encode(), 0), (b"fine", 1)]
    assert imdb.read(folder, "test") == [(b"other", 0)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"split": "train", "te', "not JSON"),
        ("", "not JSON"),
        ([1, 2], "expected an object, not list"),
        ({"text": "fine", "label": 1}, "split must be 'train' or 'test', not None"),
        (review(split="dev"), "split must be 'train' or 'test', not 'dev'"),
        ({"split": "train", "label": 1}, "text must be a non-empty string, not NoneType"),
        (review(text=""), "text must be a non-empty string"),
        (review(text=7), "text must be a non-empty string, not int"),
        (review(text="half a pair \ud800"), "text is not valid Unicode"),
        ({"split": "train", "text": "fine"}, "label must be 0 or 1, not None"),
        (review(label=2), "label must be 0 or 1, not 2"),
        (review(label=-1), "label must be 0 or 1, not -1"),
        (review(label=True), "label must be 0 or 1, not True"),
        (review(label="1"), "label must be 0 or 1, not '1'"),
    ],
)
def test_error_about_a_bad_row_names_file_and_line(write: Write, row: object, message: str) -> None:
    folder = write([review(), review("second"), row, TEST_ROW])
    with pytest.raises(UserError) as caught:
        imdb.read(folder, "train")
    assert str(caught.value).startswith(f"{folder / imdb.FILE}:3: {message}")


def test_bad_row_of_another_split_is_an_error_too(write: Write) -> None:
    folder = write([review(), review(label=5, split="test")])
    with pytest.raises(UserError, match=r"xz:2: label"):
        imdb.read(folder, "train")


def test_error_about_a_row_that_is_not_utf8_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / imdb.FILE).write_bytes(lzma.compress(b'{"split": "train", "text": "\xff", "label": 1}\n'))
    with pytest.raises(UserError, match=r"xz:1: not JSON"):
        imdb.read(tmp_path, "train")


def test_file_without_rows_of_the_split_is_an_error(write: Write) -> None:
    with pytest.raises(UserError, match=r"xz has no rows of split 'test'"):
        imdb.read(write([review()]), "test")
    with pytest.raises(UserError, match=r"xz has no rows of split 'train'"):
        imdb.read(write([]), "train")


def test_groups_are_those_of_the_rows_that_are_read(write: Write) -> None:
    rows = [review("a", 0, group=3), review("b", 1, "test", group=2), review("c", 1, group=99), review("d", 0, group=3)]
    folder = write([*rows, {**review("e"), "id": "train/pos/12499_10"}])
    assert imdb.read_groups(folder, "train") == ["neg/3", "pos/99", "neg/3", "pos/99"]
    assert imdb.read_groups(folder, "test") == ["pos/2"]


@pytest.mark.parametrize("found", [None, 7, "train/unsup/7_0", "pos/7_8", "train/pos/7", "train/pos/x_7"])
def test_error_about_an_id_without_a_file_number_names_file_and_line(write: Write, found: object) -> None:
    folder = write([review(), {**review(), "id": found}])
    with pytest.raises(UserError, match=r"xz:2: id must have the form 'train/pos/127_7', not ") as caught:
        imdb.read_groups(folder, "train")
    assert str(caught.value).endswith(f"not {found!r}")


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda _: b"", lambda _: b"plain text\n" * 9])
def test_error_names_a_damaged_file(write: Write, damage: Callable[[bytes], bytes]) -> None:
    path = write([review(f"number {i}") for i in range(2000)]) / imdb.FILE
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=rf"^{path}: \S"):
        imdb.read(path.parent, "train")


def test_error_about_a_missing_file_names_its_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"{tmp_path}/\S+ does not exist; --data-dir"):
        imdb.read(tmp_path, "train")
