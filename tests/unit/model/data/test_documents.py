import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from model.config.data import DocumentsConfig
from model.data import imdb, synthetic
from model.data.documents import load_test, load_training
from model.errors import UserError

Write = Callable[[list[object]], Path]
"""Rows -> the folder that holds them as the IMDb file."""

IMDB = DocumentsConfig(name="imdb", validation_fraction=0.3)
TEST_ROW = {"split": "test", "text": "seen by nobody", "label": 1}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_rows(rows: list[object]) -> Path:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / imdb.FILE).write_bytes(lzma.compress("".join(line + "\n" for line in lines).encode()))
        return tmp_path

    return write_rows


def review(text: object = "fine", label: object = 1, split: object = "train") -> dict[str, object]:
    return {"split": split, "text": text, "label": label}


def test_imdb_read_gives_utf8_bytes_and_labels_of_one_split(write: Write) -> None:
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
def test_imdb_bad_row_is_an_error_that_names_file_and_line(write: Write, row: object, message: str) -> None:
    folder = write([review(), review("second"), row, TEST_ROW])
    with pytest.raises(UserError) as caught:
        imdb.read(folder, "train")
    assert str(caught.value).startswith(f"{folder / imdb.FILE}:3: {message}")


def test_imdb_bad_row_of_another_split_is_not_overlooked(write: Write) -> None:
    folder = write([review(), review(label=5, split="test")])
    with pytest.raises(UserError, match=r"xz:2: label"):
        imdb.read(folder, "train")


def test_imdb_row_that_is_not_utf8_is_an_error_that_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / imdb.FILE).write_bytes(lzma.compress(b'{"split": "train", "text": "\xff", "label": 1}\n'))
    with pytest.raises(UserError, match=r"xz:1: not JSON"):
        imdb.read(tmp_path, "train")


def test_imdb_file_without_rows_of_the_split_is_an_error(write: Write) -> None:
    with pytest.raises(UserError, match=r"xz has no row of split 'test'"):
        imdb.read(write([review()]), "test")
    with pytest.raises(UserError, match=r"xz has no row of split 'train'"):
        imdb.read(write([]), "train")


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda _: b"", lambda _: b"plain text\n" * 9])
def test_imdb_damaged_file_is_an_error_that_names_it(write: Write, damage: Callable[[bytes], bytes]) -> None:
    path = write([review(f"number {i}") for i in range(2000)]) / imdb.FILE
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=rf"^{path}: \S"):
        imdb.read(path.parent, "train")


def test_imdb_file_that_does_not_exist_is_an_error_that_says_where_it_was_sought(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"{tmp_path}/\S+ does not exist; --data-dir"):
        imdb.read(tmp_path, "train")


def test_load_training_drops_every_copy_of_a_test_text(write: Write) -> None:
    leaked = [review(f"leaked {i}", i % 2) for i in range(20)]
    kept = [review(f"kept {i}", i % 2) for i in range(40)]
    in_test = [review(row["text"], 1, "test") for row in leaked]
    data = load_training(IMDB, write([*leaked, *kept, *leaked, *in_test]))
    assert sorted(data.train.texts + data.validation.texts) == sorted(str(row["text"]).encode() for row in kept)


def test_load_training_cuts_by_text_so_that_copies_stay_together(write: Write) -> None:
    rows = [review(f"text {i % 100}", i // 100 % 2) for i in range(300)]  # copies differ in their labels
    data = load_training(IMDB, write([*rows, TEST_ROW]))
    train, validation = set(data.train.texts), set(data.validation.texts)
    assert len(data.train) + len(data.validation) == 300
    assert len(train) + len(validation) == 100
    assert not train & validation
    assert 15 <= len(validation) <= 45  # 30 expected, deviation 4.6


def test_load_training_keeps_labels_with_their_texts(write: Write) -> None:
    rows = [review(f"text {i}", i % 2) for i in range(50)]
    data = load_training(IMDB, write([*rows, TEST_ROW]))
    for part in (data.train, data.validation):
        assert [int(text.split()[1]) % 2 for text in part.texts] == part.labels
    assert data.labels == ["negative", "positive"]


def test_load_training_split_depends_on_its_seed_only(write: Write) -> None:
    folder = write([*(review(f"text {i}") for i in range(60)), TEST_ROW])
    first, again = load_training(IMDB, folder), load_training(IMDB, folder)
    other = load_training(DocumentsConfig(name="imdb", validation_fraction=0.3, split_seed=-1), folder)
    assert first == again
    assert first.validation.texts != other.validation.texts


def test_load_training_without_validation_documents_is_an_error(write: Write) -> None:
    config = DocumentsConfig(name="imdb", validation_fraction=1e-9)
    with pytest.raises(UserError, match=r"validation_fraction"):
        load_training(config, write([review(), TEST_ROW]))


def test_synthetic_splits_differ_and_follow_their_rule() -> None:
    train, test = (synthetic.read(Path("absent"), split) for split in ("train", "test"))
    assert not {text for text, _ in train} & {text for text, _ in test}
    right = sum((text.count(b"+") > text.count(b"-")) == label for text, label in train + test)
    assert right >= 0.95 * len(train + test)  # a short document may draw a tie or the rarer mark
    assert load_test(DocumentsConfig(name="synthetic"), Path("absent"), synthetic.LABELS).texts == [
        text for text, _ in test
    ]
