"""Documents and their splits. Used by `model.tasks.classification`."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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

CLASSES = 20
"""Number of different numbers above which labels may be a numeric target."""
FEWEST_OF_CLASS = 10
"""Mean number of rows of each number below which numbers are a numeric target."""

Target = int | tuple[int, ...]
"""Index of the label of a document; or of any number of labels, 1 and 0 for each label of the data."""
_Rows = Sequence[tuple[bytes, Target, str]]
"""Text, target and group of documents."""


@dataclass(frozen=True)
class LabelledDocuments:
    """Raw bytes of documents, and the target of each."""

    texts: list[bytes]
    labels: Sequence[Any]
    """Targets, all of one kind."""
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
    splits: str = ""
    """Fingerprint of the training and validation documents of user data."""

    @property
    def has_several_labels(self) -> bool:
        """Whether a document may have any number of labels."""
        return any(isinstance(target, tuple) for target in self.train.labels[:1])

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
    groups_of_label: dict[Target, set[str]] = defaultdict(set)
    for _, label, group in rows:
        groups_of_label[label].add(group)
    chosen = set[str]()
    for groups in groups_of_label.values():
        order = sorted(groups, key=lambda group: digest(config.split_seed, group.encode()))
        chosen |= set(order[: round(config.validation_fraction * len(order))])
    return {text for text, group in group_of.items() if group in chosen}


def all_as_test(
    config: DocumentsConfig, file: own.ReadFile, labels: list[str], *, has_several_labels: bool = False
) -> LabelledDocuments:
    """Every labelled row of a file as a test document.

    Raises: UserError if there is none, or naming file and line of one whose only label is not in `labels`.
    """
    rows = [row for row in file.rows if row.label]
    if not rows:
        raise UserError(f"{file.path}: no label in column {config.label_column!r}")
    targets = _targets(rows, labels, has_several_labels=has_several_labels)
    found = _documents([(row.texts[0], target, "") for row, target in zip(rows, targets, strict=True)])
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
    return TextColumns(
        (config.text_column,),
        config.label_column,
        config.split_column,
        config.group_column,
        takes_lists=True,
        separator=config.label_separator,
        encoding=config.encoding,
    )


def _own(config: DocumentsConfig, source: OwnTexts) -> DocumentSet:
    """User data with its splits. A split without rows is taken from training, as a fraction of each label's texts.

    Raises: UserError naming file and line.
    """
    columns_of(config).check_groups(source.data.rows)
    rows, notes = source.split_rows(config.split_column)
    labelled, leaks = own.without_leaks([row for row in rows if row.label])
    pool = [row for row in labelled if row.split in ("", "train")]
    if labelled:
        own.check_training(source.data.path, pool, leaks)
    labels = sorted({label for row in pool for label in row.labels})
    has_several_labels = any(row.several is not None for row in labelled)
    if not has_several_labels:
        _check_classes(config, source.data.path, labels, len(pool))
    if len(labels) < 2:
        known = f"only the label {labels[0]!r}" if labels else "no label"
        needed = "; ".join(("at least two are needed", *own.missing_labels(rows)))
        raise UserError(f"{source.data.path}: {known} in column {config.label_column!r}; {needed}")
    targets = _targets(labelled, labels, has_several_labels=has_several_labels)
    missing = [name for name in PARTS if not any(row.split == name for row in labelled)]
    split = _split_off(config, pool, missing, has_several_labels=has_several_labels)
    parts: dict[str, list[tuple[bytes, Target, str]]] = {name: [] for name in own.ORDER}
    places = list[str]()
    for row, target in zip(labelled, targets, strict=True):
        part = row.split if row.split in PARTS else split[row.texts[0]]
        parts[part].append((row.texts[0], target, row.group))
        if part == "test":
            places.append(row.place)
    about = _several_notes(labelled, labels) if has_several_labels else class_notes(row.written for row in labelled)
    notes = (*about, *notes, *_notes(rows, pool, leaks))
    found = _document_set(parts, labels)
    test = replace(found.test, places=tuple(places))
    splits = own.splits_digest(*([(text,) for text in part.texts] for part in (found.train, found.validation)))
    return replace(found, test=test, notes=notes, fingerprint=source.fingerprint, splits=splits)


def _check_classes(config: DocumentsConfig, path: Path, labels: list[str], rows: int) -> None:
    """Check that labels are no numeric target: many numbers that do not number the classes. Raises: UserError."""
    try:
        numbers = sorted({float(label) for label in labels})
    except ValueError:
        return
    if len(numbers) <= CLASSES:
        return
    span = numbers[-1] - numbers[0] + 1
    is_whole = all(number.is_integer() for number in numbers)
    counts_up = is_whole and numbers[0] in (0, 1) and len(numbers) == span
    is_dense, is_rare = len(numbers) >= span / 2, rows < FEWEST_OF_CLASS * len(numbers)
    if not counts_up and (not is_whole or is_dense or is_rare):
        raise UserError(
            f"{path}: column {config.label_column!r} holds {len(numbers)} different numbers from {numbers[0]:g} to "
            f"{numbers[-1]:g}, and regression is not offered; if they are classes, write them as words, such as "
            f"class-{labels[0]}"
        )


def _targets(rows: Sequence[Example], labels: list[str], *, has_several_labels: bool) -> list[Target]:
    """Target of each row. Labels that are not in `labels` do not count if a document may have any number of them.

    Raises: UserError naming the place of a row whose only label is not in `labels`.
    """
    place = {label: number for number, label in enumerate(labels)}
    if not has_several_labels:
        for row in rows:
            if row.several is not None:
                raise UserError(f"{row.place}: the model gives one label a document, not a list of them")
            if row.label not in place:
                raise UserError(f"{row.place}: the label {row.label!r} is not in training; known: {', '.join(labels)}")
        return [place[row.label] for row in rows]
    targets = dict[tuple[str, ...], Target]()  # documents with the same labels share one
    for row in rows:
        if row.labels not in targets:
            targets[row.labels] = tuple(int(label in row.labels) for label in labels)
    return [targets[row.labels] for row in rows]


def _split_off(
    config: DocumentsConfig, pool: list[Example], missing: list[str], *, has_several_labels: bool
) -> dict[bytes, str]:
    """Split of every text of the training rows: `train`, or one of the missing splits; none is empty.

    If a document may have any number of labels, its rarest one decides, and too rare ones are in `train`.

    Raises: UserError naming the place of a label with too few texts or groups.
    """
    first: dict[bytes, Example] = {}
    for row in pool:
        first.setdefault(row.texts[0], row)
    if not missing:
        return dict.fromkeys(first, "train")
    unit_of = {text: row.group.encode() or text for text, row in first.items()}
    sizes = Counter(label for row in first.values() for label in row.labels)
    decisive = {text: min(row.labels, key=sizes.__getitem__, default="") for text, row in first.items()}
    labels = _most_frequent(decisive, unit_of)
    counts = Counter(labels.values())
    if has_several_labels:
        if not (kept := {unit: label for unit, label in labels.items() if counts[label] > len(missing)}):
            what = "groups" if config.group_column else "texts"
            raise UserError(
                f"{pool[0].place}: no label has {1 + len(missing)} different {what}; at least one needs them"
            )
        labels = kept
    for label in () if has_several_labels else sorted({row.label for row in pool}):
        if counts[label] <= len(missing):
            place = next(row.place for row in pool if row.label == label)
            what = "groups in which it is the most frequent" if config.group_column else "different texts"
            raise UserError(
                f"{place}: label {label!r} has {counts[label]} {what}; at least {1 + len(missing)} are needed"
            )
    fractions = {"test": config.test_fraction, "validation": config.validation_fraction}
    held_out = {name: fraction for name, fraction in fractions.items() if name in missing}
    split = assign(labels, held_out, config.split_seed)
    return {text: split.get(unit, "train") for text, unit in unit_of.items()}


def _most_frequent(labels: Mapping[bytes, str], unit_of: Mapping[bytes, bytes]) -> dict[bytes, str]:
    """Most frequent label of each unit (a group or a text), from the label and the unit of each text."""
    counts: dict[bytes, Counter[str]] = defaultdict(Counter)
    for text, label in labels.items():
        counts[unit_of[text]][label] += 1
    return {unit: max(sorted(found), key=found.__getitem__) for unit, found in counts.items()}


def _several_notes(rows: Sequence[Example], labels: list[str]) -> tuple[str, ...]:
    """Describe the labels of documents that may have any number of them."""
    count, none = sum(len(row.labels) for row in rows), sum(not row.labels for row in rows)
    mean = f"any number of labels a document: {count / len(rows):.2f} in the mean, {none:,} documents have none"
    known = {*labels}
    unknown = Counter(label for row in rows for label in row.labels if label not in known)
    notes = (mean, *class_notes(label for row in rows for label in row.labels))
    if dropped := Counter(word for row in rows for word in row.dropped):
        words = ", ".join(f"{word!r} {count}" for word, count in sorted(dropped.items()))
        notes += (f"{dropped.total()} labels are left out; read as missing: {words}",)
    if unknown:
        notes += (f"{unknown.total()} labels that no training document has are left out: {', '.join(sorted(unknown))}",)
    return notes


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


def _position(config: DocumentsConfig, text: bytes) -> float:
    """Number in [0, 1) that places a text in a random order."""
    return int.from_bytes(digest(config.split_seed, text)[:8], "little") / 2**64


def _documents(rows: _Rows) -> LabelledDocuments:
    texts, labels, groups = zip(*rows, strict=True) if rows else ((), (), ())
    return LabelledDocuments(list(texts), list(labels), groups if any(groups) else ())


def _document_set(parts: Mapping[str, _Rows], labels: list[str]) -> DocumentSet:
    train, validation, test = (_documents(parts[name]) for name in own.ORDER)
    return DocumentSet(train, validation, test, labels)
