"""Compressed JSON Lines, the file format of the public text data sets. Used by their readers."""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model.errors import UserError


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield "file:line" and the object of each line of an `.xz` file. Raises: UserError naming file and line."""
    try:
        with lzma.open(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                place = f"{path}:{number}"
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise UserError(f"{place}: not JSON: {error}") from None
                if not isinstance(row, dict):
                    raise UserError(f"{place}: expected an object, not {type(row).__name__}")
                yield place, row
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist; --data-dir or LONGDOC_DATA must name the folder of the data sets"
        ) from None
    except (lzma.LZMAError, EOFError, OSError) as error:
        raise UserError(f"{path}: {error}") from None


def encode(text: str, place: str) -> bytes:
    """Encode a text as UTF-8. Raises: UserError naming the place."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: text is not valid Unicode: {error.reason}") from None
