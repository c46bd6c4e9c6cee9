"""Labelled recordings of a user and their splits."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from artifact.tables.labelled import LabelledRecording
from artifact.tables.rates import SAME_RATE, at_rate
from artifact.tables.recordings import RecordingFile
from model.data.own import SPLIT_COLUMN, SPLITS, split_of
from model.data.splits import assign, hold_out_groups
from model.errors import UserError, reading

TEST_FRACTION = 0.2
"""Fraction of the recordings of each label that is held out for the test split."""
FEWEST = 2
"""Minimum number of training recordings of a label."""


@dataclass(frozen=True)
class RecordingSplits:
    """Labelled recordings for training, and for the test of a model."""

    train: tuple[LabelledRecording, ...]
    test: tuple[LabelledRecording, ...]
    labels: list[str]
    channels: tuple[str, ...]
    rate: float | None
    """Steps per second; None if unknown."""
    notes: tuple[str, ...]
    """Notes about the files and the splits to print, one per line."""


def split_recordings(file: RecordingFile, *, test: RecordingFile | None, seed: int) -> RecordingSplits:
    """Split the recordings of a user.

    The test split is the file `test`, and what the split column names as such. If there is neither, it is a fifth of
    the recordings of each label, in whole groups if there are any. Copies of its recordings are left out of training.

    Raises: UserError naming file and line.
    """
    rows = _with_splits(file.recordings)
    notes = list(file.notes)
    if test is not None:
        notes += [f"{test.path}: {note}" for note in test.notes]
        rows += [replace(row, split="test") for row in converted(test, file.channels, file.rate, notes)]
    notes += _unlabelled(rows)
    rows = [row for row in rows if row.label]
    pool = [row for row in rows if row.split != "test"]
    labels = _labels(file, pool)
    if not any(row.split == "test" for row in rows):
        rows = _hold_out(rows, seed)
        pool = [row for row in rows if row.split != "test"]
    held_out = tuple(row for row in rows if row.split == "test")
    for row in held_out:
        if row.label not in labels:
            raise UserError(f"{row.place}: the label {row.label!r} is not in training; known: {', '.join(labels)}")
    train = _without_copies(pool, held_out, notes)
    _check_numbers(pool, train, labels)
    if shared := {row.group for row in train if row.group} & {row.group for row in held_out}:
        notes.append(f"warning: {len(shared)} groups are in training and in the test split, such as {min(shared)!r}")
    if absent := sorted({*labels} - {row.label for row in held_out}):
        notes.append(f"labels without a recording in the test split: {', '.join(absent)}")
    return RecordingSplits(tuple(train), held_out, labels, file.channels, file.rate, tuple(notes))


def _with_splits(rows: Sequence[LabelledRecording]) -> list[LabelledRecording]:
    """Recordings with the splits that they name, if any of them does. Raises: UserError."""
    if not any(row.split for row in rows):
        return list(rows)
    return [replace(row, split=split_of(row.place, row.split, SPLIT_COLUMN)) for row in rows]


def converted(
    test: RecordingFile, channels: Sequence[str], rate: float | None, notes: list[str]
) -> list[LabelledRecording]:
    """Recordings of a test file with the channels and the rate of training; adds notes. Raises: UserError."""
    if sorted(test.channels) != sorted(channels):
        raise UserError(
            f"{test.path} has the channels {', '.join(test.channels)}; those of training are {', '.join(channels)}"
        )
    order = [test.channels.index(name) for name in channels]
    rows = [replace(row, values=row.values[:, order]) for row in test.recordings]
    if rate is None or test.rate is None:
        if rate != test.rate:
            unknown = "training" if rate is None else test.path
            notes.append(f"the rate of {unknown} is unknown: all recordings are read as if they had the same rate")
        return rows
    factor = rate / test.rate
    if abs(factor - 1) > SAME_RATE:
        notes.append(f"{test.path}: resampled from {test.rate:g} to {rate:g} steps per second")
        with reading():
            rows = [at_rate(row, factor) for row in rows]
    return rows


def _unlabelled(rows: Sequence[LabelledRecording]) -> list[str]:
    """A note about the recordings without a label; none if all have one."""
    missing = [row for row in rows if not row.label]
    if not missing:
        return []
    return [
        f"{len(missing)} recordings without a label are left out, the first is {missing[0].name} at {missing[0].place}"
    ]


def _labels(file: RecordingFile, pool: Sequence[LabelledRecording]) -> list[str]:
    """Labels of the training recordings. Raises: UserError if there are fewer than two, or they are splits."""
    labels = sorted({row.label for row in pool})
    if len(labels) < 2:
        known = f"only the label {labels[0]!r}" if labels else "no label in training"
        raise UserError(f"{file.path}: {known}; at least two are needed")
    if all(label.lower() in SPLITS for label in labels):
        raise UserError(
            f"{file.path}: its labels {', '.join(labels)} are splits; name the files or folders with --data and --test"
        )
    return labels


def _hold_out(rows: Sequence[LabelledRecording], seed: int) -> list[LabelledRecording]:
    """Recordings with their splits: TEST_FRACTION of each label is held out, in whole groups if there are any.

    Raises: UserError naming a recording without a group, or a label with only one recording.
    """
    if any(row.group for row in rows):
        held_out = _groups(rows, seed)
        return [replace(row, split="test" if row.group in held_out else "train") for row in rows]
    digests = [row.digest for row in rows]  # copies are held out together
    labels = {digest: row.label for digest, row in zip(digests, rows, strict=True)}
    counts = Counter(labels.values())
    for row in rows:
        if counts[row.label] < 2:
            raise UserError(
                f"{row.place}: label {row.label!r} has {counts[row.label]} different recordings; at least 2 are needed"
            )
    split = assign(labels, {"test": TEST_FRACTION}, seed)
    return [replace(row, split=split[digest]) for digest, row in zip(digests, rows, strict=True)]


def _groups(rows: Sequence[LabelledRecording], seed: int) -> set[str]:
    """Groups that are held out. Raises: UserError naming a recording without a group, or if none can be held out."""
    labels = defaultdict[str, list[str]](list)
    for row in rows:
        if not row.group:
            raise UserError(f"{row.place}: the recording {row.name!r} has no group")
        labels[row.group].append(row.label)
    if len(labels) < 2:
        raise UserError(
            f"{rows[0].place}: the only group is {rows[0].group!r}; at least two are needed for a test split"
        )
    if not (held_out := hold_out_groups(labels, TEST_FRACTION, seed)):
        raise UserError(
            f"{rows[0].place}: no group can be held out for a test split, because each has all recordings of a label; "
            "--test names a file for the test"
        )
    return held_out


def _without_copies(
    pool: Sequence[LabelledRecording], test: Sequence[LabelledRecording], notes: list[str]
) -> list[LabelledRecording]:
    """The training recordings that are not in the test split, too; adds notes about copies."""
    in_test = {row.digest for row in test}
    first, train, conflicts = dict[bytes, LabelledRecording](), list[LabelledRecording](), list[str]()
    for row in pool:
        if (digest := row.digest) not in in_test:
            train.append(row)
            if first.setdefault(digest, row).label != row.label:
                conflicts.append(row.place)
    if leaks := len(pool) - len(train):
        notes.append(f"{leaks} recordings are left out of training: they are also in the test split")
    if copies := len(train) - len(first):
        notes.append(f"{copies} training recordings have the values of another")
    if conflicts:
        notes.append(f"{len(conflicts)} of them with another label, the first at {conflicts[0]}")
    return train


def _check_numbers(
    pool: Sequence[LabelledRecording], train: Sequence[LabelledRecording], labels: Sequence[str]
) -> None:
    """Check that each label has enough training recordings. Raises: UserError naming the first one of the label."""
    counts = Counter(row.label for row in train)
    for label in labels:
        if counts[label] < FEWEST:
            place = next(row.place for row in pool if row.label == label)
            copies = sum(row.label == label for row in pool) - counts[label]
            left_out = f", and {copies} that are also in the test split" if copies else ""
            found = f"label {label!r} has {counts[label]} training recordings{left_out}"
            raise UserError(f"{place}: {found}; at least {FEWEST} are needed")
