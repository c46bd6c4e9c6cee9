"""Files of one document each."""

from pathlib import Path

from artifact.encodings import RAW, decode
from artifact.errors import InputError
from artifact.tables.containers import HEAD, json_of
from artifact.tables.streams import check_text, name_of, opened


def read_document(path: Path, encoding: str = "") -> bytes:
    """Text of a file of one document, or of standard input, as `artifact.encodings.decode` returns it.

    Raises: InputError naming the format of a container, or an encoding that does not fit.
    """
    with opened(path) as raw:
        content = raw.read()
    name = name_of(path)
    if encoding != RAW:
        check_text(content[:HEAD], name)
    try:
        text = decode(content, encoding)
    except ValueError as error:
        raise InputError(f"{name} {error}") from None
    if found := json_of(text):
        raise InputError(
            f"{name}: expected a text, but it is {found}; write one object a line and end its name in .jsonl"
        )
    return text
