from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from model.config.data import DocumentsConfig
from model.data.documents import load_training
from model.errors import UserError
from tests.support.reviews import review, write_reviews

Write = Callable[[list[object]], Path]
"""Writes rows as an IMDb file and returns the folder."""

IMDB = DocumentsConfig(name="imdb", validation_fraction=0.3)
TEST_ROW = {"split": "test", "text": "seen by nobody", "label": 1}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return partial(write_reviews, tmp_path)


def test_load_training_drops_every_copy_of_a_test_text(write: Write) -> None:
    leaked = [review(f"leaked {i}", i % 2) for i in range(20)]
    kept = [review(f"kept {i}", i % 2) for i in range(40)]
    in_test = [review(row["text"], 1, "test") for row in leaked]
    data = load_training(IMDB, write([*leaked, *kept, *leaked, *in_test]))
    assert sorted(data.train.texts + data.validation.texts) == sorted(str(row["text"]).encode() for row in kept)


def test_load_training_splits_by_text_so_that_copies_stay_together(write: Write) -> None:
    rows = [review(f"text {i % 100}", i // 100 % 2) for i in range(300)]  # copies have different labels
    data = load_training(IMDB, write([*rows, TEST_ROW]))
    train, validation = set(data.train.texts), set(data.validation.texts)
    assert len(data.train) + len(data.validation) == 300
    assert len(train) + len(validation) == 100
    assert not train & validation
    assert 15 <= len(validation) <= 45  # 30 expected, standard deviation 4.6


def test_load_training_keeps_labels_with_their_texts(write: Write) -> None:
    rows = [review(f"text {i}", i % 2) for i in range(50)]
    data = load_training(IMDB, write([*rows, TEST_ROW]))
    for part in (data.train, data.validation):
        assert [int(text.split()[1]) % 2 for text in part.texts] == part.labels
    assert data.labels == ["negative", "positive"]


def test_load_training_split_depends_only_on_its_seed(write: Write) -> None:
    folder = write([*(review(f"text {i}") for i in range(60)), TEST_ROW])
    first, again = load_training(IMDB, folder), load_training(IMDB, folder)
    other = load_training(DocumentsConfig(name="imdb", validation_fraction=0.3, split_seed=-1), folder)
    assert first == again
    assert first.validation.texts != other.validation.texts


def test_load_training_without_validation_documents_is_an_error(write: Write) -> None:
    config = DocumentsConfig(name="imdb", validation_fraction=1e-9)
    with pytest.raises(UserError, match=r"validation_fraction"):
        load_training(config, write([review(), TEST_ROW]))
