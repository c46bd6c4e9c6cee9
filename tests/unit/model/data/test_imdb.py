"""Groups of IMDb reviews, and reviews without labels."""

import json
import lzma
from pathlib import Path

import pytest

from model.data import imdb
from model.errors import UserError
from tests.support.reviews import review, write_reviews


def test_groups_are_those_of_the_files(tmp_path: Path) -> None:
    rows = [review("a", 0, group=3), review("b", 1, "test", group=2), review("c", 1, group=99), review("d", 0, group=3)]
    folder = write_reviews(tmp_path, [*rows, {**review("e"), "id": "train/pos/12499_10"}])
    assert [row[2] for row in imdb.GROUPED.read(folder, "train")] == ["neg/3", "pos/99", "neg/3", "pos/99"]
    assert [row[2] for row in imdb.GROUPED.read(folder, "test")] == ["pos/2"]
    assert {row[2] for row in imdb.IMDB.read(folder, "train")} == {""}


@pytest.mark.parametrize("found", [None, 7, "train/unsup/7_0", "pos/7_8", "train/pos/7", "train/pos/x_7"])
def test_error_about_an_id_without_a_file_number_names_file_and_line(tmp_path: Path, found: object) -> None:
    folder = write_reviews(tmp_path, [review(), {**review(), "id": found}])
    with pytest.raises(UserError, match=r"xz:2: id must have the form"):
        imdb.GROUPED.read(folder, "train")


def test_reviews_without_labels_are_read(tmp_path: Path) -> None:
    path = tmp_path / imdb.UNLABELLED_FILE
    path.write_bytes(
        lzma.compress(b"".join(json.dumps({"text": text}).encode() + b"\n" for text in ("one", "n\u00e9e")))
    )
    assert imdb.read_unlabelled(tmp_path) == [b"one", "n\u00e9e".encode()]
    path.write_bytes(lzma.compress(b'{"text": ""}\n'))
    with pytest.raises(UserError, match=r"xz:1: text must be a non-empty string"):
        imdb.read_unlabelled(tmp_path)
