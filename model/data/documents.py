"""Labelled documents and their splits. Used by `model.tasks.classification`."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from model.config.data import DocumentsConfig
from model.data import images, imdb, listops, long_documents, newsgroups, own, synthetic
from model.data.own import NO_FILES, Columns, HeldOut, Row
from model.errors import UserError

PARTS = ("validation", "test")

Rows = list[tuple[bytes, int, str]]
"""Text, index of the label and group of documents."""


@dataclass(frozen=True)
class Documents:
    """Raw bytes of documents, and the index of each document's label."""

    texts: list[bytes]
    labels: list[int]
    groups: tuple[str, ...] = ()
    """Group of each document, if the data has groups: the documents of a group are never in two splits or folds."""

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class DocumentSet:
    """Training and validation documents of one data set, with its label names."""

    train: Documents
    validation: Documents
    labels: list[str]
    notes: tuple[str, ...] = ()
    """Notes about user data to print, one per line."""
    fingerprint: str = ""
    """Fingerprint of user data."""


@dataclass(frozen=True)
class _Source:
    """A data set with a predefined test split; validation is split off from training."""

    read: Callable[[Path, str], list[tuple[bytes, int]]]
    labels: list[str]
    terms: str


_SOURCES = {
    "imdb": _Source(imdb.read, imdb.LABELS, imdb.TERMS),
    "20newsgroups": _Source(newsgroups.read, newsgroups.LABELS, newsgroups.TERMS),
    "20newsgroups-stripped": _Source(newsgroups.read_stripped, newsgroups.LABELS, newsgroups.TERMS),
    "listops": _Source(listops.read, listops.LABELS, listops.TERMS),
    "listops-short": _Source(listops.read_short, listops.LABELS, listops.TERMS),
    "cifar10-gray": _Source(images.read, images.LABELS, images.TERMS),
    "synthetic": _Source(synthetic.read, synthetic.LABELS, synthetic.TERMS),
}

_SPLIT_SOURCES = {
    "scotus": long_documents.SCOTUS,
    "un-debate": long_documents.UN_DEBATE,
    "un-debate-country": long_documents.UN_DEBATE_COUNTRY,
}
"""Data sets with predefined splits of training, validation and test, and with groups."""


def load_training(config: DocumentsConfig, data_dir: Path, held_out: HeldOut = NO_FILES) -> DocumentSet:
    """Read the training documents without texts of the test split, and split off validation.

    All copies of a text are in the same split, and so are the documents of a group. For user data, `data_dir` is the
    file or folder itself, and `held_out` names the files of validation and test, if they are separate.

    Raises: UserError naming file and line.
    """
    if config.name == "own":
        parts = _own(config, data_dir, held_out)
        return DocumentSet(
            _documents(parts.rows["train"]),
            _documents(parts.rows["validation"]),
            parts.labels,
            parts.notes,
            parts.fingerprint,
        )
    if split_source := _SPLIT_SOURCES.get(config.name):
        train, validation = (split_source.read(data_dir, split) for split in ("train", "validation"))
        return DocumentSet(_documents(train), _documents(validation), split_source.labels)
    source = _SOURCES[config.name]
    in_test = {text for text, _ in source.read(data_dir, "test")}
    rows = source.read(data_dir, "train")
    groups = imdb.read_groups(data_dir, "train") if config.groups else [""] * len(rows)
    kept = [(*row, group) for row, group in zip(rows, groups, strict=True) if row[0] not in in_test]
    if config.groups:
        held_out_texts = _texts_of_groups(config, kept)
    else:
        held_out_texts = {text for text, _, _ in kept if _position(config, text) < config.validation_fraction}
    validation, train = Rows(), Rows()
    for row in kept:
        (validation if row[0] in held_out_texts else train).append(row)
    for name, part in (("training", train), ("validation", validation)):
        if not part:
            raise UserError(f"data.validation_fraction {config.validation_fraction} leaves no {name} document")
    return DocumentSet(_documents(train), _documents(validation), source.labels)


def _texts_of_groups(config: DocumentsConfig, rows: Rows) -> set[bytes]:
    """Texts of the groups that are held out for validation: of each label, the same fraction of its groups."""
    group_of = {text: group for text, _, group in reversed(rows)}
    groups_of_label: dict[int, set[str]] = defaultdict(set)
    for _, label, group in rows:
        groups_of_label[label].add(group)
    chosen = set[str]()
    for groups in groups_of_label.values():
        order = sorted(groups, key=lambda group: _digest(config, group.encode()))
        chosen |= set(order[: round(config.validation_fraction * len(order))])
    return {text for text, group in group_of.items() if group in chosen}


def load_test(config: DocumentsConfig, data_dir: Path, labels: list[str], held_out: HeldOut = NO_FILES) -> Documents:
    """Read the test split, or every labelled row of the test file; only evaluation uses it.

    Raises: UserError if the labels of the data are not exactly `labels`, or a test file has one that is not in them.
    """
    if config.name == "own" and held_out.test is not None:
        rows = [row for row in own.read(held_out.test, _columns(config).without_groups()) if row.label]
        if not rows:
            raise UserError(f"{held_out.test}: no label in column {config.label_column!r}")
        _check_known(rows, labels)
        return _documents([(row.texts[0], labels.index(row.label), "") for row in rows])
    if config.name == "own":
        parts = _own(config, data_dir, held_out)
        check_labels(parts.labels, labels, data_dir)
        return _documents(parts.rows["test"])
    if split_source := _SPLIT_SOURCES.get(config.name):
        check_labels(split_source.labels, labels, data_dir)
        return _documents(split_source.read(data_dir, "test"))
    source = _SOURCES[config.name]
    check_labels(source.labels, labels, data_dir)
    return _documents([(text, label, "") for text, label in source.read(data_dir, "test")])


def check_labels(found: list[str], expected: list[str], path: Path) -> None:
    """Check the labels of the data against those of a model. Raises: UserError."""
    if found != expected:
        raise UserError(f"{path} has the labels {', '.join(found)}; the model knows {', '.join(expected)}")


def data_terms(name: str) -> tuple[str, bool]:
    """Terms of use of a data set, and whether they forbid commercial use."""
    if name == "own":
        return "Own data.", False
    if split_source := _SPLIT_SOURCES.get(name):
        return split_source.terms, split_source.non_commercial
    return _SOURCES[name].terms, False


def fingerprint(config: DocumentsConfig, path: Path) -> str:
    """Fingerprint of a file or folder of user data. Raises: UserError naming file and line."""
    return own.fingerprint(own.read(path, _columns(config).without_groups()))


@dataclass(frozen=True)
class _Parts:
    rows: dict[str, Rows]
    """Split -> documents."""
    labels: list[str]
    notes: tuple[str, ...]
    fingerprint: str


def _columns(config: DocumentsConfig) -> Columns:
    columns = Columns((config.text_column,), config.label_column, config.split_column, config.group_column)
    return replace(columns, encoding=config.encoding)


def _own(config: DocumentsConfig, path: Path, held_out: HeldOut) -> _Parts:
    """User data with its splits. A split without rows is taken from training, as a fraction of each label's texts.

    Raises: UserError naming file and line.
    """
    found = own.read_splits(path, _columns(config), held_out)
    labelled, leaks = own.without_leaks([row for row in found.rows if row.label])
    pool = [row for row in labelled if row.split in ("", "train")]
    labels = sorted({row.label for row in pool})
    if len(labels) < 2:
        known = f"only the label {labels[0]!r}" if labels else "no label"
        raise UserError(f"{path}: {known} in column {config.label_column!r}; at least two are needed")
    _check_known(labelled, labels)
    split = _split_off(config, pool, [name for name in PARTS if not any(row.split == name for row in labelled)])
    parts: dict[str, Rows] = {name: [] for name in own.ORDER}
    for row in labelled:
        part = row.split if row.split in PARTS else split[row.texts[0]]
        parts[part].append((row.texts[0], labels.index(row.label), row.group))
    notes = (*own.classes(labelled), *found.notes, *_notes(found.rows, pool, leaks))
    return _Parts(parts, labels, notes, found.fingerprint)


def _split_off(config: DocumentsConfig, pool: list[Row], missing: list[str]) -> dict[bytes, str]:
    """Split of every text of the training rows: `train`, or one of the missing splits; none is empty.

    Raises: UserError naming the place of a label with too few texts or groups.
    """
    first: dict[bytes, Row] = {}
    for row in pool:
        first.setdefault(row.texts[0], row)
    if not missing:
        return dict.fromkeys(first, "train")
    unit_of = {text: row.group.encode() or text for text, row in first.items()}
    labels = _most_frequent({text: row.label for text, row in first.items()}, unit_of)
    fractions = {"validation": config.validation_fraction, "test": config.test_fraction}
    split: dict[bytes, str] = {}
    for label in sorted({row.label for row in pool}):
        units = sorted((unit for unit in labels if labels[unit] == label), key=lambda unit: _digest(config, unit))
        if len(units) <= len(missing):
            place = next(row.place for row in pool if row.label == label)
            what = "groups in which it is the most frequent" if config.group_column else "different texts"
            raise UserError(f"{place}: label {label!r} has {len(units)} {what}; at least {1 + len(missing)} are needed")
        counts = {name: max(1, round(fractions[name] * len(units))) for name in reversed(missing)}
        if sum(counts.values()) >= len(units):
            counts = dict.fromkeys(counts, 1)
        names = [name for name, count in counts.items() for _ in range(count)]
        names += ["train"] * (len(units) - len(names))
        split |= dict(zip(units, names, strict=True))
    return {text: split[unit] for text, unit in unit_of.items()}


def _most_frequent(labels: Mapping[bytes, str], unit_of: Mapping[bytes, bytes]) -> dict[bytes, str]:
    """Most frequent label of each unit (a group or a text), from the label and the unit of each text."""
    counts: dict[bytes, Counter[str]] = defaultdict(Counter)
    for text, label in labels.items():
        counts[unit_of[text]][label] += 1
    return {unit: max(sorted(found), key=found.__getitem__) for unit, found in counts.items()}


def _notes(rows: list[Row], pool: list[Row], leaks: int) -> tuple[str, ...]:
    """Describe rows that are left out, and copies."""
    first: dict[bytes, str] = {}
    for row in pool:
        first.setdefault(row.texts[0], row.label)
    conflicts = [row.place for row in pool if first[row.texts[0]] != row.label]
    notes = list(own.missing_labels(rows))
    if leaks:
        notes.append(f"{leaks} rows are left out of training or validation: their text is also in a later split")
    if copies := len(pool) - len(first):
        notes.append(f"{copies} rows repeat the text of another; copies are kept in one split")
    if conflicts:
        notes.append(f"{len(conflicts)} of them with another label, the first at {conflicts[0]}")
    return tuple(notes)


def _check_known(rows: list[Row], labels: list[str]) -> None:
    """Check that no row has a label outside `labels`. Raises: UserError naming its place."""
    for row in rows:
        if row.label not in labels:
            raise UserError(f"{row.place}: the label {row.label!r} is not in training; known: {', '.join(labels)}")


def _digest(config: DocumentsConfig, text: bytes) -> bytes:
    """Hash that assigns a text to a split; depends only on the text and the split seed."""
    return hashlib.sha256(config.split_seed.to_bytes(8, "little", signed=True) + text).digest()


def _position(config: DocumentsConfig, text: bytes) -> float:
    """Number in [0, 1) that places a text in a random order."""
    return int.from_bytes(_digest(config, text)[:8], "little") / 2**64


def _documents(rows: Rows) -> Documents:
    texts, labels, groups = zip(*rows, strict=True) if rows else ((), (), ())
    return Documents(list(texts), list(labels), groups if any(groups) else ())
