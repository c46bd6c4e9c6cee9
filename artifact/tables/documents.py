"""Files of one document each."""

from pathlib import Path

from artifact.errors import InputError
from artifact.tables.containers import HEAD, json_of
from artifact.tables.streams import check_text, name_of, opened


def read_document(path: Path) -> bytes:
    """Content of a file of one document, or of standard input. Raises: InputError naming the format of a container."""
    with opened(path) as raw:
        content = raw.read()
    check_text(content[:HEAD], name_of(path))
    if found := json_of(content):
        raise InputError(
            f"{name_of(path)}: expected a text, but it is {found}; write one object a line and end its name in .jsonl"
        )
    return content.removeprefix("\ufeff".encode())
