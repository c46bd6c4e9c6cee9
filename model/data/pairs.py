"""Document pairs, their splits and terms of use. Used by `model.tasks.matching`."""

import hashlib
import random
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifact.tables.labels import class_notes
from model.config.data import PairsConfig
from model.data import own
from model.data.lines import encode, read_lines
from model.data.own import Example, OwnTexts, ReadFile, TextColumns
from model.errors import UserError

DOCUMENTS, PAIRS = "aan_retrieval_docs.jsonl.xz", "aan_retrieval_pairs.jsonl.xz"
SPLITS = ("train", "val", "test")
NAMES = {"train": "train", "validation": "val", "test": "test"}
"""Split of user data -> split of the table."""
LABELS = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}
"""Labels of user data, in lower case. Programs write 1 as 1.0 beside missing values."""
AAN_TERMS = (
    "ACL Anthology papers before 2016: CC BY-NC-SA 3.0, non-commercial. ACL Anthology Network corpus (Radev et al., "
    "Language Resources and Evaluation 47, 2013), which asks for citation."
)


@dataclass(frozen=True)
class Pairs:
    """Documents and labelled pairs of them."""

    texts: list[bytes]
    table: dict[str, NDArray[np.int64]]
    """Split -> (pairs, 3): index of a, index of b, label."""
    folds: NDArray[np.int64]
    """(documents,): fold of each paper. The disjoint test pairs cite papers of fold 0, the disjoint validation pairs of
    fold 1, the disjoint training pairs of all other folds."""
    notes: tuple[str, ...] = ()
    """Notes about user data to print, one per line."""
    fingerprint: str = ""
    """Fingerprint of user data."""
    places: tuple[str, ...] = ()
    """File and line of each test pair of user data."""

    def disjoint(self, split: str) -> NDArray[np.int64]:
        """Pairs of a split whose cited papers are not cited in the disjoint pairs of any other split.

        Each citing paper is in one split only; in `aan`, no paper at all is then in two splits.
        """
        table = self.table[split]
        cited = self.folds[table[:, 1]]
        kept: NDArray[np.int64] = table[{"train": cited > 1, "val": cited == 1, "test": cited == 0}[split]]
        return kept

    def with_test(self, other: "Pairs") -> "Pairs":
        """The same training and validation pairs, with the test pairs of other data."""
        start = np.array([len(self.texts), len(self.texts), 0])
        table = {**self.table, "test": other.table["test"] + start}
        folds = np.append(self.folds, other.folds)
        return replace(self, texts=[*self.texts, *other.texts], table=table, folds=folds, places=other.places)


def load_pairs(config: PairsConfig, source: OwnTexts | Path) -> Pairs:
    """Split user pairs, or read a data set from the folder of the data sets. Raises: UserError naming file and line."""
    if isinstance(source, OwnTexts):
        return _own(config, source)
    return _synthetic() if config.name == "synthetic-pairs" else _aan(source)


def load_test_pairs(config: PairsConfig, file: ReadFile) -> Pairs:
    """A file of user data whose pairs are all test pairs. Raises: UserError naming file and line."""
    rows = [row for row in file.rows if row.label]
    return _table(config, {"train": [], "val": [], "test": rows}, file.path, ("test",))


def data_terms(name: str) -> tuple[str, bool]:
    """Terms of use of a data set, and whether they forbid commercial use."""
    if name == "own":
        return "Own data.", False
    return ("Generated; no terms.", False) if name == "synthetic-pairs" else (AAN_TERMS, True)


def columns_of(config: PairsConfig) -> TextColumns:
    """Columns of user data."""
    texts = (config.text_column, config.other_column)
    return TextColumns(texts, config.label_column, config.split_column, encoding=config.encoding)


def _own(config: PairsConfig, source: OwnTexts) -> Pairs:
    """User data with its splits. Without splits of its own, pairs are split by their first text, 8:1:1."""
    path = source.data.path
    rows, found_notes = source.split_rows(config.split_column)
    labelled = [row for row in rows if row.label]
    if not labelled:
        raise UserError(f"{path}: no label in column {config.label_column!r}")
    kept, leaks = own.without_leaks(labelled)
    taken = {row.split for row in kept}
    parts: dict[str, list[Example]] = {split: [] for split in SPLITS}
    seed = config.split_seed.to_bytes(8, "little", signed=True)
    for row in kept:
        if (split := NAMES.get(row.split, "train")) == "train":
            part = hashlib.sha256(seed + row.texts[0]).digest()[0] * 10 // 256
            name = ("test", "validation")[part] if part < 2 else "train"
            split = "train" if name in taken else NAMES[name]
        parts[split].append(row)
    notes = (*class_notes(row.written for row in kept), *found_notes, *own.missing_labels(rows))
    if leaks:
        notes += (f"{leaks} pairs are left out of training or validation: they are also in a later split",)
    return replace(_table(config, parts, path, SPLITS), notes=notes, fingerprint=source.fingerprint)


def _table(config: PairsConfig, parts: dict[str, list[Example]], path: Path, needed: tuple[str, ...]) -> Pairs:
    """Number the texts of pairs. Raises: UserError for another label than 0 and 1, or a split with only one of them."""
    texts, index = list[bytes](), dict[bytes, int]()
    table = dict[str, NDArray[np.int64]]()
    for split, rows in parts.items():
        for row in rows:
            if row.label.lower() not in LABELS:
                raise UserError(f"{row.place}: {config.label_column} must be 0 or 1, not {row.label!r}")
            for text in row.texts:
                if text not in index:
                    index[text] = len(texts)
                    texts.append(text)
        labels = [LABELS[row.label.lower()] for row in rows]
        if split in needed and set(labels) != {0, 1}:
            how = "" if len(needed) == 1 else " (by the first text of each pair)"
            raise UserError(
                f"{path}: the {split} split{how} has {labels.count(1)} pairs of label 1, {labels.count(0)} of label 0; "
                "both labels are needed"
            )
        pairs = [(index[row.texts[0]], index[row.texts[1]], label) for row, label in zip(rows, labels, strict=True)]
        table[split] = np.array(pairs, np.int64).reshape(-1, 3)
    places = tuple(row.place for row in parts["test"])
    return Pairs(texts, table, np.zeros(len(texts), np.int64), places=places)


def _aan(data_dir: Path) -> Pairs:
    """Pairs of ACL Anthology papers."""
    texts, folds, index = list[bytes](), list[int](), dict[str, int]()
    for place, row in read_lines(data_dir / DOCUMENTS):
        key, text, fold = row.get("id"), row.get("text"), row.get("fold")
        if not isinstance(key, str) or not isinstance(text, str) or not text or type(fold) is not int:
            raise UserError(f"{place}: expected id, a non-empty text and fold")
        if key in index:
            raise UserError(f"{place}: {key!r} occurs twice")
        index[key] = len(texts)
        texts.append(encode(text, place))
        folds.append(fold)
    rows: dict[str, list[tuple[int, int, int]]] = {split: [] for split in SPLITS}
    for place, row in read_lines(data_dir / PAIRS):
        split, label, ids = row.get("split"), row.get("label"), (row.get("id_a"), row.get("id_b"))
        if split not in SPLITS or type(label) is not int or label not in (0, 1):
            raise UserError(f"{place}: expected split {', '.join(SPLITS)} and label 0 or 1")
        for key in ids:
            if not isinstance(key, str) or key not in index:
                raise UserError(f"{place}: {key!r} is not in {DOCUMENTS}")
        rows[split].append((index[str(ids[0])], index[str(ids[1])], label))
    if empty := [split for split, found in rows.items() if not found]:
        raise UserError(f"{data_dir / PAIRS} has no rows of split {empty[0]!r}")
    return Pairs(texts, {split: np.array(found) for split, found in rows.items()}, np.array(folds))


def _synthetic() -> Pairs:
    """Generated pairs for tests: two documents match if their words are from the same topic."""
    generator = random.Random(0)
    vocabulary = ["".join(generator.choices("abcdefghijklmnop", k=5)) for _ in range(80)]
    topics = [vocabulary[8 * i : 8 * i + 8] for i in range(10)]
    topic_of = [generator.randrange(len(topics)) for _ in range(200)]
    texts = [" ".join(generator.choices(topics[topic], k=generator.randint(5, 40))).encode() for topic in topic_of]
    folds = [generator.randrange(10) for _ in texts]
    table = {}
    for split, size in zip(SPLITS, (400, 100, 100), strict=True):
        rows = list[tuple[int, int, int]]()
        while len(rows) < size:
            a, b = generator.sample(range(len(texts)), 2)
            is_match = topic_of[a] == topic_of[b]
            if is_match == (len(rows) % 2 == 0):
                rows.append((a, b, int(is_match)))
        table[split] = np.array(rows)
    return Pairs(texts, table, np.array(folds))
