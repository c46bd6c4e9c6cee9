"""20 Newsgroups, split by date (Lang, ICML 1995; version of J. Rennie): `20newsgroups_bydate.jsonl.xz`."""

import re
from pathlib import Path
from typing import Any

from model.data.lines import encode, read_lines
from model.errors import UserError

FILE = "20newsgroups_bydate.jsonl.xz"
TERMS = (
    "20 Newsgroups (K. Lang, NewsWeeder, ICML 1995; bydate version by J. Rennie): no licence stated; posts belong to "
    "their writers."
)
LABELS = [
    *("alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
    *("comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey"),
    *("sci.crypt", "sci.electronics", "sci.med", "sci.space", "soc.religion.christian", "talk.politics.guns"),
    *("talk.politics.mideast", "talk.politics.misc", "talk.religion.misc"),
]
QUOTE = re.compile(r"(writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>)")


def read(data_dir: Path, split: str) -> list[tuple[bytes, int]]:
    """Read one split of unmodified posts as (UTF-8 bytes, label). Raises: UserError naming file and line."""
    path = data_dir / FILE
    rows = [row[1:] for place, raw in read_lines(path) if (row := _parse(raw, place))[0] == split]
    if not rows:
        raise UserError(f"{path} has no rows of split {split!r}")
    return rows


def read_stripped(data_dir: Path, split: str) -> list[tuple[bytes, int]]:
    """Read one split without headers, quotes and footers; posts that become empty are dropped."""
    stripped = ((strip(text.decode()).encode(), label) for text, label in read(data_dir, split))
    return [(text, label) for text, label in stripped if text]


def strip(post: str) -> str:
    """Remove headers, quoted lines and signature from a post.

    Headers end at the first empty line. The signature starts at the last line that is empty or only dashes, unless that
    would remove the whole post. Same rules as scikit-learn's `fetch_20newsgroups(remove=...)`, except that quoted lines
    are removed before the signature.
    """
    _, _, body = post.partition("\n\n")
    lines = [line for line in body.split("\n") if not QUOTE.search(line)]
    text = "\n".join(lines).strip()
    lines = text.split("\n")
    for number in range(len(lines) - 1, 0, -1):
        if not lines[number].strip().strip("-"):
            return "\n".join(lines[:number]).strip()
    return text


def _parse(row: dict[str, Any], place: str) -> tuple[str, bytes, int]:
    """Validate one row; returns (split, text, label)."""
    split, text, label = row.get("split"), row.get("text"), row.get("label")
    if split not in ("train", "test") or not isinstance(text, str) or not text:
        raise UserError(f"{place}: split must be train or test, and text must not be empty")
    if type(label) is not int or not 0 <= label < len(LABELS):
        raise UserError(f"{place}: label must be in 0..{len(LABELS) - 1}, not {label!r}")
    return split, encode(text, place), label
