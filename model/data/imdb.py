"""IMDb large movie review data set (Maas et al., ACL 2011): `imdb_labelled.jsonl.xz`."""

import re
from dataclasses import replace
from pathlib import Path

from model.data.lines import TRAIN_TEST, LabelledLines, read_lines, text_of
from model.errors import UserError

UNLABELLED_FILE = "imdb_unsup.jsonl.xz"
FILES_PER_GROUP = 125
"""Number of consecutive files that form a group. Reviews of a film have consecutive numbers, up to 30 of a label."""
ID = re.compile(r"(?:train|test)/(neg|pos)/([0-9]+)_[0-9]+")


def group_of(key: object, place: str) -> str:
    """Group of the review with this id; few films are in two groups of a label.

    Training and test have different films, so a split by groups is closer to the test split than one by reviews.

    Raises: UserError naming the place.
    """
    found = ID.fullmatch(str(key))
    if found is None:
        raise UserError(f"{place}: id must have the form 'train/pos/127_7', not {key!r}")
    return f"{found[1]}/{int(found[2]) // FILES_PER_GROUP}"


IMDB = LabelledLines(
    file="imdb_labelled.jsonl.xz",
    labels=["negative", "positive"],
    terms="IMDb large movie review data set (Maas et al., ACL 2011): no formal licence; published for research with a "
    "request to cite. Review texts belong to their writers.",
    splits=TRAIN_TEST,
)
GROUPED = replace(IMDB, group_key="id", group_of=group_of)


def read_unlabelled(data_dir: Path) -> list[bytes]:
    """Read the reviews without labels as UTF-8 bytes. Raises: UserError naming file and line of a bad row."""
    return [text_of(row, place) for place, row in read_lines(data_dir / UNLABELLED_FILE)]
