"""Labelled documents and their splits. Used by `model.tasks.classification`."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from model.config import DocumentsConfig
from model.data import imdb, synthetic
from model.errors import UserError


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


def load_training(config: DocumentsConfig, data_dir: Path) -> DocumentSet:
    """Read the training documents: texts that are also in test dropped, validation cut by text.

    Copies of one text all go to the same side of the cut. Raises: UserError naming file and line.
    """
    source = _SOURCES[config.name]
    in_test = {text for text, _ in source.read(data_dir, "test")}
    kept = [(text, label) for text, label in source.read(data_dir, "train") if text not in in_test]
    validation: list[tuple[bytes, int]] = []
    train: list[tuple[bytes, int]] = []
    for text, label in kept:
        digest = hashlib.sha256(config.split_seed.to_bytes(8, "little", signed=True) + text).digest()
        is_held_out = int.from_bytes(digest[:8], "little") < config.validation_fraction * 2**64
        (validation if is_held_out else train).append((text, label))
    for name, part in (("training", train), ("validation", validation)):
        if not part:
            raise UserError(f"data.validation_fraction {config.validation_fraction} leaves no {name} document")
    return DocumentSet(_documents(train), _documents(validation), source.LABELS)


def load_test(name: str, data_dir: Path) -> Documents:
    """Read the test split; only measuring calls this."""
    return _documents(_SOURCES[name].read(data_dir, "test"))


def data_terms(name: str) -> tuple[str, bool]:
    """Terms of use of a data set, and whether they forbid commercial use."""
    return _SOURCES[name].TERMS, _SOURCES[name].NON_COMMERCIAL


def _documents(rows: list[tuple[bytes, int]]) -> Documents:
    return Documents([text for text, _ in rows], [label for _, label in rows])


_SOURCES = {"imdb": imdb, "synthetic": synthetic}
