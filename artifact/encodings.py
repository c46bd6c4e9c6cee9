"""Encodings of text: byte order marks, UTF-16 and UTF-32 by their zero bytes, and encodings that a user names."""

import codecs
import re
from encodings.aliases import aliases

from artifact.errors import InvalidInput

UTF8 = "utf-8"
RAW = "bytes"
"""Stands for a document as it is, which models of bytes read."""
MARK = codecs.BOM_UTF8
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (MARK, UTF8),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks; that of UTF-32 before that of UTF-16, with which it begins."""
HEAD = 4096
"""Number of first bytes that tell the encoding."""
NEARLY_ALL, FEW = 0.7, 0.6
"""Share of control characters in the bytes that are zero in ASCII text, at least, and in the others, at most."""
FEWEST_BYTES = 4
"""Shorter texts are not taken for UTF-16 without a byte order mark."""
CONTROL = bytes(byte for byte in range(32) if byte not in b"\t\n\v\f\r\x1b")
"""Bytes that text hardly has, except in UTF-16 and UTF-32."""
LOST = "\ufffd"
"""Replaces what cannot be decoded."""
WIDE = ("utf_16", "utf_32")
"""Codecs whose byte order is told by the text; the names of those of one order begin with theirs."""
NO_TEXT = (
    "base64_codec",
    "bz2_codec",
    "hex_codec",
    "quopri_codec",
    "rot_13",
    "uu_codec",
    "zlib_codec",
    "mbcs",
    "tactis",
)
CODECS = {
    re.sub("[^a-z0-9]", "", name): codec
    for name, codec in (
        *((codec, codec) for codec in (*aliases.values(), "koi8_u", "cp874", "utf_8_sig")),
        *aliases.items(),
    )
    if codec not in NO_TEXT
}
"""Names without punctuation, in lower case, and the codecs of Python that they name."""


def codec_of(name: str) -> str:
    """The codec that a name such as `latin-1` or `windows-1252` stands for; empty for an unknown one."""
    return CODECS.get(re.sub("[^a-z0-9]", "", name.lower()), "")


def mark_of(head: bytes) -> tuple[bytes, str]:
    """Byte order mark at the start of a text, and its encoding; both empty if there is none."""
    return next(((mark, encoding) for mark, encoding in MARKS if head.startswith(mark)), (b"", ""))


def wide_encoding(head: bytes) -> str:
    """UTF-16 or UTF-32, by its byte order mark, or by zero bytes in nearly all second ones; empty if it is neither."""
    encoding = mark_of(head)[1]
    if encoding:
        return "" if encoding == UTF8 else encoding
    if len(head) < FEWEST_BYTES or 0 not in head:
        return ""
    shares = [_control_share(head[start:HEAD:4]) for start in range(4)]
    for encoding, zeros, others in (
        ("utf-32-le", (2, 3), (0,)),
        ("utf-32-be", (0, 1), (3,)),
        ("utf-16-le", (1, 3), (0, 2)),
        ("utf-16-be", (0, 2), (1, 3)),
    ):
        if all(shares[i] >= NEARLY_ALL for i in zeros) and all(shares[i] <= FEW for i in others):
            return encoding
    return ""


def _control_share(part: bytes) -> float:
    return 1 - len(part.translate(None, CONTROL)) / max(1, len(part))


def decode(document: bytes, encoding: str = "") -> bytes:
    """A document as UTF-8 without a byte order mark.

    Args:
        document: the text.
        encoding: codec of a document without a byte order mark, or RAW. By default, UTF-16 and UTF-32 are recognised,
            and all other documents are returned as they are.

    Raises: ValueError if the document is not in this encoding.

    """
    if encoding == RAW:
        return document
    mark, _ = mark_of(document)
    if (mark or not encoding or encoding in WIDE) and (text := _wide_text(document)) is not None:
        return text.encode()
    if mark == MARK:
        return document[len(mark) :]
    if not encoding:
        return document
    if encoding.startswith(WIDE) and document.isascii() and not _control_share(document):  # not even Chinese
        raise ValueError(f"is not {encoding} but ASCII")
    try:
        return document.decode(encoding).encode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not {encoding} at byte {error.start + 1}") from None


def as_text(document: bytes) -> bytes:
    """A document as a model of words reads it: without a byte order mark. Raises: InvalidInput for UTF-16 or UTF-32."""
    if _wide_text(document) is not None:
        name = wide_encoding(document[:HEAD])[:6].upper()
        raise InvalidInput(f"the document is {name}; send it as text, or convert it to UTF-8")
    return document.removeprefix(MARK)


def is_utf8(document: bytes) -> bool:
    """Whether a document is UTF-8."""
    try:
        document.decode()
    except UnicodeDecodeError:
        return False
    return True


def not_utf8(count: int, first: str) -> str:
    """A note about texts that are not UTF-8 and are read as they are."""
    return f"{count} texts are not UTF-8, the first is {first}; --encoding names their encoding, such as cp1252"


def _wide_text(document: bytes) -> str | None:
    """The text of a document in UTF-16 or UTF-32; None if it is in neither, or nearly nothing of it can be decoded.

    A character that is cut at the end, or half of a pair, is LOST.
    """
    encoding = wide_encoding(document[:HEAD])
    if not encoding:
        return None
    body = document[len(mark_of(document)[0]) :]
    text = body.decode(encoding, "replace")
    is_readable = not body or (text.count(LOST) <= len(text) / 100 + 1 and text.strip(LOST) != "")
    return text if is_readable else None
