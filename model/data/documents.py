"""Labelled documents and their splits. Used by `model.tasks.classification`."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from model.config.data import DocumentsConfig
from model.data import images, imdb, listops, newsgroups, own, synthetic
from model.data.own import NO_FILES, Columns, HeldOut, Row
from model.errors import UserError

PARTS = ("validation", "test")

Rows = list[tuple[bytes, int]]


@dataclass(frozen=True)
class Documents:
    """Raw bytes of documents, and the index of each document's label."""

    texts: list[bytes]
    labels: list[int]

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
    """A data set with a predefined test split."""

    read: Callable[[Path, str], Rows]
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


def load_training(config: DocumentsConfig, data_dir: Path, held_out: HeldOut = NO_FILES) -> DocumentSet:
    """Read the training documents without texts of the test split, and split off validation.

    All copies of a text are in the same split. For user data, `data_dir` is the file or folder itself, and `held_out`
    names the files of validation and test, if they are separate.

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
    source = _SOURCES[config.name]
    in_test = {text for text, _ in source.read(data_dir, "test")}
    kept = [(text, label) for text, label in source.read(data_dir, "train") if text not in in_test]
    validation, train = Rows(), Rows()
    for text, label in kept:
        is_held_out = int.from_bytes(_digest(config, text)[:8], "little") < config.validation_fraction * 2**64
        (validation if is_held_out else train).append((text, label))
    for name, part in (("training", train), ("validation", validation)):
        if not part:
            raise UserError(f"data.validation_fraction {config.validation_fraction} leaves no {name} document")
    return DocumentSet(_documents(train), _documents(validation), source.labels)


def load_test(config: DocumentsConfig, data_dir: Path, labels: list[str], held_out: HeldOut = NO_FILES) -> Documents:
    """Read the test split, or every labelled row of the test file; only evaluation uses it.

    Raises: UserError if the labels of the data are not exactly `labels`, or a test file has one that is not in them.
    """
    if config.name == "own" and held_out.test is not None:
        rows = [row for row in own.read(held_out.test, _columns(config)) if row.label]
        if not rows:
            raise UserError(f"{held_out.test}: no label in column {config.label_column!r}")
        _check_known(rows, labels)
        return _documents([(row.texts[0], labels.index(row.label)) for row in rows])
    if config.name == "own":
        parts = _own(config, data_dir, held_out)
        check_labels(parts.labels, labels, data_dir)
        return _documents(parts.rows["test"])
    source = _SOURCES[config.name]
    check_labels(source.labels, labels, data_dir)
    return _documents(source.read(data_dir, "test"))


def check_labels(found: list[str], expected: list[str], path: Path) -> None:
    """Check the labels of the data against those of a model. Raises: UserError."""
    if found != expected:
        raise UserError(f"{path} has the labels {', '.join(found)}; the model knows {', '.join(expected)}")


def data_terms(name: str) -> tuple[str, bool]:
    """Terms of use of a data set, and whether they forbid commercial use."""
    return ("Own data." if name == "own" else _SOURCES[name].terms), False


def fingerprint(config: DocumentsConfig, path: Path) -> str:
    """Fingerprint of a file or folder of user data. Raises: UserError naming file and line."""
    return own.fingerprint(own.read(path, _columns(config)))


@dataclass(frozen=True)
class _Parts:
    rows: dict[str, Rows]
    """Split -> documents."""
    labels: list[str]
    notes: tuple[str, ...]
    fingerprint: str


def _columns(config: DocumentsConfig) -> Columns:
    return Columns((config.text_column,), config.label_column, config.split_column)


def _own(config: DocumentsConfig, path: Path, held_out: HeldOut) -> _Parts:
    """User data with its splits. A split without rows is taken from training, as a fraction of each label's texts.

    Raises: UserError naming file and line.
    """
    rows, file_hash = own.read_splits(path, _columns(config), held_out)
    labelled, leaks = own.without_leaks([row for row in rows if row.label])
    pool = [row for row in labelled if row.split in ("", "train")]
    labels = sorted({row.label for row in pool})
    if len(labels) < 2:
        found = f"only the label {labels[0]!r}" if labels else "no label"
        raise UserError(f"{path}: {found} in column {config.label_column!r}; at least two are needed")
    _check_known(labelled, labels)
    split = _split_off(config, pool, [name for name in PARTS if not any(row.split == name for row in labelled)])
    parts: dict[str, Rows] = {name: [] for name in own.ORDER}
    for row in labelled:
        part = row.split if row.split in PARTS else split[row.texts[0]]
        parts[part].append((row.texts[0], labels.index(row.label)))
    return _Parts(parts, labels, _notes(rows, pool, leaks), file_hash)


def _split_off(config: DocumentsConfig, pool: list[Row], missing: list[str]) -> dict[bytes, str]:
    """Split of every text of the training rows: `train`, or one of the missing splits; none is empty.

    Raises: UserError naming the place of a label with too few texts.
    """
    first: dict[bytes, str] = {}
    for row in pool:
        first.setdefault(row.texts[0], row.label)
    fractions = {"validation": config.validation_fraction, "test": config.test_fraction}
    split: dict[bytes, str] = {}
    for label in sorted({row.label for row in pool}):
        texts = sorted((text for text in first if first[text] == label), key=lambda text: _digest(config, text))
        if len(texts) <= len(missing):
            place = next(row.place for row in pool if row.label == label)
            raise UserError(
                f"{place}: label {label!r} has {len(texts)} different texts; at least {1 + len(missing)} are needed"
            )
        counts = {name: max(1, round(fractions[name] * len(texts))) for name in reversed(missing)}
        if sum(counts.values()) >= len(texts):
            counts = dict.fromkeys(counts, 1)
        names = [name for name, count in counts.items() for _ in range(count)]
        names += ["train"] * (len(texts) - len(names))
        split |= dict(zip(texts, names, strict=True))
    return split


def _notes(rows: list[Row], pool: list[Row], leaks: int) -> tuple[str, ...]:
    """Describe rows that are left out, and copies."""
    first: dict[bytes, str] = {}
    for row in pool:
        first.setdefault(row.texts[0], row.label)
    unlabelled = [row.place for row in rows if not row.label]
    conflicts = [row.place for row in pool if first[row.texts[0]] != row.label]
    notes = []
    if unlabelled:
        notes.append(f"{len(unlabelled)} rows without a label are left out, the first at {unlabelled[0]}")
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


def _documents(rows: Rows) -> Documents:
    return Documents([text for text, _ in rows], [label for _, label in rows])
