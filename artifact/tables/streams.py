"""A file as a stream of UTF-8: decompressed by its name, without a byte order mark."""

import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from artifact.encodings import RAW, UTF8, WIDE, codec_of, mark_of, wide_encoding
from artifact.errors import InputError
from artifact.tables.containers import HEAD, container_of

TABLES, LINES = (".csv", ".tsv"), (".jsonl", ".ndjson")
"""Extensions of tables of text, which may be compressed."""
TS = ".ts"
"""Extension of files of labelled recordings in the form of the UEA archive, which may be compressed."""
STDIN = Path("-")
"""Path that stands for standard input."""
PACKED: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""Extension of a compressed file -> function that opens it."""
LONGEST_ROW = 64 * 2**20
"""Maximum bytes of a line, and characters of a cell."""
BUFFER = 2**20
CONTROL = frozenset(range(32)) - frozenset(b"\t\n\r\f\x1a\x1b")
"""Control characters that text in no encoding of single bytes holds."""
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
    """Extension of a file name in lower case; of a compressed text, that of the text."""
    path = Path(name)
    end, inner = path.suffix.lower(), Path(path.stem).suffix.lower()
    return inner if end in PACKED and inner in (*TABLES, *LINES, TS) else end


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
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: it is not {error.encoding}: {error.reason}") from None
    except UnicodeError as error:  # that of UTF-16 without a byte order mark
        raise InputError(f"{name}: {error}") from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{name}: {error}") from None


class _Decoded(io.RawIOBase):
    """The bytes of a text as UTF-8."""

    def __init__(self, source: io.BufferedReader, encoding: str) -> None:
        self.head = source.read(HEAD)
        """First bytes of the source."""
        mark, marked = mark_of(self.head)
        named = "" if encoding == RAW else encoding
        wide = wide_encoding(self.head) if not named or named in WIDE else ""
        self.encoding = marked or wide or named or UTF8
        self._source = source
        self._decoder = _decoder(self.encoding)
        self._ready = self._convert(self.head[len(mark) :])

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and (chunk := self._source.read1(len(buffer))):
            self._ready = self._convert(chunk)
        if not self._ready and self._decoder is not None:
            self._ready = self._decoder.decode(b"", True).encode(errors="surrogatepass")
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _convert(self, chunk: bytes) -> bytes:
        return chunk if self._decoder is None else self._decoder.decode(chunk).encode(errors="surrogatepass")


def _decoder(encoding: str) -> codecs.IncrementalDecoder | None:
    """Decoder of a codec, which makes lone surrogates of what it cannot decode; None for UTF-8, which stays."""
    codec = codec_of(encoding)
    if codec == codec_of(UTF8):
        return None
    errors = "surrogatepass" if codec.startswith(WIDE) else "surrogateescape"
    return codecs.getincrementaldecoder(codec)(errors)


class TextStream(io.BufferedReader):
    """The text of a file as UTF-8, whatever its encoding, without a byte order mark.

    What cannot be decoded becomes bytes that are not UTF-8.
    """

    def __init__(self, source: _Decoded) -> None:
        super().__init__(source, BUFFER)
        self.encoding = source.encoding
        """Codec of the file."""

    def not_decoded(self, line: int, start: int) -> str:
        """Why a line is bad that holds something else than text in this encoding, from byte `start` on."""
        if self.encoding != UTF8:
            return f"line {line} is not {self.encoding}"
        return f"byte {start + 1} of line {line} is not UTF-8; --encoding names the encoding, such as cp1252"


def text_of(raw: Any, name: str, encoding: str = "") -> TextStream:
    """The text of a file that may be compressed. Raises: InputError if it is a container, also on reading.

    Args:
        raw: the file.
        name: its name.
        encoding: codec of a file without a byte order mark; UTF-8 by default, unless it is UTF-16 or UTF-32.

    """
    source = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw, BUFFER)
    unpack = PACKED.get(Path(name).suffix.lower())
    decoded = _Decoded(source if unpack is None else unpack(source), encoding)
    check_text(decoded.head, name)
    if decoded.encoding == UTF8 and _is_binary(decoded.head):
        raise InputError(f"{name}: expected text, but the file holds binary data")
    return TextStream(decoded)


def _is_binary(head: bytes) -> bool:
    """Whether the first bytes of a file hold control characters and are not UTF-8."""
    if CONTROL.isdisjoint(head):
        return False
    try:
        codecs.getincrementaldecoder(UTF8)().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return True
    return False


def check_text(head: bytes, name: str) -> None:
    """Check the first bytes of a file. Raises: InputError naming the format of a container."""
    if found := container_of(head):
        raise InputError(f"{name}: expected text, but it is {found}{remedy_of(found)}")


def remedy_of(container: str) -> str:
    """What makes a container readable, after a semicolon; empty if nothing is known."""
    return f"; {REMEDIES[container]}" if container in REMEDIES else ""
