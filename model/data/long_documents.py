"""Long documents: US Supreme Court oral arguments by issue area, UN General Debate speeches by region."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.data.lines import encode, read_lines
from model.errors import UserError

SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Split in the files -> name of the split here."""


@dataclass(frozen=True)
class LongDocuments:
    """One data set, whose files hold all three splits."""

    file: str
    labels: list[str]
    terms: str
    split_key: str
    """Field with the split of a document."""
    group_key: str
    """Field with the group of a document. The documents of a group are in one split and in one fold."""
    non_commercial: bool = False

    def read(self, data_dir: Path, split: str) -> list[tuple[bytes, int, str]]:
        """Read one split as (UTF-8 bytes, label, group). Raises: UserError naming file and line of a bad row."""
        path = data_dir / self.file
        rows = [row[1:] for place, raw in read_lines(path) if (row := self._parse(raw, place))[0] == split]
        if not rows:
            raise UserError(f"{path} has no rows of split {split!r}")
        return rows

    def _parse(self, row: dict[str, Any], place: str) -> tuple[str, bytes, int, str]:
        """Validate one row; returns (split, text, label, group)."""
        split, text, label, group = (row.get(key) for key in (self.split_key, "text", "label", self.group_key))
        if split not in SPLITS:
            raise UserError(f"{place}: {self.split_key} must be one of {', '.join(SPLITS)}, not {split!r}")
        if not isinstance(text, str) or not text:
            raise UserError(f"{place}: text must be a non-empty string, not {type(text).__name__}")
        if type(label) is not int or not 0 <= label < len(self.labels):
            raise UserError(f"{place}: label must be in 0..{len(self.labels) - 1}, not {label!r}")
        if group is None:
            raise UserError(f"{place}: {self.group_key} must not be missing")
        return SPLITS[split], encode(text, place), label, str(group)


SCOTUS = LongDocuments(
    file="scotus-oral-arguments.jsonl.xz",
    labels=[
        *("Civil Rights", "Criminal Procedure", "Due Process", "Economic Activity", "Federal Taxation", "Federalism"),
        *("First Amendment", "Judicial Power", "Unions"),
    ],
    terms="US Supreme Court oral arguments (Oyez): CC BY-NC 4.0, non-commercial. Issue areas of the Supreme Court "
    "Database, 2024 release 01 (H. Spaeth, L. Epstein et al.): non-commercial.",
    split_key="split",
    group_key="term",
    non_commercial=True,
)

_UN_FILE = "un-general-debate.jsonl.xz"
_UN_LABELS = [
    *("Caribbean", "Central America", "Eastern Africa", "Eastern Asia", "Eastern Europe", "Middle Africa"),
    *("Northern Africa", "Northern Europe", "South America", "South-eastern Asia", "Southern Africa"),
    *("Southern Asia", "Southern Europe", "Western Africa", "Western Asia", "Western Europe"),
]
_UN_TERMS = (
    "United Nations General Debate Corpus (S. Jankin, A. Baturo, N. Dasandi, Harvard Dataverse 10.7910/DVN/0TJX8Y): "
    "CC0; authors ask for citation."
)
UN_DEBATE = LongDocuments(_UN_FILE, _UN_LABELS, _UN_TERMS, split_key="split", group_key="year")
UN_DEBATE_COUNTRY = LongDocuments(_UN_FILE, _UN_LABELS, _UN_TERMS, split_key="split_country", group_key="country")
