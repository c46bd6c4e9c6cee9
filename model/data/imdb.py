"""IMDb large movie review data set (Maas et al., ACL 2011): `imdb_labelled.jsonl.xz`."""

import json
import lzma
from pathlib import Path

from model.errors import UserError

FILE = "imdb_labelled.jsonl.xz"
LABELS = ["negative", "positive"]
TERMS = (
    "IMDb large movie review data set (Maas et al., ACL 2011): no formal licence; published for research with a "
    "request to cite. Review texts belong to their writers."
)
NON_COMMERCIAL = False


def read(data_dir: Path, split: str) -> list[tuple[bytes, int]]:
    """Read one split as (UTF-8 bytes, label). Raises: UserError naming file and line of a bad row."""
    path = data_dir / FILE
    rows = []
    try:
        with lzma.open(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                row = _parse(line, f"{path}:{number}")
                if row[0] == split:
                    rows.append(row[1:])
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; --data-dir or LONGDOC_DATA says where the data lies") from None
    except (lzma.LZMAError, EOFError, OSError) as error:
        raise UserError(f"{path}: {error}") from None
    if not rows:
        raise UserError(f"{path} has no row of split {split!r}")
    return rows


def _parse(line: bytes, place: str) -> tuple[str, bytes, int]:
    """Check one line and return (split, text, label)."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UserError(f"{place}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise UserError(f"{place}: expected an object, not {type(row).__name__}")
    split, text, label = row.get("split"), row.get("text"), row.get("label")
    if split not in ("train", "test"):
        raise UserError(f"{place}: split must be 'train' or 'test', not {split!r}")
    if not isinstance(text, str) or not text:
        raise UserError(f"{place}: text must be a non-empty string, not {type(text).__name__}")
    if type(label) is not int or not 0 <= label < len(LABELS):
        raise UserError(f"{place}: label must be 0 or 1, not {label!r}")
    try:
        return split, text.encode(), label
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: text is not valid Unicode: {error.reason}") from None
