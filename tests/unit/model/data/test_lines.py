"""Compressed JSON lines."""

import lzma
from pathlib import Path

import pytest

from model.data.lines import encode, read_lines
from model.errors import UserError


def test_each_object_has_its_location(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.xz"
    path.write_bytes(lzma.compress('{"a": 1}\n{"b": "naïve"}'.encode()))
    assert list(read_lines(path)) == [(f"{path}:1", {"a": 1}), (f"{path}:2", {"b": "naïve"})]


def test_lines_before_a_bad_line_are_yielded(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.xz"
    path.write_bytes(lzma.compress(b'{"a": 1}\n[2]\n'))
    lines = read_lines(path)
    assert next(lines)[1] == {"a": 1}
    with pytest.raises(UserError, match=rf"^{path}:2: expected an object, not list$"):
        next(lines)


def test_error_names_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^{tmp_path}: "):
        list(read_lines(tmp_path))


def test_text_is_encoded_or_the_error_names_its_location() -> None:
    assert encode("naïve", "rows:1") == b"na\xc3\xafve"
    with pytest.raises(UserError, match=r"^rows:1: text is not valid Unicode: "):
        encode("half a pair \ud800", "rows:1")
