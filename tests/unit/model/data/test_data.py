import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from model.config.run import ClassificationRun, DocumentsConfig, from_dict
from model.data import imdb, synthetic
from model.data.documents import Documents, DocumentSet, load_test, load_training
from model.errors import UserError
from model.tasks.base import Batch
from model.tasks.classification import Classification
from model.tasks.rows import BATCH, in_parallel

Write = Callable[[list[object]], Path]
"""Rows -> the folder that holds them as the IMDb file."""

IMDB = DocumentsConfig("imdb", validation_fraction=0.3)
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
    other = load_training(DocumentsConfig("imdb", validation_fraction=0.3, split_seed=-1), folder)
    assert first == again
    assert first.validation.texts != other.validation.texts


def test_load_training_without_validation_documents_is_an_error(write: Write) -> None:
    config = DocumentsConfig("imdb", validation_fraction=1e-9)
    with pytest.raises(UserError, match=r"validation_fraction"):
        load_training(config, write([review(), TEST_ROW]))


def test_synthetic_splits_differ_and_follow_their_rule() -> None:
    train, test = (synthetic.read(Path("absent"), split) for split in ("train", "test"))
    assert not {text for text, _ in train} & {text for text, _ in test}
    right = sum((text.count(b"+") > text.count(b"-")) == label for text, label in train + test)
    assert right >= 0.95 * len(train + test)  # a short document may draw a tie or the rarer mark
    assert load_test(DocumentsConfig("synthetic"), Path("absent"), synthetic.LABELS).texts == [text for text, _ in test]


@pytest.fixture
def forty() -> Documents:
    """Forty documents of 1 to 40 arbitrary bytes."""
    return Documents([random.Random(i).randbytes(i + 1) for i in range(40)], [i % 3 for i in range(40)])


def classification(
    documents: Documents, batch_size: int = 8, crop: str = "random", seed: int = 0, examples: int = 0, seq_len: int = 16
) -> Classification:
    """The task of a recipe that reads `seq_len` bytes, with these documents for training."""
    training = {"epochs": 1, "batch_size": batch_size, "learning_rate": 1e-3, "examples_per_epoch": examples}
    model = {"kind": "bytes", "encoder": {"seq_len": seq_len, "dim": 8, "num_heads": 1, "num_segments": 1}}
    data = {"name": "synthetic", "crop": crop}
    task = "text-classification"
    config = from_dict({"name": "tiny", "task": task, "seed": seed, "training": training, "data": data, "model": model})
    assert isinstance(config, ClassificationRun)
    made = Classification(config)
    made.data = DocumentSet(documents, documents, ["a", "b", "c"])
    return made


def epoch(documents: Documents, crop: str = "random", seed: tuple[int, int] = (0, 0)) -> list[Batch]:
    return list(classification(documents, crop=crop, seed=seed[0]).batches(seed[1]))


def same(left: list[Batch], right: list[Batch]) -> bool:
    return all(torch.equal(a, b) for x, y in zip(left, right, strict=True) for a, b in zip(x, y, strict=True))


def test_batches_are_the_same_for_the_same_seed_and_others_for_another_epoch(forty: Documents) -> None:
    assert same(epoch(forty, seed=(5, 1)), epoch(forty, seed=(5, 1)))
    assert not same(epoch(forty, seed=(5, 1)), epoch(forty, seed=(5, 2)))
    assert not same(epoch(forty, seed=(5, 1)), epoch(forty, seed=(6, 1)))


def test_batches_hold_every_document_once_with_its_label_and_drop_the_rest(forty: Documents) -> None:
    short = Documents(forty.texts[:16], forty.labels[:16])
    rows = [
        (bytes(document[:length].tolist()), int(label))
        for batch in epoch(short)
        for document, length, label, _ in zip(*batch, strict=True)
    ]
    assert sorted(rows) == sorted(zip(short.texts, short.labels, strict=True))
    assert [len(batch[0]) for batch in classification(forty, batch_size=11).batches(0)] == [11, 11, 11]


@pytest.mark.parametrize("crop", ["head", "random"])
def test_batches_crop_within_the_document_and_pad_with_zeros(forty: Documents, crop: str) -> None:
    starts = set()
    for documents, lengths, _, _ in epoch(forty, crop) + epoch(forty, crop, (0, 1)):
        assert documents.dtype == torch.uint8
        assert documents.shape == (8, 16)
        for document, length in zip(documents, lengths.tolist(), strict=True):
            row = bytes(document[:length].tolist())
            whole = [text for text in forty.texts if row in text and min(len(text), 16) == length]
            assert whole
            assert not document[length:].any()
            starts.add(any(text.startswith(row) for text in whole))
    assert starts == ({True} if crop == "head" else {True, False})


def test_batches_random_crops_reach_both_ends() -> None:
    task = classification(Documents([bytes(range(20))], [0]), batch_size=1)
    starts = {int(next(task.batches(i))[0][0, 0]) for i in range(100)}
    assert starts == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("examples", "batches"), [(0, 5), (8, 1), (23, 2), (24, 3), (1000, 5)])
def test_batches_of_a_shorter_epoch_are_the_first_of_a_whole_one(forty: Documents, examples: int, batches: int) -> None:
    task = classification(forty, examples=examples)
    assert task.examples_per_epoch == 8 * batches
    assert same(list(task.batches(2)), epoch(forty, seed=(0, 2))[:batches])


def test_documents_fewer_than_a_batch_are_an_error(forty: Documents) -> None:
    with pytest.raises(UserError, match=r"\d+ training documents are fewer than one batch, 5000"):
        classification(forty, batch_size=5000).load(Path("absent"))


def test_batches_are_padded_to_the_bucket_of_their_longest_document() -> None:
    """Documents of about one length go together, so that most batches are short."""
    sizes = [random.Random(i).choice([20, 250, 256, 257, 600, 2000]) for i in range(400)]
    texts = [random.Random(i).randbytes(size) for i, size in enumerate(sizes)]
    task = classification(Documents(texts, [i % 3 for i in range(400)]), seq_len=1024)
    seen = list(task.batches(0))
    buckets = (256, 512, 1024)
    assert task.config.model.buckets == buckets
    for documents, lengths, labels, folds in seen:
        assert documents.shape[1] == next(bucket for bucket in buckets if bucket >= int(lengths.max()))
        for document, length, label, fold in zip(
            documents, lengths.tolist(), labels.tolist(), folds.tolist(), strict=True
        ):
            row = bytes(document[:length].tolist())
            (i,) = (i for i, text in enumerate(texts) if row in text)
            assert (label, fold, length) == (i % 3, i % 5, min(1024, sizes[i]))
    widths = [documents.shape[1] for documents, *_ in seen]
    assert len(widths) == 50
    assert widths != sorted(widths)
    # Half of the documents have up to 256 bytes, and only one batch of a group can hold both kinds.
    assert sum(width == 256 for width in widths) >= 50 * sum(size <= 256 for size in sizes) / 400 - 3


def test_rows_in_parallel_keep_their_order_and_go_in_the_shortest_bucket() -> None:
    rows = [bytes([i % 256]) * (1 + 37 * i % 300) for i in range(100)]
    shapes = []

    def run(padded: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        documents, lengths = padded
        shapes.append(documents.shape)
        assert (documents[np.arange(len(documents)), lengths - 1] == documents[:, 0]).all()
        return np.stack([documents[:, 0], lengths], axis=1)

    outputs = in_parallel(run, rows, (64, 128, 300))
    assert outputs.tolist() == [[row[0], len(row)] for row in rows]
    assert all(count <= BATCH for count, _ in shapes)
    expected = [next(b for b in (64, 128, 300) if b >= len(row)) for row in rows]
    assert {b: sum(count for count, width in shapes if width == b) for b in (64, 128, 300)} == {
        b: expected.count(b) for b in (64, 128, 300)
    }
    assert in_parallel(run, rows[:1], (300,)).tolist() == [[0, 1]]
