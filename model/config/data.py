"""`[data]` of each task's recipes."""

from typing import Literal, Self

from pydantic import model_validator

from model.config.schema import Count, Fraction, Section


class DocumentsConfig(Section):
    """Which documents are read and how they are cut."""

    name: Literal[
        "imdb", "20newsgroups", "20newsgroups-stripped", "listops", "listops-short", "cifar10-gray", "synthetic", "own"
    ]
    """Data set; `--data-dir` or LONGDOC_DATA says where its files lie. `own` is the file or folder given by --data."""
    validation_fraction: Fraction = 0.1
    """Share of the training documents held out for model selection; of all of `own`."""
    test_fraction: Fraction = 0.1
    """Share of `own` held out for measuring; the other data sets have their own."""
    text_column: str = "text"
    label_column: str = "label"
    """Columns of `own`."""
    crop: Literal["head", "random"] = "random"
    """What training sees of a document longer than seq_len: its head, or another stretch of it each time."""
    split_seed: int = 0
    """Seed of the validation split, apart from the training seed so that runs share it."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.validation_fraction + self.test_fraction >= 1.0:
            raise ValueError("validation_fraction and test_fraction must leave documents for training")
        return self


class PairsConfig(Section):
    """Which pairs of documents are read."""

    name: Literal["aan", "synthetic-pairs", "own"]
    """Data set; `--data-dir` or LONGDOC_DATA says where its files lie. `own` is the file given by --data."""
    max_bytes: Count = 4000
    """What is used of each document, in training and when measured."""
    disjoint: bool = False
    """Whether training leaves out the papers of the disjoint validation and test pairs."""
    text_column: str = "text_a"
    other_column: str = "text_b"
    label_column: str = "label"
    """Columns of `own`; labels are 0 and 1."""
    split_seed: int = 0
    """Seed of the splits of `own`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.disjoint and self.name == "own":
            raise ValueError("disjoint must be false for pairs of one's own")
        return self


SeriesName = Literal["ettm2", "exchange", "weather", "ili", "synthetic-series", "csv"]


class SeriesConfig(Section):
    """Which series is read and how it is split by time."""

    name: SeriesName
    """Data set; `--data-dir` or LONGDOC_DATA says where its file lies. `csv` is the file given by --data."""
    time_column: str = ""
    """Of `csv`; by default its first column."""
    train_fraction: Fraction = 0.7
    validation_fraction: Fraction = 0.1
    """Shares of the rows, in order; ETTm2 has the split of its authors instead."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.train_fraction + self.validation_fraction >= 1.0:
            raise ValueError("train_fraction and validation_fraction must leave rows for the test")
        return self
