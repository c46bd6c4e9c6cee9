"""20 Newsgroups, split by date (Lang, ICML 1995; version of J. Rennie): `20newsgroups_bydate.jsonl.xz`."""

import json
import lzma
import re
from pathlib import Path

from model.errors import UserError

FILE = "20newsgroups_bydate.jsonl.xz"
TERMS = (
    "20 Newsgroups (K. Lang, NewsWeeder, ICML 1995; bydate version by J. Rennie): no licence stated; posts belong to "
    "their writers."
)
NON_COMMERCIAL = False
LABELS = [
    *("alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
    *("comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey"),
    *("sci.crypt", "sci.electronics", "sci.med", "sci.space", "soc.religion.christian", "talk.politics.guns"),
    *("talk.politics.mideast", "talk.politics.misc", "talk.religion.misc"),
]
QUOTE = re.compile(r"(writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>)")


def read(data_dir: Path, split: str) -> list[tuple[bytes, int]]:
    """Read one split, posts as they are, as (UTF-8 bytes, label). Raises: UserError naming file and line."""
    path = data_dir / FILE
    rows = list[tuple[bytes, int]]()
    try:
        with lzma.open(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                found, text, label = _parse(line, f"{path}:{number}")
                if found == split:
                    rows.append((text, label))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; --data-dir or LONGDOC_DATA says where the data lies") from None
    except (lzma.LZMAError, EOFError, OSError) as error:
        raise UserError(f"{path}: {error}") from None
    if not rows:
        raise UserError(f"{path} has no row of split {split!r}")
    return rows


def read_stripped(data_dir: Path, split: str) -> list[tuple[bytes, int]]:
    """Read one split without headers, quotes and footers, and without the posts that are then empty."""
    stripped = ((strip(text.decode()).encode(), label) for text, label in read(data_dir, split))
    return [(text, label) for text, label in stripped if text]


def strip(post: str) -> str:
    """Leave the body of a post: no headers, no lines that quote, no signature.

    Headers end at the first empty line; the signature begins at the last line that is empty or a rule of dashes,
    unless that is the whole post. The rules are those of scikit-learn's `fetch_20newsgroups(remove=...)`, but that
    lines that quote go before the signature.
    """
    _, _, body = post.partition("\n\n")
    lines = [line for line in body.split("\n") if not QUOTE.search(line)]
    text = "\n".join(lines).strip()
    lines = text.split("\n")
    for number in range(len(lines) - 1, 0, -1):
        if not lines[number].strip().strip("-"):
            return "\n".join(lines[:number]).strip()
    return text


def _parse(line: bytes, place: str) -> tuple[str, bytes, int]:
    """Check one line and return (split, text, label)."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UserError(f"{place}: not JSON: {error}") from None
    split, text, label = (row.get(key) for key in ("split", "text", "label")) if isinstance(row, dict) else (None,) * 3
    if split not in ("train", "test") or not isinstance(text, str) or not text:
        raise UserError(f"{place}: expected split train or test, and a text that is not empty")
    if type(label) is not int or not 0 <= label < len(LABELS):
        raise UserError(f"{place}: label must be in 0..{len(LABELS) - 1}, not {label!r}")
    try:
        return split, text.encode(), label
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: text is not valid Unicode: {error.reason}") from None
