"""Documents and their splits. Used by `model.tasks.classification`."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from artifact.tables.labels import class_notes
from model.config.data import DocumentsConfig
from model.data import images, imdb, listops, long_documents, newsgroups, own, synthetic
from model.data.lines import TRAIN_TEST, LabelledLines
from model.data.own import Example, OwnTexts, TextColumns
from model.data.splits import assign, digest, partition
from model.errors import UserError

PARTS = ("validation", "test")
VALIDATION_PARTS = 10
"""Number of parts of the documents that are not held out, one of which is for validation."""

_Rows = list[tuple[bytes, int, str]]
"""Text, index of the label and group of documents."""


@dataclass(frozen=True)
class LabelledDocuments:
    """Raw bytes of documents, and the index of each document's label."""

    texts: list[bytes]
    labels: list[int]
    groups: tuple[str, ...] = ()
    """Group of each document, if the data has groups: the documents of a group are never in two splits or folds."""
    places: tuple[str, ...] = ()
    """File and line of each document, for test documents of user data."""

    def __len__(self) -> int:
        return len(self.texts)

    def of(self, rows: Iterable[int]) -> "LabelledDocuments":
        """Only some of the documents."""
        kept = list(rows)
        groups = tuple(self.groups[i] for i in kept) if self.groups else ()
        return LabelledDocuments([self.texts[i] for i in kept], [self.labels[i] for i in kept], groups)

    def partition(self, count: int) -> list["LabelledDocuments"]:
        """Parts of about the same size, with the classes spread evenly; copies and groups stay together."""
        unit: dict[bytes | str, int] = {}
        units = np.array([unit.setdefault(key, len(unit)) for key in self.groups or self.texts])
        return [self.of(part) for part in partition(np.array(self.labels), units, count)]


@dataclass(frozen=True)
class DocumentSet:
    """The documents of one data set in their splits, with its label names."""

    train: LabelledDocuments
    validation: LabelledDocuments
    test: LabelledDocuments
    """Only evaluation uses it."""
    labels: list[str]
    unlabelled: tuple[bytes, ...] = ()
    """Distinct texts, none of which is in a labelled split."""
    notes: tuple[str, ...] = ()
    """Notes about user data to print, one per line."""
    fingerprint: str = ""
    """Fingerprint of user data."""

    def joined(self) -> "DocumentSet":
        """The same data with the documents of all splits as training documents, without groups."""
        return replace(self, train=replace(_joined(self.train, self.validation, self.test), groups=()))

    def folds(self, count: int) -> Iterator["DocumentSet"]:
        """Each of `count` parts of the training and validation documents as test split of a model of the others.

        A tenth of the others is for validation, as in a split of the user's file.
        """
        parts = _joined(self.train, self.validation).partition(count)
        for number, held_out in enumerate(parts):
            validation, *train = _joined(*parts[:number], *parts[number + 1 :]).partition(VALIDATION_PARTS)
            yield replace(self, train=_joined(*train), validation=validation, test=held_out)


@dataclass(frozen=True)
class _Generated:
    """A data set without groups that one function reads."""

    labels: list[str]
    terms: str
    function: Callable[[Path, str], list[tuple[bytes, int]]]
    splits: Mapping[str, str] = field(default_factory=lambda: TRAIN_TEST)
    non_commercial: bool = False

    def read(self, data_dir: Path, split: str) -> _Rows:
        return [(*row, "") for row in self.function(data_dir, split)]


_SOURCES: dict[str, LabelledLines | _Generated] = {
    "imdb": imdb.IMDB,
    "20newsgroups": newsgroups.POSTS,
    "20newsgroups-stripped": newsgroups.STRIPPED,
    "listops": _Generated(listops.LABELS, listops.TERMS, listops.read),
    "listops-short": _Generated(listops.LABELS, listops.TERMS, listops.read_short),
    "cifar10-gray": _Generated(images.LABELS, images.TERMS, images.read),
    "synthetic": _Generated(synthetic.LABELS, synthetic.TERMS, synthetic.read),
    "scotus": long_documents.SCOTUS,
    "un-debate": long_documents.UN_DEBATE,
    "un-debate-country": long_documents.UN_DEBATE_COUNTRY,
}


def _joined(*parts: LabelledDocuments) -> LabelledDocuments:
    """The documents of several splits."""
    groups = tuple(group for part in parts for group in part.groups)
    texts, labels = [text for part in parts for text in part.texts], [i for part in parts for i in part.labels]
    return LabelledDocuments(texts, labels, groups)


def load_documents(config: DocumentsConfig, source: OwnTexts | Path) -> DocumentSet:
    """Split user texts, or read a data set from the folder of the data sets.

    Texts of the test split are left out of training and validation. All copies of a text are in the same split, and so
    are the documents of a group.

    Raises: UserError naming file and line.
    """
    return _own(config, source) if isinstance(source, OwnTexts) else _public(config, source)


def with_unlabelled(config: DocumentsConfig, data: DocumentSet, source: OwnTexts | Path) -> DocumentSet:
    """The data with its unlabelled documents, without texts that occur in a labelled split.

    Raises: UserError if there are none, or naming file and line of a bad row.
    """
    if isinstance(source, OwnTexts):
        if source.unlabelled is None:
            raise UserError("data.unlabelled needs a file of unlabelled documents; name it with --unlabelled")
        place, found = source.unlabelled.path, [row.texts[0] for row in source.unlabelled.rows]
    elif config.name == "imdb":
        place, found = source, imdb.read_unlabelled(source)
    else:
        raise UserError(f"data.unlabelled must be false for data.name {config.name!r}: it has no unlabelled documents")
    labelled = {*data.train.texts, *data.validation.texts, *data.test.texts}
    texts = tuple(text for text in dict.fromkeys(found) if text not in labelled)
    if not texts:
        raise UserError(f"{place}: all unlabelled texts also occur in the labelled data")
    return replace(data, unlabelled=texts)


def _public(config: DocumentsConfig, data_dir: Path) -> DocumentSet:
    """Read a data set and split off validation if it has none. Raises: UserError naming file and line."""
    source = imdb.GROUPED if config.groups else _SOURCES[config.name]
    parts = {split: source.read(data_dir, split) for split in source.splits.values()}
    if "validation" in parts:
        return _document_set(parts, source.labels)
    in_test = {text for text, _, _ in parts["test"]}
    kept = [row for row in parts["train"] if row[0] not in in_test]
    if config.groups:
        held_out_texts = _texts_of_groups(config, kept)
    else:
        held_out_texts = {text for text, _, _ in kept if _position(config, text) < config.validation_fraction}
    for name, is_held_out in (("train", False), ("validation", True)):
        parts[name] = [row for row in kept if (row[0] in held_out_texts) == is_held_out]
        if not parts[name]:
            raise UserError(f"data.validation_fraction {config.validation_fraction} leaves no {name} document")
    return _document_set(parts, source.labels)


def _texts_of_groups(config: DocumentsConfig, rows: _Rows) -> set[bytes]:
    """Texts of the groups that are held out for validation: of each label, the same fraction of its groups."""
    group_of = {text: group for text, _, group in reversed(rows)}
    groups_of_label: dict[int, set[str]] = defaultdict(set)
    for _, label, group in rows:
        groups_of_label[label].add(group)
    chosen = set[str]()
    for groups in groups_of_label.values():
        order = sorted(groups, key=lambda group: digest(config.split_seed, group.encode()))
        chosen |= set(order[: round(config.validation_fraction * len(order))])
    return {text for text, group in group_of.items() if group in chosen}


def all_as_test(config: DocumentsConfig, file: own.ReadFile, labels: list[str]) -> LabelledDocuments:
    """Every labelled row of a file as a test document.

    Raises: UserError if there is none, or naming file and line of one whose label is not in `labels`.
    """
    rows = [row for row in file.rows if row.label]
    if not rows:
        raise UserError(f"{file.path}: no label in column {config.label_column!r}")
    _check_known(rows, labels)
    found = _documents([(row.texts[0], labels.index(row.label), "") for row in rows])
    return replace(found, places=tuple(row.place for row in rows))


def check_labels(found: list[str], expected: list[str], path: Path) -> None:
    """Check the labels of the data against those of a model. Raises: UserError."""
    if found != expected:
        raise UserError(f"{path} has the labels {', '.join(found)}; the model knows {', '.join(expected)}")


def data_terms(name: str) -> tuple[str, bool]:
    """Terms of use of a data set, and whether they forbid commercial use."""
    if name == "own":
        return "Own data.", False
    return _SOURCES[name].terms, _SOURCES[name].non_commercial


def columns_of(config: DocumentsConfig) -> TextColumns:
    """Columns of user data that training reads."""
    columns = TextColumns((config.text_column,), config.label_column, config.split_column, config.group_column)
    return replace(columns, encoding=config.encoding)


def _own(config: DocumentsConfig, source: OwnTexts) -> DocumentSet:
    """User data with its splits. A split without rows is taken from training, as a fraction of each label's texts.

    Raises: UserError naming file and line.
    """
    columns_of(config).check_groups(source.data.rows)
    rows, notes = source.split_rows(config.split_column)
    labelled, leaks = own.without_leaks([row for row in rows if row.label])
    pool = [row for row in labelled if row.split in ("", "train")]
    labels = sorted({row.label for row in pool})
    if len(labels) < 2:
        known = f"only the label {labels[0]!r}" if labels else "no label"
        raise UserError(f"{source.data.path}: {known} in column {config.label_column!r}; at least two are needed")
    _check_known(labelled, labels)
    split = _split_off(config, pool, [name for name in PARTS if not any(row.split == name for row in labelled)])
    parts: dict[str, _Rows] = {name: [] for name in own.ORDER}
    places = list[str]()
    for row in labelled:
        part = row.split if row.split in PARTS else split[row.texts[0]]
        parts[part].append((row.texts[0], labels.index(row.label), row.group))
        if part == "test":
            places.append(row.place)
    notes = (*class_notes(row.written for row in labelled), *notes, *_notes(rows, pool, leaks))
    found = _document_set(parts, labels)
    test = replace(found.test, places=tuple(places))
    return replace(found, test=test, notes=notes, fingerprint=source.fingerprint)


def _split_off(config: DocumentsConfig, pool: list[Example], missing: list[str]) -> dict[bytes, str]:
    """Split of every text of the training rows: `train`, or one of the missing splits; none is empty.

    Raises: UserError naming the place of a label with too few texts or groups.
    """
    first: dict[bytes, Example] = {}
    for row in pool:
        first.setdefault(row.texts[0], row)
    if not missing:
        return dict.fromkeys(first, "train")
    unit_of = {text: row.group.encode() or text for text, row in first.items()}
    labels = _most_frequent({text: row.label for text, row in first.items()}, unit_of)
    counts = Counter(labels.values())
    for label in sorted({row.label for row in pool}):
        if counts[label] <= len(missing):
            place = next(row.place for row in pool if row.label == label)
            what = "groups in which it is the most frequent" if config.group_column else "different texts"
            raise UserError(
                f"{place}: label {label!r} has {counts[label]} {what}; at least {1 + len(missing)} are needed"
            )
    fractions = {"test": config.test_fraction, "validation": config.validation_fraction}
    held_out = {name: fraction for name, fraction in fractions.items() if name in missing}
    split = assign(labels, held_out, config.split_seed)
    return {text: split[unit] for text, unit in unit_of.items()}


def _most_frequent(labels: Mapping[bytes, str], unit_of: Mapping[bytes, bytes]) -> dict[bytes, str]:
    """Most frequent label of each unit (a group or a text), from the label and the unit of each text."""
    counts: dict[bytes, Counter[str]] = defaultdict(Counter)
    for text, label in labels.items():
        counts[unit_of[text]][label] += 1
    return {unit: max(sorted(found), key=found.__getitem__) for unit, found in counts.items()}


def _notes(rows: list[Example], pool: list[Example], leaks: int) -> tuple[str, ...]:
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


def _check_known(rows: list[Example], labels: list[str]) -> None:
    """Check that no row has a label outside `labels`. Raises: UserError naming its place."""
    for row in rows:
        if row.label not in labels:
            raise UserError(f"{row.place}: the label {row.label!r} is not in training; known: {', '.join(labels)}")


def _position(config: DocumentsConfig, text: bytes) -> float:
    """Number in [0, 1) that places a text in a random order."""
    return int.from_bytes(digest(config.split_seed, text)[:8], "little") / 2**64


def _documents(rows: _Rows) -> LabelledDocuments:
    texts, labels, groups = zip(*rows, strict=True) if rows else ((), (), ())
    return LabelledDocuments(list(texts), list(labels), groups if any(groups) else ())


def _document_set(parts: Mapping[str, _Rows], labels: list[str]) -> DocumentSet:
    train, validation, test = (_documents(parts[name]) for name in own.ORDER)
    return DocumentSet(train, validation, test, labels)
