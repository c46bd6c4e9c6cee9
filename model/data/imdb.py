"""IMDb large movie review data set (Maas et al., ACL 2011): `imdb_labelled.jsonl.xz`."""

import re
from pathlib import Path
from typing import Any

from model.data.lines import encode, read_lines
from model.errors import UserError

FILE = "imdb_labelled.jsonl.xz"
UNLABELLED_FILE = "imdb_unsup.jsonl.xz"
LABELS = ["negative", "positive"]
TERMS = (
    "IMDb large movie review data set (Maas et al., ACL 2011): no formal licence; published for research with a "
    "request to cite. Review texts belong to their writers."
)
FILES_PER_GROUP = 125
"""Number of consecutive files that form a group. Reviews of a film have consecutive numbers, up to 30 of a label."""
ID = re.compile(r"(?:train|test)/(neg|pos)/([0-9]+)_[0-9]+")


def read(data_dir: Path, split: str) -> list[tuple[bytes, int]]:
    """Read one split as (UTF-8 bytes, label). Raises: UserError naming file and line of a bad row."""
    path = data_dir / FILE
    rows = [row[1:] for place, raw in read_lines(path) if (row := _parse(raw, place))[0] == split]
    if not rows:
        raise UserError(f"{path} has no rows of split {split!r}")
    return rows


def read_groups(data_dir: Path, split: str) -> list[str]:
    """Group of each review of a split, in the order of `read`; few films are in two groups of a label.

    Training and test have different films, so a split by groups is closer to the test split than one by reviews.

    Raises: UserError naming file and line of a bad row.
    """
    groups = []
    for place, row in read_lines(data_dir / FILE):
        if row.get("split") == split:
            found = ID.fullmatch(str(row.get("id")))
            if found is None:
                raise UserError(f"{place}: id must have the form 'train/pos/127_7', not {row.get('id')!r}")
            groups.append(f"{found[1]}/{int(found[2]) // FILES_PER_GROUP}")
    return groups


def read_unlabelled(data_dir: Path) -> list[bytes]:
    """Read the reviews without labels as UTF-8 bytes. Raises: UserError naming file and line of a bad row."""
    texts = []
    for place, row in read_lines(data_dir / UNLABELLED_FILE):
        text = row.get("text")
        if not isinstance(text, str) or not text:
            raise UserError(f"{place}: text must be a non-empty string, not {type(text).__name__}")
        texts.append(encode(text, place))
    return texts


def _parse(row: dict[str, Any], place: str) -> tuple[str, bytes, int]:
    """Validate one row; returns (split, text, label)."""
    split, text, label = row.get("split"), row.get("text"), row.get("label")
    if split not in ("train", "test"):
        raise UserError(f"{place}: split must be 'train' or 'test', not {split!r}")
    if not isinstance(text, str) or not text:
        raise UserError(f"{place}: text must be a non-empty string, not {type(text).__name__}")
    if type(label) is not int or not 0 <= label < len(LABELS):
        raise UserError(f"{place}: label must be 0 or 1, not {label!r}")
    return split, encode(text, place), label
