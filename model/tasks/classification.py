"""Documents -> labels. Used by the commands through `model.tasks`."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.classifier import TextClassifier
from model.config import ClassificationRun
from model.data.documents import Documents, DocumentSet, data_terms, load_test, load_training
from model.errors import UserError
from model.rows import in_parallel
from model.tasks.base import Batch, GraphSource, Run, Task, module_runs
from service.codec import combine, cut, pad_rows, take
from service.manifest import Result

HEAD_DOCUMENTS = 256
"""Documents the head is initialised from."""
PUBLISHED = {"imdb": "S3Attention at 4,096 bytes, r = s1 = s2 = 8: 69.27 (paper, Table 1); TF-IDF bigrams + LR: 90.49"}


class Classification(Task):
    """Text classification from raw bytes, longer documents in windows."""

    metric = "accuracy"
    unit = "doc"
    data: DocumentSet

    def __init__(self, config: ClassificationRun) -> None:
        self.config = config
        self.length = config.model.seq_len
        self.overlap = config.model.seq_len // 8

    def load(self, data_dir: Path) -> None:
        self.data = load_training(self.config.data, data_dir)
        size = self.config.training.batch_size
        if len(self.data.train) < size:
            raise UserError(f"{len(self.data.train)} training documents are fewer than one batch, {size}")
        self.facts = {"labels": self.data.labels}

    def describe(self) -> str:
        return f"{len(self.data.train)} training and {len(self.data.validation)} validation documents"

    def build(self) -> nn.Module:
        return TextClassifier(self.config.model, len(self.facts["labels"]))

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        assert isinstance(model, TextClassifier)
        count = min(HEAD_DOCUMENTS, len(self.data.train))
        documents, lengths, _ = next(self._batches(count, -1))
        model.standardise_head(documents.to(device), lengths.to(device))

    @property
    def examples_per_epoch(self) -> int:
        training = self.config.training
        wanted = min(training.examples_per_epoch or len(self.data.train), len(self.data.train))
        return wanted // training.batch_size * training.batch_size

    def batches(self, epoch: int) -> Iterator[Batch]:
        for number, batch in enumerate(self._batches(self.config.training.batch_size, epoch)):
            if number * self.config.training.batch_size >= self.examples_per_epoch:
                return
            yield batch

    def _batches(self, batch_size: int, epoch: int) -> Iterator[Batch]:
        """Shuffled batches; the last, smaller one is dropped: BatchNorm's statistics need a full one.

        Shape:  yields documents (B, seq_len) uint8, lengths (B,) int32, labels (B,) int64.
        """
        documents, length = self.data.train, self.length
        generator = random.Random(f"{self.config.seed}-{epoch}")
        order = list(range(len(documents)))
        generator.shuffle(order)
        for first in range(0, len(order) - batch_size + 1, batch_size):
            chosen = order[first : first + batch_size]
            rows = []
            for i in chosen:
                spare = max(0, len(documents.texts[i]) - length)
                start = generator.randint(0, spare) if self.config.data.crop == "random" else 0
                rows.append(documents.texts[i][start : start + length])
            padded, lengths = pad_rows(rows, length)
            labels = torch.tensor([documents.labels[i] for i in chosen])
            yield torch.from_numpy(padded), torch.from_numpy(lengths), labels

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        documents, lengths, labels = batch
        return nn.functional.cross_entropy(model(documents, lengths).float(), labels)

    def validate(self, model: nn.Module, device: torch.device) -> float:
        documents = self.data.validation
        logits = self._logits(module_runs(self.graphs(model), device)[0], documents)
        right = (int(combine(rows).argmax()) == label for rows, label in zip(logits, documents.labels, strict=True))
        return sum(right) / len(documents)

    def graphs(self, model: nn.Module) -> Sequence[GraphSource]:
        return [GraphSource("model", model, golden_documents(self.length), "logits", self.length)]

    def measure(self, runs: Sequence[Run], data_dir: Path) -> tuple[Result, ...]:
        """Accuracy with windows, as served by default, and with the head alone, from one pass."""
        documents = load_test(self.config.data.name, data_dir)
        correct = {"windows": 0, "head": 0}
        for rows, label in zip(self._logits(runs[0], documents), documents.labels, strict=True):
            correct["windows"] += int(combine(rows).argmax()) == label
            correct["head"] += int(rows[0].argmax()) == label
        return tuple(
            Result(
                metric="accuracy",
                value=round(count / len(documents), 6),
                split="test",
                examples=len(documents),
                condition=condition,
                seeds=(self.config.seed,),
                compared_with=PUBLISHED.get(self.config.data.name, "nothing"),
            )
            for condition, count in correct.items()
        )

    def manifest(self, runs: Sequence[Run], results: Sequence[Result], data_dir: Path, folder: Path) -> dict[str, Any]:
        del runs, results, data_dir, folder
        return {"labels": self.facts["labels"], "max_length": self.length, "window_overlap": self.overlap}

    def terms(self) -> tuple[str, bool]:
        return data_terms(self.config.data.name)

    def _logits(self, run: Run, documents: Documents) -> list[NDArray[np.float32]]:
        """Logits (rows, classes) of the windows of every document; the first window is its head."""
        cuts = [cut(len(text), self.length, self.overlap, "windows") for text in documents.texts]
        rows = [take(text, spans) for text, windows in zip(documents.texts, cuts, strict=True) for spans in windows]
        table = in_parallel(lambda part: run(dict(zip(("bytes", "lengths"), part, strict=True))), rows, self.length)
        ends = np.cumsum([len(windows) for windows in cuts])
        return np.split(table, ends[:-1])


def golden_documents(length: int) -> dict[str, NDArray[Any]]:
    """Synthetic documents: every length's edge, NUL bytes, text-like and arbitrary bytes.

    Shape:  bytes (8, length) uint8, lengths (8,) int32.
    """
    generator = np.random.default_rng(0)
    text = bytes(generator.choice(list(b"etaoin shrdlu,.\n"), length).tolist())
    noise = generator.bytes(length)
    rows = [b"a", bytes(2), text[:17], text[: length // 2], noise[: length // 2 + 1], text[:-1], text, noise]
    padded, lengths = pad_rows(rows, length)
    return {"bytes": padded, "lengths": lengths}
