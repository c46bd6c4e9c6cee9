"""Labelled documents, their splits and batches. Used by `model.train` and `model.evaluate`."""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from model.config import DataConfig
from model.data import imdb, synthetic
from model.errors import UserError
from service.codec import pad_rows


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


def load_training(config: DataConfig, data_dir: Path) -> DocumentSet:
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
    """Read the test split; only `model.evaluate` calls this."""
    return _documents(_SOURCES[name].read(data_dir, "test"))


def data_terms(name: str) -> tuple[str, bool]:
    """Terms of use of a data set, and whether they forbid commercial use."""
    return _SOURCES[name].TERMS, _SOURCES[name].NON_COMMERCIAL


def batches(
    documents: Documents, seq_len: int, batch_size: int, crop: str, seed: tuple[int, int]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Shuffled training batches of one epoch, the same for the same `seed` (run seed, epoch).

    The last, smaller batch is dropped: BatchNorm's statistics need a full one.

    Shape:  yields documents (B, seq_len) uint8, lengths (B,) int32, labels (B,) int64.
    """
    generator = random.Random(f"{seed[0]}-{seed[1]}")
    order = list(range(len(documents)))
    generator.shuffle(order)
    for first in range(0, len(order) - batch_size + 1, batch_size):
        chosen = order[first : first + batch_size]
        rows = []
        for i in chosen:
            spare = max(0, len(documents.texts[i]) - seq_len)
            start = generator.randint(0, spare) if crop == "random" else 0
            rows.append(documents.texts[i][start : start + seq_len])
        padded, lengths = pad_rows(rows, seq_len)
        labels = torch.tensor([documents.labels[i] for i in chosen])
        yield torch.from_numpy(padded), torch.from_numpy(lengths), labels


def _documents(rows: list[tuple[bytes, int]]) -> Documents:
    return Documents([text for text, _ in rows], [label for _, label in rows])


_SOURCES = {"imdb": imdb, "synthetic": synthetic}
