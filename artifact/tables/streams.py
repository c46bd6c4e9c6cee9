"""A file as a stream of UTF-8: decompressed by its name, without a byte order mark."""

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from artifact.errors import InputError
from artifact.tables.containers import HEAD, container_of

TABLES, LINES = (".csv", ".tsv"), (".jsonl", ".ndjson")
"""Extensions of tables of text, which may be compressed."""
STDIN = Path("-")
"""Path that stands for standard input."""
PACKED: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""Extension of a compressed file -> function that opens it."""
LONGEST_ROW = 64 * 2**20
"""Maximum bytes of a line, and characters of a cell."""
BUFFER = 2**20
REMEDIES = {
    "a Parquet file": "end its name in .parquet",
    "compressed with gzip": "unpack it",
    "compressed with xz": "unpack it",
    "compressed with bzip2": "unpack it",
    "compressed with Zstandard": "unpack it",
    "an Office document, such as .xlsx or .docx": "save it as CSV or as text",
    "an Office document, such as .xls or .doc": "save it as CSV or as text",
    "an OpenDocument file": "save it as CSV or as text",
}
"""Name of a container -> what makes it readable."""


def name_of(path: Path) -> str:
    """Name of a file in the location of a row."""
    return "stdin" if path == STDIN else str(path)


def kind_of(name: str) -> str:
    """Extension of a file name in lower case; of a compressed table of text, that of the table."""
    path = Path(name)
    end, inner = path.suffix.lower(), Path(path.stem).suffix.lower()
    return inner if end in PACKED and inner in (*TABLES, *LINES) else end


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file or standard input as it is. Raises: InputError, also for errors of reading inside the context."""
    with readable(name_of(path)), ExitStack() as stack:
        yield sys.stdin.buffer if path == STDIN else stack.enter_context(path.open("rb"))


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn errors of reading a file into InputError with its name."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{name} does not exist") from None
    except IsADirectoryError:
        raise InputError(f"{name} is a folder; give its files") from None
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{name}: {error}") from None


def text_of(raw: Any, name: str) -> io.BufferedReader:
    """The text of a file that may be compressed, in UTF-8. Raises: InputError if it is a container."""
    source = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw, BUFFER)
    unpack = PACKED.get(Path(name).suffix.lower())
    text = _Text(source if unpack is None else unpack(source))
    check_text(text.head, name)
    return io.BufferedReader(text, BUFFER)


def check_text(head: bytes, name: str) -> None:
    """Check the first bytes of a file. Raises: InputError naming the format of a container."""
    if found := container_of(head):
        raise InputError(f"{name}: expected text, but it is {found}{remedy_of(found)}")


def remedy_of(container: str) -> str:
    """What makes a container readable, after a semicolon; empty if nothing is known."""
    return f"; {REMEDIES[container]}" if container in REMEDIES else ""


class _Text(io.RawIOBase):
    """A stream of UTF-8 without its byte order mark."""

    def __init__(self, source: io.BufferedReader) -> None:
        self.head = source.read(HEAD)
        """First bytes of the source."""
        self._source = source
        self._ready = self.head.removeprefix("\ufeff".encode())

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._ready:
            self._ready = self._source.read1(len(buffer))
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size
