"""20 Newsgroups: reading posts and reducing them to their body."""

import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from model.config.data import DocumentsConfig
from model.data import newsgroups
from model.data.documents import load_documents

Write = Callable[[list[object]], Path]
HEAD = "From: a@b.c\nSubject: Re: x\n\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_rows(rows: list[object]) -> Path:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / newsgroups.POSTS.file).write_bytes(lzma.compress("".join(line + "\n" for line in lines).encode()))
        return tmp_path

    return write_rows


def post(text: object = HEAD + "Body.", label: object = 3, split: object = "train") -> dict[str, object]:
    return {"split": split, "text": text, "label": label}


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
    data = load_documents(config, folder)
    texts = {f"Text {i}.".encode(): i % 20 for i in range(40)}
    kept = [
        part
        for documents in (data.train, data.validation)
        for part in zip(documents.texts, documents.labels, strict=True)
    ]
    assert dict(kept) == texts
    assert (data.test.texts, data.test.labels) == ([b"Test."], [7])
    assert data.labels == newsgroups.POSTS.labels
    whole = load_documents(DocumentsConfig(name="20newsgroups"), folder).test
    assert whole.texts == [(HEAD + "Test.\n--\nMe").encode(), HEAD.encode()]
    assert all(re.match(rb"From: ", text) for text in whole.texts)
