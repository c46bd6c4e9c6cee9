"""Sets of labelled recordings, and recipe keys that follow from a user's: length, patches, batch size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from artifact.tables.labelled import LabelledRecording, RecordingLayout
from artifact.tables.recordings import RecordingFile, read_recordings
from model.config.data import RecordingsConfig
from model.config.models import SHORTEST
from model.config.schema import validated
from model.data.own import SPLIT_COLUMN, DataFiles
from model.data.own_recipe import RecipeKeys, name_of
from model.data.recordings import RecordingSplits, converted, split_recordings
from model.errors import UserError, reading

LONGEST_READ = 4096
"""Maximum number of steps that the model reads at once unless told otherwise; longer recordings are read in windows."""
MOST_TOKENS = 96
"""Maximum number of tokens of a recording."""
FEWEST_STEPS = 1_200
"""Number of training steps to reach."""
EPOCHS = 10
"""Number of epochs; each reads about as many recordings as there are, or more."""
LARGEST_BATCH, LARGE = 64, 1_500
"""Batch size of sets with more than LARGE recordings."""
BATCH = 16
SAMPLED = 8
"""Number of tokens that the attention samples."""


@dataclass(frozen=True)
class RecordingPart:
    """Recordings of one split."""

    values: tuple[Doubles, ...]
    """(steps, channels) of each recording, NaN if missing."""
    labels: NDArray[np.int64]
    groups: tuple[str, ...] = ()
    """Group of each recording, if there are groups: those of a group are in one fold, and in one split unless the files
    name the splits."""
    places: tuple[str, ...] = ()
    """File and line of each recording, and its name."""

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, recordings: Sequence[LabelledRecording], labels: Sequence[str]) -> "RecordingPart":
        """The recordings of a split."""
        index = {label: number for number, label in enumerate(labels)}
        return cls(
            tuple(one.values for one in recordings),
            np.array([index[one.label] for one in recordings], np.int64),
            tuple(one.group for one in recordings),
            tuple(f"{one.place}: {one.name}" if one.name else one.place for one in recordings),
        )


@dataclass(frozen=True)
class RecordingSet:
    """The recordings of one data set in their splits."""

    train: RecordingPart
    test: RecordingPart
    """Only evaluation uses it."""
    labels: list[str]
    channels: tuple[str, ...]
    rate: float | None
    """Steps per second; None if unknown."""
    notes: tuple[str, ...] = ()
    """Notes about user data to print, one per line."""
    fingerprint: str = ""
    """Fingerprint of user data."""

    @property
    def longest(self) -> int:
        """Steps of the longest training recording."""
        return max(map(len, self.train.values))

    @classmethod
    def of(cls, splits: RecordingSplits, fingerprint: str = "") -> "RecordingSet":
        """The set of recordings that have been split."""
        train, test = (RecordingPart.of(part, splits.labels) for part in (splits.train, splits.test))
        return cls(train, test, splits.labels, splits.channels, splits.rate, splits.notes, fingerprint)


@dataclass(frozen=True)
class OwnRecordings:
    """A user's files."""

    data: RecordingFile
    test: RecordingFile | None = None

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the training file."""
        return self.data.fingerprint

    def with_held_out(self, other: "OwnRecordings") -> "OwnRecordings":
        """These recordings with the test file of others."""
        return replace(self, test=other.test)

    def split(self, seed: int) -> RecordingSet:
        """Split into training and test. Raises: UserError."""
        return RecordingSet.of(split_recordings(self.data, test=self.test, seed=seed), self.fingerprint)

    def all_as_test(
        self, data: RecordingSet | None, labels: list[str], channels: Sequence[str], rate: float | None
    ) -> RecordingSet:
        """All recordings of the file as the test split of `data`; without `data`, training is empty.

        Raises: UserError naming a label or channel that the model does not know.
        """
        notes = list[str]()
        rows = [row for row in converted(self.data, channels, rate, notes) if row.label]
        if unknown := [row for row in rows if row.label not in labels]:
            raise UserError(
                f"{unknown[0].place}: the model knows the labels {', '.join(labels)}, not {unknown[0].label!r}"
            )
        test = RecordingPart.of(rows, labels)
        if data is not None:
            return replace(data, test=test)
        return RecordingSet(RecordingPart((), np.zeros(0, np.int64)), test, labels, tuple(channels), rate)


def read_own_recordings(files: DataFiles, config: RecordingsConfig, *, needs_groups: bool = True) -> OwnRecordings:
    """Read the files of a user. Raises: UserError naming file, line and column."""
    assert files.data is not None
    if files.validation is not None:
        raise UserError("--validation is for documents and pairs; settings of recordings are chosen on folds of --data")
    layout = config.layout(needs_groups=needs_groups)
    with reading():
        test = None if files.test is None else read_recordings(files.test, layout)
        return OwnRecordings(read_recordings(files.data, layout), test)


def check_columns(source: OwnRecordings, config: RecordingsConfig) -> None:
    """Check that there are the groups and splits by which training splits the recordings. Raises: UserError."""
    for option, name, texts in (
        ("--group-column", config.group_column, (one.group for one in source.data.recordings)),
        ("--set data.split_column", config.split_column, (one.split for one in source.data.recordings)),
    ):
        if name and not any(texts):
            raise UserError(f"{source.data.path}: no recording has a value of {name!r}, the {option} of training")


def read_japanese_vowels(data_dir: Path) -> RecordingSet:
    """Read Japanese Vowels: nine speakers, 12 cepstral coefficients. Raises: UserError if a file is missing."""
    paths = [data_dir / f"JapaneseVowels_{split}.ts.gz" for split in ("TRAIN", "TEST")]
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path} does not exist; --data-dir names the folder of the data sets")
    with reading():
        train, test = map(read_recordings, paths)
    return RecordingSet.of(split_recordings(train, test=test, seed=0))


def read_recordings_of(
    files: DataFiles, layout: RecordingLayout, given: Mapping[str, object]
) -> tuple[RecipeKeys, OwnRecordings]:
    """Read the user's files, and derive recipe keys from them. `given` are the keys that the user set, which win.

    Raises: UserError naming file and line, or the key that does not fit.
    """
    values = {key: value for key, value in asdict(layout).items() if key in RecordingsConfig.model_fields}
    values |= {"name": "own", "rate": layout.rate or 0.0, "test_file": files.test is not None}
    values["split_column"] = "" if files.test is not None else SPLIT_COLUMN
    values |= {key.removeprefix("data."): value for key, value in given.items() if key.startswith("data.")}
    source = read_own_recordings(files, config := validated(RecordingsConfig, "data", values))
    if not any(one.split for one in source.data.recordings):
        config = config.model_copy(update={"split_column": ""})
    lengths = [len(one.values) for one in source.data.recordings]
    keys: RecipeKeys = {f"data.{key}": value for key, value in config.model_dump(exclude={"name"}).items()}
    keys |= {"name": name_of(source.data.path, "recordings"), **model_keys(lengths, given)}
    return keys, source


def model_keys(lengths: Sequence[int], given: Mapping[str, object]) -> RecipeKeys:
    """Length, patches, batch size and steps, from the lengths of the recordings."""
    length = given.get("model.length", max(SHORTEST, min(LONGEST_READ, max(lengths))))
    if not isinstance(length, int):
        return {}  # the recipe's own check names the key
    patch = given.get("model.patch_length", patch_of(length))
    if not isinstance(patch, int) or patch < 1:
        return {"model.length": length}
    tokens = -(-length // patch)
    tokens += tokens % 2  # S3Attention needs an even number
    batch = LARGEST_BATCH if len(lengths) > LARGE else min(BATCH, max(4, len(lengths) // 4))
    steps = max(FEWEST_STEPS, EPOCHS * len(lengths) // batch)
    is_s3 = given.get("model.encoder.attention", "s3") == "s3"
    return {
        "model.length": length,
        "model.patch_length": patch,
        "model.encoder.seq_len": tokens,
        **({"model.encoder.options.num_rows": min(SAMPLED, tokens)} if is_s3 else {}),
        "training.epochs": EPOCHS,
        "training.batch_size": batch,
        "training.examples_per_epoch": batch * (steps // EPOCHS),
    }


def patch_of(length: int) -> int:
    """Shortest allowed patch length with at most MOST_TOKENS patches."""
    patch = -(-length // MOST_TOKENS)
    return next(size for size in range(patch, 2 * patch + 1) if size % math.isqrt(size) == 0)
