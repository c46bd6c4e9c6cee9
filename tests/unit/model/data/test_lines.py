"""Compressed lines of JSON."""

import lzma
from pathlib import Path

import pytest

from model.data.lines import encode, read_lines
from model.errors import UserError


def test_each_object_comes_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.xz"
    path.write_bytes(lzma.compress('{"a": 1}\n{"b": "naïve"}'.encode()))
    assert list(read_lines(path)) == [(f"{path}:1", {"a": 1}), (f"{path}:2", {"b": "naïve"})]


def test_lines_before_a_bad_one_are_given(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.xz"
    path.write_bytes(lzma.compress(b'{"a": 1}\n[2]\n'))
    lines = read_lines(path)
    assert next(lines)[1] == {"a": 1}
    with pytest.raises(UserError, match=rf"^{path}:2: expected an object, not list$"):
        next(lines)


def test_folder_in_the_place_of_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^{tmp_path}: "):
        list(read_lines(tmp_path))


def test_text_is_encoded_or_its_place_is_named() -> None:
    assert encode("naïve", "rows:1") == b"na\xc3\xafve"
    with pytest.raises(UserError, match=r"^rows:1: text is not valid Unicode: "):
        encode("half a pair \ud800", "rows:1")
