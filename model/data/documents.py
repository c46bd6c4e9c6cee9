"""Labelled documents and their splits. Used by `model.tasks.classification`."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from model.config.data import DocumentsConfig
from model.data import images, imdb, listops, newsgroups, own, synthetic
from model.errors import UserError

FEWEST_TEXTS = 3
"""Different texts that each label of one's own documents needs: one for each split."""

Rows = list[tuple[bytes, int]]


@dataclass(frozen=True)
class Documents:
    """Raw bytes of documents with the index of each one's label."""

    texts: list[bytes]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class DocumentSet:
    """One data set, read completely: what training may see, and the names of its labels."""

    train: Documents
    validation: Documents
    labels: list[str]
    notes: tuple[str, ...] = ()
    """What people should know about their data, a line each."""


@dataclass(frozen=True)
class _Source:
    """A data set with a split of its own."""

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


def load_training(config: DocumentsConfig, data_dir: Path) -> DocumentSet:
    """Read the training documents: texts that are also in test dropped, validation cut by text.

    Copies of one text all go to the same side of the cut. `data_dir` is the file itself for documents of one's own.

    Raises: UserError naming file and line.
    """
    if config.name == "own":
        parts = _own(config, data_dir)
        return DocumentSet(_documents(parts.train), _documents(parts.validation), parts.labels, parts.notes)
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


def load_test(config: DocumentsConfig, data_dir: Path, labels: list[str]) -> Documents:
    """Read the test split; only measuring calls this. Raises: UserError if the data have other labels."""
    if config.name == "own":
        parts = _own(config, data_dir)
        check_labels(parts.labels, labels, data_dir)
        return _documents(parts.test)
    source = _SOURCES[config.name]
    check_labels(source.labels, labels, data_dir)
    return _documents(source.read(data_dir, "test"))


def check_labels(found: list[str], expected: list[str], path: Path) -> None:
    """Raises: UserError if data have other labels than a model."""
    if found != expected:
        raise UserError(f"{path} has the labels {', '.join(found)}; the model knows {', '.join(expected)}")


def data_terms(name: str) -> tuple[str, bool]:
    """Terms of use of a data set, and whether they forbid commercial use."""
    return ("Own data." if name == "own" else _SOURCES[name].terms), False


@dataclass(frozen=True)
class _Parts:
    train: Rows
    validation: Rows
    test: Rows
    labels: list[str]
    notes: tuple[str, ...]


def _own(config: DocumentsConfig, path: Path) -> _Parts:
    """Split documents of one's own: of each label's texts, a share each for test and validation, at least one.

    Raises: UserError naming file and line.
    """
    rows = own.read(path, (config.text_column,), config.label_column)
    labelled = [row for row in rows if row[2]]
    labels = sorted({label for _, _, label in labelled})
    if len(labels) < 2:
        found = f"only the label {labels[0]!r}" if labels else "no label"
        raise UserError(f"{path}: {found} in column {config.label_column!r}; at least two are needed")
    first: dict[bytes, str] = {}
    for _, (text,), label in labelled:
        first.setdefault(text, label)
    split: dict[bytes, int] = {}
    for label in labels:
        texts = sorted((text for text in first if first[text] == label), key=lambda text: _digest(config, text))
        if len(texts) < FEWEST_TEXTS:
            place = next(place for place, _, found in labelled if found == label)
            raise UserError(
                f"{place}: label {label!r} has {len(texts)} different texts; at least {FEWEST_TEXTS} are needed"
            )
        test = max(1, round(config.test_fraction * len(texts)))
        validation = max(1, round(config.validation_fraction * len(texts)))
        if test + validation >= len(texts):
            test = validation = 1
        split |= {text: 0 if i < test else 1 if i < test + validation else 2 for i, text in enumerate(texts)}
    parts = Rows(), Rows(), Rows()
    for _, (text,), label in labelled:
        parts[split[text]].append((text, labels.index(label)))
    unlabelled = [place for place, _, label in rows if not label]
    conflicts = [place for place, (text,), label in labelled if first[text] != label]
    notes = []
    if unlabelled:
        notes.append(f"{len(unlabelled)} rows without a label are left out, the first at {unlabelled[0]}")
    if copies := len(labelled) - len(first):
        notes.append(f"{copies} rows repeat the text of another; copies are kept in one split")
    if conflicts:
        notes.append(f"{len(conflicts)} of them with another label, the first at {conflicts[0]}")
    return _Parts(parts[2], parts[1], parts[0], labels, tuple(notes))


def _digest(config: DocumentsConfig, text: bytes) -> bytes:
    """Decides where a text goes, by the seed of the split alone."""
    return hashlib.sha256(config.split_seed.to_bytes(8, "little", signed=True) + text).digest()


def _documents(rows: Rows) -> Documents:
    return Documents([text for text, _ in rows], [label for _, label in rows])
