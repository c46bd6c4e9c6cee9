"""20 Newsgroups, split by date (Lang, ICML 1995; version of J. Rennie): `20newsgroups_bydate.jsonl.xz`."""

import re
from dataclasses import dataclass
from pathlib import Path

from model.data.lines import TRAIN_TEST, LabelledLines

QUOTE = re.compile(r"(writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>)")


@dataclass(frozen=True)
class Stripped(LabelledLines):
    """Posts without headers, quotes and footers; those that become empty are dropped."""

    def read(self, data_dir: Path, split: str) -> list[tuple[bytes, int, str]]:
        """Read one split as (UTF-8 bytes, label, group). Raises: UserError naming file and line of a bad row."""
        posts = super().read(data_dir, split)
        stripped = ((strip(text.decode()).encode(), label, group) for text, label, group in posts)
        return [row for row in stripped if row[0]]


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


_LABELS = [
    *("alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
    *("comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey"),
    *("sci.crypt", "sci.electronics", "sci.med", "sci.space", "soc.religion.christian", "talk.politics.guns"),
    *("talk.politics.mideast", "talk.politics.misc", "talk.religion.misc"),
]
_TERMS = (
    "20 Newsgroups (K. Lang, NewsWeeder, ICML 1995; bydate version by J. Rennie): no licence stated; posts belong to "
    "their writers."
)
_FILE = "20newsgroups_bydate.jsonl.xz"
POSTS = LabelledLines(_FILE, _LABELS, _TERMS, TRAIN_TEST)
STRIPPED = Stripped(_FILE, _LABELS, _TERMS, TRAIN_TEST)
