"""20 Newsgroups: reading posts and reducing them to their body."""

import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from model.config.data import DocumentsConfig
from model.data import newsgroups
from model.data.documents import load_test, load_training
from model.errors import UserError

Write = Callable[[list[object]], Path]
HEAD = "From: a@b.c\nSubject: Re: x\n\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_rows(rows: list[object]) -> Path:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / newsgroups.FILE).write_bytes(lzma.compress("".join(line + "\n" for line in lines).encode()))
        return tmp_path

    return write_rows


def post(text: object = HEAD + "Body.", label: object = 3, split: object = "train") -> dict[str, object]:
    return {"split": split, "text": text, "label": label}


def test_read_returns_utf8_bytes_and_labels_of_one_split(write: Write) -> None:
    folder = write([post("naïve", 0), post("other", 19, "test"), post("fine")])
    assert newsgroups.read(folder, "train") == [("naïve".encode(), 0), (b"fine", 3)]
    assert newsgroups.read(folder, "test") == [(b"other", 19)]
    assert len(newsgroups.LABELS) == len(set(newsgroups.LABELS)) == 20
    assert sorted(newsgroups.LABELS) == newsgroups.LABELS


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"split": "train", "te', "not JSON"),
        ([1, 2], "expected an object, not list"),
        (post(split="dev"), "split must be train or test"),
        (post(text=""), "split must be train or test, and text must not be empty"),
        (post(text=7), "split must be train or test, and text must not be empty"),
        ({"split": "train", "text": "fine"}, "label must be in 0..19, not None"),
        (post(label=20), "label must be in 0..19, not 20"),
        (post(label=-1), "label must be in 0..19, not -1"),
        (post(label=True), "label must be in 0..19, not True"),
        (post(label="3"), "label must be in 0..19, not '3'"),
    ],
)
def test_error_about_a_bad_row_names_file_and_line(write: Write, row: object, message: str) -> None:
    folder = write([post(), row, post(split="test")])
    for split in ("train", "test"):
        with pytest.raises(UserError) as caught:
            newsgroups.read(folder, split)
        assert str(caught.value).startswith(f"{folder / newsgroups.FILE}:2: {message}")


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda _: b"", lambda _: b"plain text\n" * 9])
def test_error_names_a_damaged_file(write: Write, damage: Callable[[bytes], bytes]) -> None:
    path = write([post(f"number {i}") for i in range(2000)]) / newsgroups.FILE
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=rf"^{path}: \S"):
        newsgroups.read(path.parent, "train")


def test_missing_file_or_split_is_an_error(write: Write, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^{tmp_path}/\S+ does not exist; --data-dir or LONGDOC_DATA"):
        newsgroups.read(tmp_path, "train")
    with pytest.raises(UserError, match=r"xz has no rows of split 'test'"):
        newsgroups.read(write([post()]), "test")


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (HEAD + "One.\nTwo.", "One.\nTwo."),
        (HEAD + "One.\n\nTwo.\n\nName", "One.\n\nTwo."),
        (HEAD + "One.\n--\nName\nPlace\n\n", "One."),
        (HEAD + "One.\n\nTwo.\n ---- \nName", "One.\n\nTwo."),
        (HEAD + "\n\nOne.\n\n", "One."),
        (HEAD + "a@b.c writes:\n> Quoted.\n| Too.\n>\nOne.\nTwo.", "One.\nTwo."),
        (HEAD + "In article <1@x> a@b.c says:\nOne > two.", "One > two."),
        (HEAD + "Quoted from x\nShe said: no.\nHe wrote: yes.\nIt writes in x\nOne.", "One."),
        (HEAD + "Not In article, nor - this -\nOne.", "Not In article, nor - this -\nOne."),
        (HEAD + "> All\n> quoted.", ""),
        (HEAD, ""),
        ("Headers: alone\n", ""),
        (HEAD + "--\nName", "--\nName"),
    ],
)
def test_strip_keeps_the_body(text: str, body: str) -> None:
    assert newsgroups.strip(text) == body


def test_strip_equals_scikit_learn_on_posts_without_quotes() -> None:
    reference = pytest.importorskip("sklearn.datasets._twenty_newsgroups")
    for text in (
        "One.",
        "One.\nTwo.\n--\nMe",
        "One.\n\nTwo.\n\nMe\n\n",
        "\n\nOne.\n-\n",
        "",
        " \n--\n \nOne.\n  \nTwo",
    ):
        expected = reference.strip_newsgroup_footer(reference.strip_newsgroup_header(HEAD + text))
        assert newsgroups.strip(HEAD + text) == expected.strip()


def test_posts_that_are_empty_after_stripping_are_dropped(write: Write) -> None:
    rows = [post(f"{HEAD}Text {i}.\n\nName", i % 20) for i in range(40)]
    folder = write([*rows, post(HEAD + "> quoted"), post(HEAD + "Test.\n--\nMe", 7, "test"), post(HEAD, 7, "test")])
    config = DocumentsConfig(name="20newsgroups-stripped", validation_fraction=0.3)
    data, test = load_training(config, folder), load_test(config, folder, newsgroups.LABELS)
    texts = {f"Text {i}.".encode(): i % 20 for i in range(40)}
    kept = [
        part
        for documents in (data.train, data.validation)
        for part in zip(documents.texts, documents.labels, strict=True)
    ]
    assert dict(kept) == texts
    assert (test.texts, test.labels) == ([b"Test."], [7])
    assert data.labels == newsgroups.LABELS
    whole = load_test(DocumentsConfig(name="20newsgroups"), folder, newsgroups.LABELS)
    assert whole.texts == [(HEAD + "Test.\n--\nMe").encode(), HEAD.encode()]
    assert all(re.match(rb"From: ", text) for text in whole.texts)
