"""Pairs of documents, their splits and terms. Used by `model.tasks.matching`."""

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.config.data import PairsConfig
from model.data import own
from model.data.lines import encode, read_lines
from model.errors import UserError

DOCUMENTS, PAIRS = "aan_retrieval_docs.jsonl.xz", "aan_retrieval_pairs.jsonl.xz"
SPLITS = ("train", "val", "test")
AAN_TERMS = (
    "ACL Anthology papers before 2016: CC BY-NC-SA 3.0, non-commercial. ACL Anthology Network corpus (Radev et al., "
    "Language Resources and Evaluation 47, 2013), which asks for citation."
)


@dataclass(frozen=True)
class Pairs:
    """Documents and which of them belong together."""

    texts: list[bytes]
    table: dict[str, NDArray[np.int64]]
    """Split -> (pairs, 3): index of a, index of b, label."""
    folds: NDArray[np.int64]
    """(documents,): those of fold 0 are cited in the disjoint test pairs, those of fold 1 in those of validation."""

    def disjoint(self, split: str) -> NDArray[np.int64]:
        """Pairs of a split whose cited papers are cited in no other one's disjoint pairs.

        Citing papers are in one split each; in `aan` no paper at all is then in two.
        """
        table = self.table[split]
        cited = self.folds[table[:, 1]]
        kept: NDArray[np.int64] = table[{"train": cited > 1, "val": cited == 1, "test": cited == 0}[split]]
        return kept


def load_pairs(config: PairsConfig, data_dir: Path) -> Pairs:
    """Read a data set; `data_dir` is the file itself for pairs of one's own. Raises: UserError naming file and line."""
    if config.name == "own":
        return _own(config, data_dir)
    return _synthetic() if config.name == "synthetic-pairs" else _aan(data_dir)


def data_terms(name: str) -> tuple[str, bool]:
    """Terms of use of a data set, and whether they forbid commercial use."""
    if name == "own":
        return "Own data.", False
    return ("Generated; no terms.", False) if name == "synthetic-pairs" else (AAN_TERMS, True)


def _own(config: PairsConfig, path: Path) -> Pairs:
    """Pairs of a file, split by their first text: 8 of 10 to train on, one each to validate and test."""
    texts, index = list[bytes](), dict[bytes, int]()
    rows: dict[str, list[tuple[int, int, int]]] = {split: [] for split in SPLITS}
    for place, pair, label in own.read(path, (config.text_column, config.other_column), config.label_column):
        if label not in ("0", "1"):
            raise UserError(f"{place}: {config.label_column} must be 0 or 1, not {label!r}")
        for text in pair:
            if text not in index:
                index[text] = len(texts)
                texts.append(text)
        seed = config.split_seed.to_bytes(8, "little", signed=True)
        part = hashlib.sha256(seed + pair[0]).digest()[0] * 10 // 256
        rows[("test", "val")[part] if part < 2 else "train"].append((index[pair[0]], index[pair[1]], int(label)))
    for split, found in rows.items():
        labels = [label for _, _, label in found]
        if set(labels) != {0, 1}:
            raise UserError(
                f"{path}: the {split} split, by the first text of each pair, has {labels.count(1)} pairs of label 1, "
                f"{labels.count(0)} of label 0; it needs both"
            )
    return Pairs(texts, {split: np.array(found) for split, found in rows.items()}, np.zeros(len(texts), np.int64))


def _aan(data_dir: Path) -> Pairs:
    """The pairs of ACL Anthology papers."""
    texts, folds, index = list[bytes](), list[int](), dict[str, int]()
    for place, row in read_lines(data_dir / DOCUMENTS):
        key, text, fold = row.get("id"), row.get("text"), row.get("fold")
        if not isinstance(key, str) or not isinstance(text, str) or not text or type(fold) is not int:
            raise UserError(f"{place}: expected id, a text that is not empty, and fold")
        if key in index:
            raise UserError(f"{place}: {key!r} is there twice")
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
        raise UserError(f"{data_dir / PAIRS} has no row of split {empty[0]!r}")
    return Pairs(texts, {split: np.array(found) for split, found in rows.items()}, np.array(folds))


def _synthetic() -> Pairs:
    """Generated for tests: two documents belong together if they draw their words from the same topic."""
    generator = random.Random(0)
    vocabulary = ["".join(generator.choices("abcdefghijklmnop", k=5)) for _ in range(80)]
    topics = [vocabulary[8 * i : 8 * i + 8] for i in range(10)]
    of = [generator.randrange(len(topics)) for _ in range(200)]
    texts = [" ".join(generator.choices(topics[topic], k=generator.randint(5, 40))).encode() for topic in of]
    folds = [generator.randrange(10) for _ in texts]
    table = {}
    for split, size in zip(SPLITS, (400, 100, 100), strict=True):
        rows = list[tuple[int, int, int]]()
        while len(rows) < size:
            a, b = generator.sample(range(len(texts)), 2)
            if (of[a] == of[b]) == (len(rows) % 2 == 0):
                rows.append((a, b, int(of[a] == of[b])))
        table[split] = np.array(rows)
    return Pairs(texts, table, np.array(folds))
