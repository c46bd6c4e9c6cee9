"""Names formats that are no text by their first bytes."""

import json
import re

HEAD = 4096
"""Number of first bytes that tell the format of a file."""
FORMATS: tuple[tuple[str, bytes], ...] = (
    ("a Parquet file", rb"PAR1"),
    ("an Arrow file", rb"ARROW1|FEA1\0|\xff\xff\xff\xff[\0-\xff]{3}\0[\0-\xff]{3}\0"),
    ("an ORC file", rb"ORC[\0-\x08\n-\x1f][\0-\x08\x0b-\x1f]"),
    ("an Avro file", rb"Obj\x01"),
    ("an OpenDocument file", rb"PK\x03\x04[\0-\xff]{26}mimetypeapplication/vnd\.oasis"),
    ("an EPUB book", rb"PK\x03\x04[\0-\xff]{26}mimetypeapplication/epub"),
    (
        "an Office document, such as .xlsx or .docx",
        rb"PK\x03\x04[\0-\xff]{26}(?:\[Content_Types\]|_rels/|xl/|word/|ppt/|docProps/)",
    ),
    ("an Office document, such as .xls or .doc", rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    ("an archive of NumPy arrays", rb"PK\x03\x04[\0-\xff]{26}[^\0/]{1,200}\.npy"),
    ("a ZIP archive", rb"PK(?:\x03\x04|\x05\x06|\x07\x08)"),
    ("a PDF document", rb"(?:\xef\xbb\xbf)?\s{0,8}%PDF-[12]\."),
    ("a PostScript document", rb"%!PS-"),
    ("an RTF document", rb"\{\\rtf"),
    ("compressed with gzip", rb"\x1f\x8b"),
    ("compressed with xz", rb"\xfd7zXZ\0"),
    ("compressed with bzip2", rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    ("compressed with Zstandard", rb"\x28\xb5\x2f\xfd"),
    ("compressed with LZ4", rb"\x04\x22\x4d\x18"),
    ("compressed with compress", rb"\x1f\x9d"),
    ("compressed with lzip", rb"LZIP[\0\x01]"),
    ("compressed with Snappy", rb"\xff\x06\0\0sNaPpY"),
    ("a tar archive", rb"[\0-\xff]{257}ustar(?:  )?\0"),
    ("a 7-Zip archive", rb"7z\xbc\xaf\x27\x1c"),
    ("a RAR archive", rb"Rar!\x1a\x07"),
    ("an ar archive", rb"!<arch>\n"),
    ("an SQLite database", rb"SQLite format 3\0"),
    ("a DuckDB database", rb"[\0-\xff]{8}DUCK[\0-\xff]\0{7}"),
    ("an Access database", rb"\0\x01\0\0Standard (?:Jet|ACE) DB"),
    ("a pickle", rb"\x80[\x02-\x05]"),
    ("an HDF5 file", rb"\x89HDF\r\n\x1a\n"),
    ("a NetCDF file", rb"CDF[\x01\x02\x05]"),
    ("a NumPy array", rb"\x93NUMPY"),
    ("a MATLAB file", rb"MATLAB 5\.0 MAT-file"),
    ("an R file", rb"RDX[23]\n|RD[AB][23]\n|X\n\0"),
    ("a Stata file", rb"<stata_dta>|[\x71-\x73][\x01\x02]\x01\0"),
    ("an SPSS file", rb"\$FL[23]@"),
    ("a SAS file", rb"\0{12}\xc2\xea\x81\x60"),
    ("a safetensors file", rb"[\0-\xff]{3}\0{5}\{"),
    ("a GGUF file", rb"GGUF[\x01-\x08]\0\0\0"),
    ("a PNG image", rb"\x89PNG\r\n\x1a\n"),
    ("a JPEG image", rb"\xff\xd8\xff"),
    ("a GIF image", rb"GIF8[79]a"),
    ("a TIFF image", rb"II\*\0|MM\0\*"),
    ("a BMP image", rb"BM[\0-\xff]{4}\0{4}"),
    ("a WebP image", rb"RIFF[\0-\xff]{4}WEBP"),
    ("an icon", rb"\0\0\x01\0[\x01-\x20]\0"),
    ("a Photoshop image", rb"8BPS\0\x01"),
    (
        "an audio or video file",
        rb"RIFF[\0-\xff]{4}(?:WAVE|AVI )|OggS\0|fLaC\0|ID3[\x02-\x04]|\xff[\xfb\xf3\xf2]|\x1aE\xdf\xa3|MThd\0|FLV\x01",
    ),
    ("an MP4 or HEIF file", rb"\0\0[\0-\xff]{2}ftyp"),
    ("a program", rb"\x7fELF|MZ[\0-\xff]{0,60}\0|\xca\xfe\xba\xbe|[\xcf\xce]\xfa\xed\xfe|\0asm\x01"),
)
"""Name of a format, and the pattern of its first bytes. The first pattern that matches counts."""
_PATTERN = re.compile(b"|".join(b"(%b)" % pattern for _, pattern in FORMATS))


def container_of(head: bytes) -> str:
    """Name of the format of a file that begins with these bytes, such as `a PDF document`; empty for text."""
    found = _PATTERN.match(head)
    return "" if found is None or found.lastindex is None else FORMATS[found.lastindex - 1][0]


def json_of(document: bytes) -> str:
    """`a JSON array`, `a JSON object` or `JSON Lines` if a document is one; otherwise empty."""
    text = document.removeprefix(b"\xef\xbb\xbf").strip()
    if text[:1] not in (b"[", b"{"):
        return ""
    first, _, rest = text.partition(b"\n")
    if isinstance(_parsed(text), list | dict):
        return "a JSON array" if text[:1] == b"[" else "a JSON object"
    return "JSON Lines" if rest and isinstance(_parsed(first), dict) else ""


def _parsed(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
