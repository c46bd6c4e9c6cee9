"""Encodings of text are told apart, and text becomes UTF-8."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact.encodings import CODECS, HEAD, RAW, as_text, codec_of, decode, is_utf8, wide_encoding
from artifact.errors import InvalidInput

TEXTS = [
    "An awful, boring film. A good one, too.",
    "naïve “café”, 5 €",
    "Привет, мир! Это плохой фильм.",
    "Ελληνικά κείμενα",
    "שלום עולם, זה סרט",
    "مرحبا بالعالم",
    "line\r\nline\ttab\n",
    "hi",
    "long " * 3000,
]
WIDE = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("encoding", WIDE)
def test_utf_16_and_32_are_known_by_their_mark_or_their_zero_bytes(text: str, encoding: str) -> None:
    mark = "" if encoding.count("-") == 1 else "\ufeff"
    for document in (text.encode(encoding), (mark + text).encode(encoding)):
        assert wide_encoding(document[:HEAD]).startswith(encoding)
        assert decode(document) == text.encode()
        with pytest.raises(InvalidInput, match=encoding[:6].upper()):
            as_text(document)


@pytest.mark.parametrize("text", [*TEXTS, "漢字", "日本語のテキスト"])
def test_mark_is_no_text(text: str) -> None:
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        assert decode(text.encode(encoding)) == text.encode()
        assert decode(text.encode(encoding), "cp1252") == text.encode(), "a mark counts more than a name"
    assert as_text(text.encode("utf-8-sig")) == as_text(text.encode()) == text.encode()


@pytest.mark.parametrize(
    "document",
    [
        *(text.encode() for text in TEXTS), b"", b"\0", b"\0" * 50, b"\xff\xfe\x80", b"\xff\x00", bytes(range(256)),
        bytes(range(256)) * 99, b"a\tb\nc\td\n" * 99, b"1\n0\n1\n0\n", b"Ein Film, with NUL \0 in it.",
        b"\xff\xd8\xff\xe0" + bytes(range(256)), "漢字".encode("utf-16-le"), "Größe, naïve".encode("latin-1"),
    ],
)  # fmt: skip
def test_other_documents_stay_as_they_are(document: bytes) -> None:
    assert (wide_encoding(document), decode(document)) in {("", document), ("utf-16-le", document)}
    assert as_text(document) == document


def test_cut_text_is_read_but_for_its_last_character() -> None:
    for encoding, cut in (("utf-16", 1), ("utf-32", 2)):
        assert decode("Awful".encode(encoding)[:-cut]) == "Awfu\ufffd".encode()
    assert decode("An awful 😀".encode("utf-16")[:-2]) == "An awful \ufffd".encode()


@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE])
def test_mark_alone_is_an_empty_text(mark: bytes) -> None:
    assert decode(mark) == b""


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        *((name, "latin_1") for name in ("latin-1", "Latin1", "ISO-8859-1", "iso8859_1", "l1")),
        *((name, "cp1252") for name in ("cp1252", "windows-1252", "WINDOWS_1252")),
        *((name, "utf_8") for name in ("utf-8", "UTF8", "utf_8")),
        *((name, "utf_16") for name in ("utf-16", "UTF16")),
        ("us-ascii", "ascii"),
        ("koi8-r", "koi8_r"),
        ("koi8-u", "koi8_u"),
        ("shift_jis", "shift_jis"),
        ("gb18030", "gb18030"),
        ("macintosh", "mac_roman"),
        ("ibm866", "cp866"),
        *((name, "") for name in ("", "x", "hex", "base64", "rot13", "zlib", "os.path", "utf-8\0", "é", "bytes")),
    ],
)
def test_encodings_have_many_names(name: str, codec: str) -> None:
    assert codec_of(name) == (codec if name != "utf-8\0" else "utf_8")


def test_every_codec_decodes_text() -> None:
    for codec in set(CODECS.values()):
        assert isinstance("text".encode(codec).decode(codec), str)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("latin-1", "Größe, naïve"), ("cp1252", "“Größe”, 5 €"), ("cp1251", "Привет"), ("koi8-r", "Привет"),
        ("mac-cyrillic", "Привет"), ("shift_jis", "日本語"), ("gbk", "中文"), ("utf-16-be", "Привет"),
    ],
)  # fmt: skip
def test_text_in_a_named_encoding_becomes_utf_8(name: str, text: str) -> None:
    document = text.encode(name)
    assert decode(document, codec_of(name)) == text.encode()
    assert name == "utf-16-be" or not is_utf8(document)
    assert is_utf8(text.encode())


@pytest.mark.parametrize(
    ("document", "encoding", "message"),
    [
        (b"a\x81", "cp1252", "byte 2"),
        (b"ab\xff", "utf_8", "byte 3"),
        (b"plain text", "utf_16", "ASCII"),
        (b"plain text", "utf_16_le", "ASCII"),
        (b"\xd8\x00a", "utf_16_be", "byte "),
    ],
)
def test_text_in_another_encoding_than_its_name_is_an_error(document: bytes, encoding: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^is not {encoding} .*{message}"):
        decode(document, encoding)


def test_text_without_a_mark_has_the_byte_order_of_its_zero_bytes() -> None:
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        assert decode("An awful film".encode(encoding), encoding[:6].replace("-", "_")) == b"An awful film"


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_stay(document: bytes) -> None:
    assert decode(document, RAW) == document
    text = decode(document)
    assert is_utf8(text) or text in (document, document[3:])
