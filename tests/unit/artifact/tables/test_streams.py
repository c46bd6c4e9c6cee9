"""Files as streams of UTF-8."""

import gzip
import io
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from artifact.encodings import is_utf8
from artifact.errors import InputError
from artifact.tables.containers import HEAD
from artifact.tables.streams import STDIN, kind_of, name_of, opened, text_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.csv", ".csv"), ("A.TSV.GZ", ".tsv"), ("a.b.jsonl.xz", ".jsonl"), ("a.csv.zip", ".zip"), ("a.gz", ".gz"),
        ("a.parquet.gz", ".gz"), ("a.ts.gz", ".ts"), ("a", ""),
    ],
)  # fmt: skip
def test_kind_is_the_extension_without_that_of_the_compression(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize(("end", "pack"), [("", bytes), (".gz", gzip.compress), (".XZ", lzma.compress)])
@pytest.mark.parametrize("size", [0, 3, HEAD - 1, HEAD, 3 * HEAD])
def test_text_is_unpacked_without_its_byte_order_mark(end: str, pack: Callable[[bytes], bytes], size: int) -> None:
    text = (b"\xef\xbb\xbfx\n" * HEAD)[:size]
    stream = text_of(io.BytesIO(pack(text)), f"a.csv{end}")
    assert stream.read() == text[3:]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", gzip.compress(b"text", mtime=0), "compressed with gzip; unpack it"),
        ("a.csv.gz", gzip.compress(gzip.compress(b"", mtime=0), mtime=0), "compressed with gzip"),
        ("a.csv", b"PAR1" + bytes(9), "a Parquet file; end its name in .parquet"),
        ("a.csv", b"\x89PNG\r\n\x1a\n", "a PNG image"),
        ("a.csv", b"x,y\n\x03\xff\x00\x91", "expected text, but the file holds binary data"),
    ],
)
def test_containers_are_refused_by_name(name: str, content: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        text_of(io.BytesIO(content), name)
    assert str(caught.value).startswith(f"{name}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [b"caf\xe9,1\n", "\x01é".encode() * HEAD, b"x" * (HEAD - 1) + "é".encode()])
def test_other_encodings_and_control_characters_are_no_binary_data(content: bytes) -> None:
    assert text_of(io.BytesIO(content), "a.csv").read() == content


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("a.gz", gzip.compress(b"text" * 99, mtime=0)[:-9]),
        ("a.gz", gzip.compress(b"text", mtime=0) + b"x"),
        ("a.gz", b"text"),
        ("a.gz", gzip.compress(b"text" * 99, mtime=0)[:12] + b"\xff" * 20),
        ("a.xz", lzma.compress(b"text" * 99)[:-9]),
        ("a.xz", b"text"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, damage: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(damage)
    with pytest.raises(InputError, match=rf"^{path}: (?!None)\S"), opened(path) as raw:
        text_of(raw, str(path)).read()


def test_utf_8_that_is_called_utf_16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n")
    with pytest.raises(InputError, match=rf"^{path}: UTF-16 stream does not start with BOM$"), opened(path) as raw:
        text_of(raw, str(path), "utf_16")


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "none", "does not exist"), (tmp_path, "is a folder; give its files")):
        with pytest.raises(InputError, match=f"^{path} {what}$"), opened(path):
            pass


def test_minus_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"text")))
    with opened(STDIN) as raw:
        assert raw.read() == b"text"
    assert name_of(STDIN) == "stdin"
    assert not sys.stdin.buffer.closed


GREETING = "Привет"


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    ("encoding", "named"),
    [
        *((encoding, "") for encoding in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")),
        ("utf-16-be", "utf_16"),
        ("cp1251", "cp1251"),
        ("koi8-r", "koi8_r"),
        ("utf-8", "utf_8"),
    ],
)
def test_text_in_any_encoding_becomes_utf_8(mark: str, encoding: str, named: str) -> None:
    text = f"text,label\n{GREETING}!,x\r\n" * 2000
    mark = mark if "utf" in encoding else ""
    stream = text_of(io.BytesIO((mark + text).encode(encoding)), "a", named)
    lines = list(iter(lambda: stream.readline(1000), b""))
    assert b"".join(lines).decode() == text
    assert stream.encoding.replace("-", "_").startswith(encoding.replace("-", "_")[:6])


def test_what_cannot_be_decoded_is_not_utf_8() -> None:
    for raw, named in ((b"a\n\x81\nb\n", "cp1252"), ("a\n\ud800\nb\n".encode("utf-16", "surrogatepass"), "")):
        lines = text_of(io.BytesIO(raw), "a", named).readlines()
        assert [is_utf8(line) for line in lines] == [True, False, True]


def test_text_that_ends_inside_a_character_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes("text\n".encode("utf-16")[:-1])
    with pytest.raises(InputError, match=f"^{path}: it is not utf-16"), opened(path) as raw:
        text_of(raw, str(path)).read()
