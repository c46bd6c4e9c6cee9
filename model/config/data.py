"""`[data]`: data sections of the recipes of each task."""

from dataclasses import fields
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from artifact.encodings import RAW, codec_of
from artifact.errors import InvalidInput
from artifact.series import IRREGULAR, Layout, parse_frequency
from artifact.tables.labelled import RecordingLayout
from model.config.schema import Count, CountOrZero, Fraction, NotNegative, Section, Share

OWN = ("own", "csv")
"""Values of `data.name` that stand for the file or folder given by --data."""


def _encoding(value: str) -> str:
    if value in ("", RAW):
        return value
    if not (codec := codec_of(value)):
        raise ValueError(f"must be an encoding such as utf-16, latin-1 or cp1252, not {value!r}")
    return codec


Encoding = Annotated[str, AfterValidator(_encoding)]
"""Encoding of own data that has no byte order mark; empty for UTF-8, or UTF-16 and UTF-32 where their zero bytes tell
them; `bytes` for documents as they are."""


class DocumentsConfig(Section):
    """Source and splits of labelled documents."""

    name: Literal[
        "imdb",
        "20newsgroups",
        "20newsgroups-stripped",
        "listops",
        "listops-short",
        "cifar10-gray",
        "scotus",
        "un-debate",
        "un-debate-country",
        "synthetic",
        "own",
    ]
    """Data set, found in `--data-dir` or LONGDOC_DATA. `own` reads the file or folder given by --data."""
    validation_fraction: Fraction = 0.1
    """Fraction of the training documents used for validation; for `own`, of all documents."""
    test_fraction: Fraction = 0.1
    """Fraction of `own` used for testing; the other data sets have a test split."""
    text_column: str = "text"
    label_column: str = "label"
    """Column names of `own`."""
    label_separator: str = ""
    """What separates the labels of a document of `own`, of which there may be any number; empty for one label, or for
    lists of labels."""
    split_column: str = ""
    """Column of `own` that assigns rows to train, validation and test; empty to split by a hash of the texts."""
    group_column: str = ""
    """Column of `own` with the group of each row, such as its author: all rows of a group go to the same split."""
    encoding: Encoding = ""
    """Encoding of `own`."""
    groups: bool = False
    """Whether all documents of a group go to the same split, for a data set that has groups: `imdb`, whose groups are
    consecutive files, because reviews of a film are."""
    validation_file: bool = False
    test_file: bool = False
    """Whether --validation and --test name files of their own."""
    final_fit: bool = False
    """Whether to train a second model on all rows of `own` and export it; the results remain those of the first."""
    crop: Literal["head", "random"] = "random"
    """Crop of training documents longer than the model's input: their head, or a new random position each time."""
    unlabelled: bool = False
    """Whether the second view (model.vector_view) also learns from unlabelled documents: those of the data set, or for
    `own` those that --unlabelled names."""
    split_seed: int = 0
    """Seed of the validation split, separate from the training seed so that all seeds share the split."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.validation_fraction + self.test_fraction >= 1.0:
            raise ValueError("validation_fraction and test_fraction must leave documents for training")
        _check_own(self)
        if self.groups and self.name != "imdb":
            raise ValueError(f"groups must be false for data.name {self.name!r}; only 'imdb' has them")
        return self


class PairsConfig(Section):
    """Source and splits of document pairs."""

    name: Literal["aan", "synthetic-pairs", "own"]
    """Data set, found in `--data-dir` or LONGDOC_DATA. `own` reads the file given by --data."""
    max_bytes: Count = 4000
    """Maximum bytes read of each document, in training and evaluation."""
    disjoint: bool = False
    """Whether to use only pairs whose cited paper belongs to their split, so that no paper is in two splits."""
    text_column: str = "text_a"
    other_column: str = "text_b"
    negative_column: str = ""
    """Column of `own` with a text that does not belong to the first one; the second one then does, and there are no
    labels. Empty if there are labels."""
    label_column: str = "label"
    """Column names of `own`; labels are yes or no, or degrees."""
    graded: bool = False
    """Whether the labels of `own` are degrees from 0 to 1."""
    hard_negatives: CountOrZero = 0
    """Number of similar texts of `own` that are added as negatives for each pair that belongs together."""
    split_column: str = ""
    validation_file: bool = False
    test_file: bool = False
    final_fit: bool = False
    encoding: Encoding = ""
    """As for documents."""
    split_seed: int = 0
    """Seed of the splits of `own`."""
    terms: str = ""
    """Terms of use of `own`, which the exported model states."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.disjoint and self.name == "own":
            raise ValueError("disjoint must be false for data.name 'own'")
        if self.graded and self.negative_column:
            raise ValueError("graded must be false with a negative_column, whose pairs do not belong together")
        _check_own(self)
        return self


def _check_own(section: DocumentsConfig | PairsConfig) -> None:
    """Check that keys of user data are not set for a data set. Raises: ValueError."""
    for key in (
        "label_separator",
        "negative_column",
        "graded",
        "hard_negatives",
        "split_column",
        "group_column",
        "validation_file",
        "test_file",
        "final_fit",
        "encoding",
        "terms",
    ):
        if getattr(section, key, "") and section.name != "own":
            raise ValueError(f"{key} must not be set for data.name {section.name!r}; only 'own' has it")


class RecordingsConfig(Section):
    """Source of labelled recordings."""

    name: Literal["japanese-vowels", "own"]
    """Data set, found in `--data-dir` or LONGDOC_DATA. `own` reads the file or folder given by --data."""
    label_column: str = "label"
    group_column: str = ""
    split_column: str = ""
    id_column: str = ""
    time_column: str = ""
    """Columns of `own`, as `artifact.tables.labelled.RecordingLayout`."""
    channels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    ignore: Annotated[tuple[str, ...], Field(strict=False)] = ()
    day_first: bool = False
    encoding: Encoding = ""
    rate: NotNegative = 0.0
    """Steps per second of `own`; 0 if unknown, or by its time column."""
    test_file: bool = False
    """Whether --test names a file of its own."""
    split_seed: int = 0
    """Seed of the split of `own` into training and test, and of the folds."""

    def layout(self, *, needs_groups: bool = True) -> RecordingLayout:
        """How the files of `own` hold recordings."""
        return RecordingLayout(
            id_column=self.id_column,
            time_column=self.time_column,
            label_column=self.label_column,
            group_column=self.group_column,
            needs_groups=needs_groups,
            split_column=self.split_column,
            channels=self.channels,
            ignore=self.ignore,
            rate=self.rate or None,
            encoding=self.encoding,
            day_first=self.day_first,
        )


SeriesName = Literal["ettm2", "exchange", "weather", "ili", "synthetic-series", "csv"]


def _frequency(value: str) -> str:
    try:
        _ = value in ("", IRREGULAR) or parse_frequency(value)
    except InvalidInput:
        raise ValueError(
            "must be a number and one of ms, s, min, h, d, b (business days), w, mo, q, y, such as 15min or 1mo, not "
            f"{value!r}"
        ) from None
    return value


class SeriesConfig(Section):
    """Source and splits by time of a series."""

    name: SeriesName
    """Data set, found in `--data-dir` or LONGDOC_DATA. `csv` reads the file given by --data."""
    time_column: str = ""
    """Time column of `csv`; default: the column that holds times."""
    id_column: str = ""
    target_column: str = ""
    """Columns of a long `csv` with the name of each row's series, and its value."""
    channels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Channels of `csv`; default: all columns of numbers, or all series of a long table."""
    ignore: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Columns of `csv` that are left out."""
    day_first: bool = False
    """Whether dates of `csv` such as 31/12/2024 begin with the day."""
    frequency: Annotated[str, AfterValidator(_frequency)] = ""
    """Time step of `csv`; default: inferred from the time column."""
    encoding: Encoding = ""
    """Encoding of `csv`."""
    fill: bool = False
    """Whether missing cells and rows of `csv` are interpolated."""
    train_fraction: Fraction = 0.7
    validation_fraction: Fraction = 0.1
    """Fractions of the rows, in temporal order; ETTm2 uses its authors' split instead."""

    @property
    def layout(self) -> Layout:
        """How `csv` holds the series."""
        return Layout(**{field.name: getattr(self, field.name) for field in fields(Layout)})

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.train_fraction + self.validation_fraction >= 1.0:
            raise ValueError("train_fraction and validation_fraction must leave rows for the test split")
        return self


class GeneratedSeriesConfig(Section):
    """Series that are generated while a forecaster of any series is trained (model.data.synthetic_univariate)."""

    name: Literal["synthetic-univariate"]
    workers: CountOrZero = 0
    """Processes that generate the series; with 0, the training process does. A GPU needs several."""
    series_share: Share = 0.0
    """Share of the series of those lengths that the user's series have, which are drawn from the files of --series."""
