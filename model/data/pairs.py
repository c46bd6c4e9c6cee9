"""Document pairs, their splits and terms of use. Used by `model.tasks.matching`."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from artifact.tables.labels import class_notes
from model.config.data import PairsConfig
from model.data import own
from model.data.hard_negatives import nearest
from model.data.lines import encode, read_lines
from model.data.own import Example, OwnTexts, ReadFile, TextColumns
from model.data.splits import assign
from model.errors import UserError

DOCUMENTS, PAIRS = "aan_retrieval_docs.jsonl.xz", "aan_retrieval_pairs.jsonl.xz"
SPLITS = ("train", "val", "test")
HELD_OUT = 0.1
"""Fraction of the first texts of own pairs for validation, and for testing."""
NAMES = {"train": "train", "validation": "val", "test": "test"}
"""Split of user data -> split of the table."""
BINARY = (0.0, 1.0)
MATCH = 0.5
"""Degree from which two documents count as a match where a yes or no is needed."""
LABELS = {
    **dict.fromkeys(("0", "0.0", "false", "no"), 0.0),
    **dict.fromkeys(("1", "1.0", "true", "yes"), 1.0),
}
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
    """Split -> (pairs, 3): index of a, index of b, index in `grades` of the degree to which they match."""
    folds: NDArray[np.int64]
    """(documents,): fold of each paper. The disjoint test pairs cite papers of fold 0, the disjoint validation pairs of
    fold 1, the disjoint training pairs of all other folds."""
    grades: tuple[float, ...] = BINARY
    """Degrees from 0 to 1, ascending."""
    notes: tuple[str, ...] = ()
    """Notes about user data to print, one per line."""
    fingerprint: str = ""
    """Fingerprint of user data."""
    splits: str = ""
    """Fingerprint of the training and validation pairs of user data, without those that are added."""
    places: tuple[str, ...] = ()
    """File and line of each test pair of user data."""

    def targets(self, pairs: NDArray[np.int64]) -> Doubles:
        """Degrees (M,) to which the documents of pairs (M, 3) match."""
        degrees: Doubles = np.array(self.grades)[pairs[:, 2]]
        return degrees

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
        grades, start = tuple(sorted({*self.grades, *other.grades})), np.array([len(self.texts)] * 2 + [0])
        table = {split: _with_grades(pairs, self.grades, grades) for split, pairs in self.table.items()}
        table["test"] = _with_grades(other.table["test"], other.grades, grades) + start
        return replace(
            self,
            texts=[*self.texts, *other.texts],
            table=table,
            grades=grades,
            folds=np.append(self.folds, other.folds),
            places=other.places,
        )


def load_pairs(config: PairsConfig, source: OwnTexts | Path) -> Pairs:
    """Split user pairs, or read a data set from the folder of the data sets. Raises: UserError naming file and line."""
    if isinstance(source, OwnTexts):
        return _own(config, source)
    return _synthetic() if config.name == "synthetic-pairs" else _aan(source)


def load_test_pairs(config: PairsConfig, file: ReadFile) -> Pairs:
    """A file of user data whose pairs are all test pairs. Raises: UserError naming file and line."""
    rows = [row for row in labelled_pairs(config, file.rows) if row.label]
    pairs = _table(config, {"train": [], "val": [], "test": rows})
    if config.hard_negatives:
        pairs, _ = with_hard_negatives(pairs, config.hard_negatives)
    return _checked(config, pairs, file.path, ("test",))


def data_terms(config: PairsConfig) -> tuple[str, bool]:
    """Terms of use of a data set, and whether they forbid commercial use."""
    if config.name == "own":
        return config.terms or "Own data.", False
    return ("Generated; no terms.", False) if config.name == "synthetic-pairs" else (AAN_TERMS, True)


def columns_of(config: PairsConfig) -> TextColumns:
    """Columns of user data."""
    texts = (config.text_column, config.other_column)
    if config.negative_column:
        return TextColumns((*texts, config.negative_column), split=config.split_column, encoding=config.encoding)
    return TextColumns(texts, config.label_column, config.split_column, takes_numbers=True, encoding=config.encoding)


def labelled_pairs(config: PairsConfig, rows: Iterable[Example]) -> list[Example]:
    """Rows of two texts and a label; of three texts, the pair that belongs together and the one that does not."""
    if not config.negative_column:
        return list(rows)
    return [
        row._replace(texts=(row.texts[0], text), label=label, written=label)
        for row in rows
        for text, label in zip(row.texts[1:], ("1", "0"), strict=True)
    ]


def degree_of(label: str) -> float | None:
    """Degree of a label of user data; None if it is neither yes or no nor a number from 0 to 1."""
    if (degree := LABELS.get(label.lower())) is not None:
        return degree
    try:
        number = float(label)
    except ValueError:
        return None
    return number if 0 <= number <= 1 else None


def _own(config: PairsConfig, source: OwnTexts) -> Pairs:
    """User data with its splits. Without splits of its own, pairs are split by their first text."""
    path = source.data.path
    found, found_notes = source.split_rows(config.split_column)
    rows = labelled_pairs(config, found)
    labelled = [row for row in rows if row.label]
    if not labelled:
        missing = "; ".join(own.missing_labels(rows))
        raise UserError(f"{path}: no label in column {config.label_column!r}; {missing}")
    kept, leaks = own.without_leaks(labelled)
    taken = {row.split for row in kept}
    free = [row for row in kept if NAMES.get(row.split, "train") == "train"]
    own.check_training(path, free, leaks)
    fractions = {name: HELD_OUT for name in ("validation", "test") if name not in taken}
    kinds = _kinds(free)
    many = {kind for kind, count in Counter(kinds.values()).items() if count > len(fractions)}
    assigned = assign({text: kind for text, kind in kinds.items() if kind in many}, fractions, config.split_seed)
    parts: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for row in free:
        parts[NAMES[assigned.get(row.texts[0], "train")]].append(row)
    for row in kept:
        if (split := NAMES.get(row.split, "train")) != "train":
            parts[split].append(row)
    counts = () if config.graded else class_notes(row.written for row in kept)
    notes = (*counts, *found_notes, *own.missing_labels(rows))
    if leaks:
        notes += (f"{leaks} pairs are left out of training or validation: they are also in a later split",)
    splits = own.splits_digest(*([row.texts for row in parts[split]] for split in ("train", "val")))
    pairs = _table(config, parts)
    notes += _repetitions(kept)
    if config.hard_negatives:
        pairs, added = with_hard_negatives(pairs, config.hard_negatives)
        notes += (f"hard negatives: {', '.join(f'{count} {split}' for split, count in added.items())} pairs are added",)
    return replace(_checked(config, pairs, path, SPLITS), notes=notes, fingerprint=source.fingerprint, splits=splits)


def _repetitions(rows: Sequence[Example]) -> tuple[str, ...]:
    """Notes about texts that are paired with themselves, and about equal pairs."""
    labels = dict[tuple[bytes, ...], set[float | None]]()
    for row in rows:
        labels.setdefault(row.texts, set()).add(degree_of(row.label))
    found = {
        "pairs are of a text with itself": sum(len(set(row.texts)) == 1 for row in rows),
        "pairs repeat another one with the same label and are left out": len(rows) - sum(map(len, labels.values())),
        "pairs occur with different labels": sum(len(some) > 1 for some in labels.values()),
    }
    return tuple(f"{count:,} {what}" for what, count in found.items() if count)


def _kinds(rows: Sequence[Example]) -> dict[bytes, str]:
    """For each first text, whether its pairs match, do not, or both, so that each split has its share of all three."""
    found = dict[bytes, set[bool]]()
    for row in rows:
        found.setdefault(row.texts[0], set()).add((degree_of(row.label) or 0) >= MATCH)
    return {text: str(sorted(matches)) for text, matches in found.items()}


def _table(config: PairsConfig, parts: dict[str, list[Example]]) -> Pairs:
    """Number the texts of pairs; of equal pairs with equal labels, one is kept. Raises: UserError for a bad label."""
    texts, index = list[bytes](), dict[bytes, int]()
    found = dict[str, dict[tuple[int, int, float], str]]()
    for split, rows in parts.items():
        found[split] = {}
        for row in rows:
            for text in row.texts:
                if text not in index:
                    index[text] = len(texts)
                    texts.append(text)
            degree = degree_of(row.label)
            if degree is None or not (config.graded or degree in BINARY):
                allowed = "0 or 1, no or yes, or a degree from 0 to 1" if degree is None else "0 or 1, or no or yes"
                raise UserError(f"{row.place}: {config.label_column} must be {allowed}, not {row.label!r}")
            found[split].setdefault((index[row.texts[0]], index[row.texts[1]], degree), row.place)
    grades = tuple(sorted({*BINARY, *(degree for pairs in found.values() for *_, degree in pairs)}))
    number = {degree: place for place, degree in enumerate(grades)}
    table = {
        split: np.array([(a, b, number[degree]) for a, b, degree in pairs], np.int64).reshape(-1, 3)
        for split, pairs in found.items()
    }
    return Pairs(texts, table, np.zeros(len(texts), np.int64), grades, places=tuple(found["test"].values()))


def with_hard_negatives(pairs: Pairs, count: int) -> tuple[Pairs, dict[str, int]]:
    """Add `count` negatives for each match: the second texts that are most like its first text.

    Training pairs get them, and a split that has no negatives. The second texts are those of the training matches; of
    another split, those of all matches, so that its negatives are as hard. Texts that are paired with the first text,
    in either order, are not added.

    Returns: the pairs, and the number of added pairs of each split.
    """
    matches = {split: table[pairs.targets(table) >= MATCH][:, :2] for split, table in pairs.table.items()}
    rows = [(a, b) for table in pairs.table.values() for a, b, _ in table.tolist()]
    known = {pair for a, b in rows for pair in ((a, b), (b, a))}
    table, added = dict(pairs.table), dict[str, int]()
    everything = np.concatenate(list(matches.values()))
    for split, found in matches.items():
        if len(found) and (split == "train" or len(found) == len(table[split])):
            candidates = np.unique((found if split == "train" else everything)[:, 1])
            mined = nearest(pairs.texts, found, candidates, known, count)
            table[split] = np.concatenate((table[split], np.insert(mined, 2, 0, axis=1)))
            added[split] = len(mined)
    return replace(pairs, table=table, places=() if "test" in added else pairs.places), added


def _number(pairs: int) -> str:
    return f"{pairs} pair{'' if pairs == 1 else 's'}"


def _checked(config: PairsConfig, pairs: Pairs, path: Path, needed: tuple[str, ...]) -> Pairs:
    """The pairs. Raises: UserError for a split without both labels, or without two different degrees."""
    for split in needed:
        targets = pairs.targets(pairs.table[split])
        degrees = np.unique(targets)
        if len(degrees) > 1:  # without degrees, these are 0 and 1
            continue
        how, hint = " (by the first text of each pair)", "; give more pairs, or splits of your own"
        if not config.hard_negatives and (degrees >= MATCH).any():
            hint = "; --hard-negatives adds pairs that do not match"
        if len(needed) == 1:  # a file to evaluate
            how = hint = ""
        if config.graded:
            found = f"{_number(len(targets))} of degree {degrees[0]:g}" if len(degrees) else "no pairs"
            rule = "two different degrees are needed"
        else:
            matches = int(targets.sum())
            found, rule = f"{_number(matches)} of label 1, {len(targets) - matches} of label 0", "both are needed"
        name = "validation" if split == "val" else split
        raise UserError(f"{path}: the {name} split{how} has {found}; {rule}{hint}")
    return pairs


def _with_grades(pairs: NDArray[np.int64], grades: tuple[float, ...], others: tuple[float, ...]) -> NDArray[np.int64]:
    """Pairs (M, 3) whose last column is an index in other grades, which contain these."""
    found = pairs.copy()
    found[:, 2] = np.searchsorted(others, np.array(grades)[pairs[:, 2]])
    return found


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
