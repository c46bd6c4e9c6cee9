from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from model.config.data import DocumentsConfig
from model.data.documents import load_documents
from model.errors import UserError
from tests.support.reviews import review, write_reviews

Write = Callable[[list[object]], Path]
"""Writes rows as an IMDb file and returns the folder."""

IMDB = DocumentsConfig(name="imdb", validation_fraction=0.3)
GROUPED = DocumentsConfig(name="imdb", validation_fraction=0.3, groups=True)
TEST_ROW = review("seen by nobody", 1, "test")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return partial(write_reviews, tmp_path)


@pytest.mark.parametrize("config", [IMDB, GROUPED])
def test_load_documents_drops_every_copy_of_a_test_text(write: Write, config: DocumentsConfig) -> None:
    leaked = [review(f"leaked {i}", i % 2, group=i) for i in range(20)]
    kept = [review(f"kept {i}", i % 2, group=i) for i in range(40)]
    in_test = [review(row["text"], 1, "test") for row in leaked]
    data = load_documents(config, write([*leaked, *kept, *leaked, *in_test]))
    assert sorted(data.train.texts + data.validation.texts) == sorted(str(row["text"]).encode() for row in kept)


@pytest.mark.parametrize("config", [IMDB, GROUPED])
def test_load_documents_splits_by_text_so_that_copies_stay_together(write: Write, config: DocumentsConfig) -> None:
    rows = [review(f"text {i % 100}", i // 100 % 2, group=i) for i in range(300)]  # copies have different labels
    data = load_documents(config, write([*rows, TEST_ROW]))
    train, validation = set(data.train.texts), set(data.validation.texts)
    assert len(data.train) + len(data.validation) == 300
    assert len(train) + len(validation) == 100
    assert not train & validation
    assert 15 <= len(validation) <= 45  # 30 expected, standard deviation 4.6


@pytest.mark.parametrize("config", [IMDB, GROUPED])
def test_load_documents_keeps_labels_with_their_texts(write: Write, config: DocumentsConfig) -> None:
    rows = [review(f"text {i}", i % 2, group=i) for i in range(50)]
    data = load_documents(config, write([*rows, TEST_ROW]))
    for part in (data.train, data.validation):
        assert [int(text.split()[1]) % 2 for text in part.texts] == part.labels
    assert data.labels == ["negative", "positive"]


@pytest.mark.parametrize("config", [IMDB, GROUPED])
def test_load_documents_split_depends_only_on_its_seed(write: Write, config: DocumentsConfig) -> None:
    folder = write([*(review(f"text {i}", group=i) for i in range(60)), TEST_ROW])
    first, again = load_documents(config, folder), load_documents(config, folder)
    other = load_documents(config.model_copy(update={"split_seed": -1}), folder)
    assert first == again
    assert first.validation.texts != other.validation.texts


def test_load_documents_holds_out_groups_of_each_label(write: Write) -> None:
    rows = [review(f"text {i} of group {i // 2 % 20}", i % 2, group=i // 2 % 20) for i in range(400)]
    data = load_documents(GROUPED, write([*rows, TEST_ROW]))
    for label, name in enumerate(("neg", "pos")):
        train, validation = (
            {group for group, found in zip(part.groups, part.labels, strict=True) if found == label}
            for part in (data.train, data.validation)
        )
        assert train | validation == {f"{name}/{number}" for number in range(20)}
        assert not train & validation
        assert len(validation) == 6  # 0.3 of 20
    for part in (data.train, data.validation):
        numbers = [group.partition("/")[2] for group in part.groups]
        assert [text.decode().split()[-1] for text in part.texts] == numbers


def test_load_documents_without_validation_documents_is_an_error(write: Write) -> None:
    config = DocumentsConfig(name="imdb", validation_fraction=1e-9)
    with pytest.raises(UserError, match=r"validation_fraction"):
        load_documents(config, write([review(), TEST_ROW]))
