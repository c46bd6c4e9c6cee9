"""Files of labelled recordings: several channels over time, with one label each."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from artifact.arrays import Doubles
from artifact.errors import InputError
from artifact.tables.archives import read_ts, read_ucr
from artifact.tables.labelled import PLAIN, Contents, LabelledRecording, RecordingLayout
from artifact.tables.labels import class_notes
from artifact.tables.rates import equal_steps
from artifact.tables.recording_folders import read_folder
from artifact.tables.recording_tables import read_table
from artifact.tables.streams import TS, kind_of

__all__ = ["LabelledRecording", "RecordingFile", "RecordingLayout", "read_recordings"]

SHOWN_CHANNELS = 20
"""Maximum number of channels that a note lists."""


@dataclass(frozen=True)
class RecordingFile:
    """The recordings of a file or folder."""

    path: Path
    channels: tuple[str, ...]
    rate: float | None
    """Steps per second; None if unknown."""
    recordings: tuple[LabelledRecording, ...]
    notes: tuple[str, ...]
    """What was read, and what was left out or changed."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the values and labels of the recordings in any order."""
        digests = (hashlib.sha256(one.digest + one.label.encode()).digest() for one in self.recordings)
        return hashlib.sha256(b"".join(sorted(digests))).hexdigest()


def read_recordings(path: Path, layout: RecordingLayout = PLAIN) -> RecordingFile:
    """Read labelled recordings of a `.ts` file, a table, or a folder of tables.

    Steps without any value at the end of a recording are left out. Times become equal steps.

    Raises: InputError naming file, line and column.
    """
    if layout.rate is not None and not 0 < layout.rate < np.inf:
        raise InputError(f"--rate must be a positive number of steps per second, not {layout.rate:g}")
    contents = _without_ends(_contents(path, layout))
    if not contents.recordings:
        raise InputError(f"{path} has no recordings")
    for recording in contents.recordings:
        if (empty := np.isnan(recording.values).all(axis=0)).any():
            channel, name = contents.channels[int(empty.argmax())], recording.name
            missing = "has no values" if empty.all() else f"has no value of the channel {channel!r}"
            raise InputError(f"{recording.place}: the recording {name!r} {missing}")
    if layout.needs_labels and not any(recording.label for recording in contents.recordings):
        raise InputError(f"{path}: no recording has a label")
    recordings, rate, notes = equal_steps(contents, layout.rate)
    told = (_counts(contents), *notes, *_missing(contents), *contents.notes)
    if layout.needs_labels:
        told += class_notes(recording.label for recording in recordings if recording.label)
    return RecordingFile(path, contents.channels, rate, tuple(recordings), told)


def _contents(path: Path, layout: RecordingLayout) -> Contents:
    """The recordings of a file or folder as they are written. Raises: InputError."""
    if path.is_dir():
        return read_folder(path, layout)
    kind = kind_of(path.name)
    if kind == TS:
        return read_ts(path, layout)
    if kind == ".tsv" and (found := read_ucr(path, layout)):
        return found
    return read_table(path, layout)


def _without_ends(contents: Contents) -> Contents:
    """The recordings without the steps at the end in which all channels are missing."""
    lengths = [_length(recording.values) for recording in contents.recordings]
    recordings = [
        recording if length == len(recording.values) else replace(recording, values=recording.values[:length])
        for recording, length in zip(contents.recordings, lengths, strict=True)
    ]
    times = contents.times and [times[:length] for times, length in zip(contents.times, lengths, strict=True)]
    return replace(contents, recordings=recordings, times=times)


def _length(values: Doubles) -> int:
    """Number of steps up to the last value, at least 1."""
    if not np.isnan(values[-1]).all():
        return len(values)
    known = np.flatnonzero(~np.isnan(values).all(axis=1))
    return int(known[-1]) + 1 if len(known) else 1


def _counts(contents: Contents) -> str:
    """Note on the numbers of recordings, channels and steps."""
    lengths = sorted(len(recording.values) for recording in contents.recordings)
    shortest, median, longest = lengths[0], lengths[len(lengths) // 2], lengths[-1]
    steps = f"{longest:,} steps" if shortest == longest else f"{shortest:,} to {longest:,} steps (median {median:,})"
    names = contents.channels
    more = f" and {len(names) - SHOWN_CHANNELS} more" if len(names) > SHOWN_CHANNELS else ""
    count = "1 recording" if len(lengths) == 1 else f"{len(lengths):,} recordings"
    return f"{count} of {steps}; channels: {', '.join(names[:SHOWN_CHANNELS])}{more}"


def _missing(contents: Contents) -> list[str]:
    """A note on the missing values; none if there are none."""
    counts = [int(np.isnan(recording.values).sum()) for recording in contents.recordings]
    if not (total := sum(counts)):
        return []
    share = total / sum(recording.values.size for recording in contents.recordings)
    return [f"missing values: {total:,} ({share:.1%}), in {sum(map(bool, counts)):,} of {len(counts):,} recordings"]
