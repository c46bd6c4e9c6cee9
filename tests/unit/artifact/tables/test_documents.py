"""Files of one document each."""

import gzip
from pathlib import Path

import pytest

from artifact.errors import InputError
from artifact.tables.documents import read_document


def test_document_is_read_as_it_is_without_its_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for content in (b"", b"\xff\x00\r\n", b"5,6\n[Verse]"):
        path.write_bytes(content)
        assert read_document(path) == content
    path.write_bytes(b"\xef\xbb\xbfAwful")
    assert read_document(path) == b"Awful"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1" + bytes(20), "a Parquet file; end its name in .parquet"),
        (b"%PDF-1.7", "a PDF document"),
        (gzip.compress(b"text", mtime=0), "compressed with gzip; unpack it"),
        (b'[{"text": "a"}]', "a JSON array; write one object a line and end its name in .jsonl"),
        (b'{"text": "a"}\n{"text": "b"}\n', "JSON Lines; write one object a line and end its name in .jsonl"),
    ],
)
def test_container_is_no_document(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_document(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
