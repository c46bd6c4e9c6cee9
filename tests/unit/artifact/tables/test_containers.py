"""Formats that are no text are told by their first bytes, and text is not taken for one."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import feather, ipc, orc, parquet

from artifact.tables.containers import HEAD, container_of, json_of

TABLE = pyarrow.table({"text": ["a", "b"]})


def written(write: Callable[[io.BytesIO], object]) -> bytes:
    """What a function writes to a file."""
    target = io.BytesIO()
    write(target)
    return target.getvalue()


def zipped(*names: str) -> bytes:
    def write(target: io.BytesIO) -> None:
        with zipfile.ZipFile(target, "w") as archive:
            for name in names:
                content = "application/vnd.oasis.opendocument.text" if name == "mimetype" else "x"
                archive.writestr(name, content)

    return written(write)


def tarred(target: io.BytesIO) -> None:
    with tarfile.open(fileobj=target, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))


def streamed(target: io.BytesIO) -> None:
    with ipc.new_stream(target, TABLE.schema) as stream:
        stream.write_table(TABLE)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (written(lambda target: parquet.write_table(TABLE, target)), "a Parquet file"),
        (written(lambda target: feather.write_feather(TABLE, target)), "an Arrow file"),
        (written(streamed), "an Arrow file"),
        (written(lambda target: orc.write_table(TABLE, target)), "an ORC file"),
        (zipped("[Content_Types].xml", "xl/workbook.xml"), "an Office document, such as .xlsx or .docx"),
        (zipped("xl/workbook.xml"), "an Office document, such as .xlsx or .docx"),
        (zipped("mimetype", "content.xml"), "an OpenDocument file"),
        (zipped("a.txt"), "a ZIP archive"),
        (zipped(), "a ZIP archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(20), "an Office document, such as .xls or .doc"),
        (b"%PDF-1.7\n%\xe2\xe3", "a PDF document"),
        (b"\n%PDF-1.4", "a PDF document"),
        (b"{\\rtf1\\ansi text}", "an RTF document"),
        (gzip.compress(b"text", mtime=0), "compressed with gzip"),
        (lzma.compress(b"text"), "compressed with xz"),
        (bz2.compress(b"text"), "compressed with bzip2"),
        (bz2.compress(b""), "compressed with bzip2"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "compressed with Zstandard"),
        (written(tarred), "a tar archive"),
        (b"7z\xbc\xaf\x27\x1c\x00\x04", "a 7-Zip archive"),
        (b"Rar!\x1a\x07\x01\x00", "a RAR archive"),
        (written(lambda target: np.save(target, np.zeros(3))), "a NumPy array"),
        (written(lambda target: np.savez(target, text=np.zeros(3))), "an archive of NumPy arrays"),
        *((pickle.dumps(["a"], protocol), "a pickle") for protocol in range(2, 6)),
        (b"\x89HDF\r\n\x1a\n\x00", "an HDF5 file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "a PNG image"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "a JPEG image"),
        (b"GIF89a\x01\x00", "a GIF image"),
        (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "a WebP image"),
        (b"ID3\x04\x00\x00", "an audio or video file"),
        (b"\x00\x00\x00\x20ftypisom", "an MP4 or HEIF file"),
        (b"\x7fELF\x02\x01\x01", "a program"),
        (b"MZ\x90\x00\x03\x00\x00\x00", "a program"),
    ],
)  # fmt: skip
def test_containers_are_named(content: bytes, name: str) -> None:
    assert container_of(content[:HEAD]) == name


def test_database_is_named(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("create table rows (text)")
    connection.close()
    assert container_of((tmp_path / "a.db").read_bytes()[:HEAD]) == "an SQLite database"


@pytest.mark.parametrize(
    "text",
    [
        "", "text,label\none,x\n", '{"text": "one"}\n', "the big DUCK swam away",
        "MZ is a short word, as are BM, II and ID3", "PK wrote this. A %PDF-1.7 is not meant.", "Archive!",
        " " * 257 + "ustar, a word at its place", "Grüße aus Köln", "Привет, мир", "漢字", "x" * HEAD, "nul \0 inside",
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_text_is_no_container(text: str, encoding: str) -> None:
    assert container_of(text.encode(encoding)[:HEAD]) == ""


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (json.dumps([{"text": "a"}]), "a JSON array"), ("\ufeff \n[\n 1,\n 2\n]\n", "a JSON array"),
        (json.dumps({"text": {"0": "a"}}, indent=1), "a JSON object"),
        ('{"text": "a"}\n{"text": "b"}\n', "JSON Lines"), ('{"text": "a"}\n{"text": broken', "JSON Lines"),
        ("[Verse 1]\nLa la", ""), ("[MAX 4 3 [MIN 2 3 ] 1 0 ]", ""), ("{braces} in a text", ""), ('"a string"', ""),
        ("12", ""), ("[" * 100_000, ""), ("", ""),
    ],
)  # fmt: skip
def test_json_is_named(document: str, name: str) -> None:
    assert json_of(document.encode()) == name
