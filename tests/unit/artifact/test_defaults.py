"""The file that names the default model of each task."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from artifact.defaults import DEFAULTS, add_default, read_defaults
from artifact.errors import BadExport
from artifact.files import MAX_JSON_BYTES
from tests.support.oversized import make_sparse

TASK = "text-classification"


def put(exports: Path, name: str, content: str) -> None:
    """Write the manifest of an export."""
    folder = exports / name / "1"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(content)


def test_first_model_of_a_task_becomes_its_default(tmp_path: Path) -> None:
    put(tmp_path, "a", json.dumps({"task": TASK}))
    assert add_default(tmp_path, TASK, "a")
    assert not add_default(tmp_path, TASK, "a")
    assert not add_default(tmp_path, TASK, "b")
    put(tmp_path, "c", json.dumps({"task": "forecasting"}))
    assert add_default(tmp_path, "forecasting", "c")
    assert read_defaults(tmp_path) == {TASK: "a", "forecasting": "c"}


def test_second_model_of_a_task_does_not_become_the_default(tmp_path: Path) -> None:
    """The first export was made before the file existed."""
    put(tmp_path, "old", json.dumps({"task": TASK}))
    put(tmp_path, "broken", "{")
    put(tmp_path, "list", "[]")
    assert not add_default(tmp_path, TASK, "new")
    assert read_defaults(tmp_path) == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "Invalid JSON"),
        ("[]", "should be an object"),
        ('{"text-classification": 1}', "text-classification: Input should be a valid string"),
        (
            '{"translation": "a"}',
            "is no task; these are: text-classification, series-classification, text-matching, forecasting",
        ),
    ],
)
def test_error_names_an_invalid_file(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / DEFAULTS).write_text(content)
    with pytest.raises(BadExport) as caught:
        read_defaults(tmp_path)
    assert str(caught.value).startswith(str(tmp_path / DEFAULTS))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Path.mkdir, "it is not a regular file"),
        (os.mkfifo, "it is not a regular file"),
        (lambda path: make_sparse(path, 20 * 2**30), f"it has more than {MAX_JSON_BYTES} bytes"),
    ],
)
def test_error_names_what_cannot_be_read(tmp_path: Path, make: Callable[[Path], object], words: str) -> None:
    make(tmp_path / DEFAULTS)
    with pytest.raises(BadExport, match=f"cannot be read: {words}"):
        read_defaults(tmp_path)
