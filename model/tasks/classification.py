"""Documents -> labels. Used by the commands through `model.tasks`."""

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from artifact.documents import pad_rows, softmax
from artifact.manifest import ReliabilityBin, Result
from model.config.run import ClassificationRun
from model.data.documents import Documents, DocumentSet, check_labels, data_terms, load_test, load_training
from model.errors import UserError
from model.nn.classifier import ByteClassifier, WordClassifier
from model.nn.words import FOLDS, WordStem, choose
from model.tasks.base import Batch, Facts, GraphSource, Run, Task, module_runs
from model.tasks.golden import golden_documents
from model.tasks.rows import of_windows

FIRST_DOCUMENTS = 256
"""Documents that the model's scales are initialised from."""
COUNTED_DOCUMENTS = 50_000
"""Documents whose words are counted; what is counted lies in memory."""
IMBALANCE = 3
"""Ratio of class sizes beyond which accuracy would hide the small ones."""
BINS = 15
"""Of the reliability diagram."""
GROUPED_BATCHES = 32
"""Batches whose documents are sorted by length among themselves."""
CANDIDATES = 4
"""Runs of words that compete for each row of the table."""
PUBLISHED = {"imdb": "S3Attention at 4,096 bytes, r = s1 = s2 = 8: 69.27 (paper, Table 1)"}


Logits = NDArray[np.float32]


class Classification(Task[ClassificationRun]):
    """Text classification from raw bytes, longer documents in windows."""

    metric = "accuracy"
    unit = "doc"
    data: DocumentSet
    temperature = 1.0
    reliability: tuple[ReliabilityBin, ...] = ()

    def __init__(self, config: ClassificationRun) -> None:
        super().__init__(config)
        self.length = config.model.max_length
        self.overlap = config.model.max_length // 8
        self.starts_useful = config.model.kind == "words"

    def load(self, data_dir: Path) -> None:
        self.data = load_training(self.config.data, data_dir)
        size = self.config.training.batch_size
        if len(self.data.train) < size:
            raise UserError(f"{len(self.data.train)} training documents are fewer than one batch, {size}")
        sizes = np.bincount(self.data.train.labels, minlength=len(self.data.labels))
        is_imbalanced = sizes.max() > IMBALANCE * sizes.min()
        self.restore({"labels": self.data.labels, "metric": "macro_f1" if is_imbalanced else "accuracy"})

    def restore(self, facts: Facts) -> None:
        super().restore(facts)
        self.metric = facts.get("metric", "accuracy")

    def describe(self) -> str:
        found = f"{len(self.data.train)} training and {len(self.data.validation)} validation documents"
        if self.metric != "accuracy":
            found += f"; the largest class is over {IMBALANCE} times the smallest: macro F1 chooses the epoch"
        return "\n".join((found, *self.data.notes))

    def build(self) -> nn.Module:
        config, num_classes = self.config.model, len(self.facts["labels"])
        if config.kind == "words":
            return WordClassifier(config, num_classes)
        return ByteClassifier(config.encoder, num_classes)

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        count = min(FIRST_DOCUMENTS, len(self.data.train))
        documents, lengths, *_ = (part.to(device) for part in next(self._batches(count, -1)))
        if isinstance(model, ByteClassifier):
            model.standardise_head(documents, lengths)
            return
        assert isinstance(model, WordClassifier)
        num_classes = len(self.data.labels)
        hashes, evidence = choose(self._runs(model.stem), num_classes, CANDIDATES * self.config.model.stem.num_slots)
        priors = torch.bincount(torch.tensor(self.data.train.labels), minlength=num_classes) / len(self.data.train)
        model.initialise(hashes, evidence, priors.clamp(min=0.5 / len(self.data.train)))
        model.eval().standardise(documents, lengths)

    def _runs(self, stem: WordStem) -> Iterator[tuple[NDArray[np.int64], int, int]]:
        """Distinct runs of words in the heads of the training documents, with the documents' labels."""
        documents = self.data.train
        order = list(range(len(documents)))
        random.Random(self.config.seed).shuffle(order)
        for i in tqdm(order[:COUNTED_DOCUMENTS], desc="words", unit="doc", leave=False):
            text = documents.texts[i][: self.length]
            document, lengths = pad_rows([text], len(text))
            device = stem.tags.device
            hashes, _, _ = stem.runs(torch.from_numpy(document).to(device), torch.from_numpy(lengths).to(device))
            yield np.unique(hashes.cpu().numpy()), documents.labels[i], i % FOLDS

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
        """Shuffled batches, of documents of about one length; the last, smaller one is dropped.

        Shape:  yields documents (B, bucket) uint8, lengths (B,) int32, labels (B,) int64,
                folds (B,) int64.
        """
        documents, length = self.data.train, self.length
        generator = random.Random(f"{self.config.seed}-{epoch}")
        order = list(range(len(documents)))
        generator.shuffle(order)
        batches = list[list[int]]()
        for first in range(0, len(order), GROUPED_BATCHES * batch_size):
            group = order[first : first + GROUPED_BATCHES * batch_size]
            if len(self.config.model.buckets) > 1:
                group.sort(key=lambda i: min(length, len(documents.texts[i])))
            batches += [group[i : i + batch_size] for i in range(0, len(group) - batch_size + 1, batch_size)]
        generator.shuffle(batches)
        for chosen in batches:
            rows = []
            for i in chosen:
                spare = max(0, len(documents.texts[i]) - length)
                start = generator.randint(0, spare) if self.config.data.crop == "random" else 0
                rows.append(documents.texts[i][start : start + length])
            longest = max(map(len, rows))
            padded, lengths = pad_rows(rows, next(size for size in self.config.model.buckets if size >= longest))
            labels, folds = torch.tensor([(documents.labels[i], i % FOLDS) for i in chosen]).unbind(1)
            yield torch.from_numpy(padded), torch.from_numpy(lengths), labels, folds

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        documents, lengths, labels, folds = batch
        logits = model(documents, lengths, folds) if isinstance(model, WordClassifier) else model(documents, lengths)
        return nn.functional.cross_entropy(logits.float(), labels)

    def validate(self, model: nn.Module, device: torch.device) -> float:
        logits, labels = self._validation_logits(model, device)
        return FIGURES[self.metric](logits, labels)

    def _validation_logits(self, model: nn.Module, device: torch.device) -> tuple[Logits, NDArray[np.int64]]:
        """Logits (documents, classes) and labels of the validation documents."""
        documents = self.data.validation
        logits = self.logits(module_runs(self.graphs(model), device)[0], documents)
        return np.stack([rows.mean(0) for rows in logits]), np.array(documents.labels)

    def finish(self, model: nn.Module, data_dir: Path) -> None:
        """Keep the table of words in 8 bits; divide the logits by the temperature that fits validation best."""
        assert isinstance(model, WordClassifier | ByteClassifier)
        if not hasattr(self, "data"):
            labels = self.facts["labels"]
            self.load(data_dir)
            check_labels(self.data.labels, labels, data_dir)
        if isinstance(model, WordClassifier):
            model.stem.fuse()
        self.temperature = temperature(*self._validation_logits(model, torch.device("cpu")))
        model.divide_logits(self.temperature)

    def graphs(self, model: nn.Module) -> Sequence[GraphSource]:
        return [GraphSource("model", model, golden_documents(self.length), "logits", self.config.model.buckets)]

    def measure(self, runs: Sequence[Run], data_dir: Path) -> tuple[Result, ...]:
        """Figures with windows, as served by default, and with the head alone, from one pass; long documents apart."""
        documents = load_test(self.config.data, data_dir, self.facts["labels"])
        rows, labels = self.logits(runs[0], documents), np.array(documents.labels)
        windows, head = np.stack([part.mean(0) for part in rows]), np.stack([part[0] for part in rows])
        is_long = np.array([len(text) > self.length for text in documents.texts])
        self.reliability = reliability(windows, labels)
        figures = [(metric, "windows", figure(windows, labels), len(labels)) for metric, figure in FIGURES.items()]
        figures.append(("ece", "windows", calibration_error(self.reliability), len(labels)))
        figures.append(("accuracy", "head", accuracy(head, labels), len(labels)))
        if is_long.any():
            for condition, logits in (("windows", windows), ("head", head)):
                value = accuracy(logits[is_long], labels[is_long])
                figures.append(("accuracy", f"{condition}, over {self.length:,} bytes", value, int(is_long.sum())))
        return tuple(
            Result(
                metric=metric,
                value=round(value, 6),
                split="test",
                examples=examples,
                condition=condition,
                seeds=(self.config.seed,),
                compared_with=PUBLISHED.get(self.config.data.name, "nothing"),
            )
            for metric, condition, value, examples in figures
        )

    def manifest(self, runs: Sequence[Run], results: Sequence[Result], data_dir: Path, folder: Path) -> dict[str, Any]:
        del runs, results, data_dir, folder
        return {
            "labels": self.facts["labels"],
            "max_length": self.length,
            "window_overlap": self.overlap,
            "temperature": round(self.temperature, 4),
            "reliability": [part.model_dump() for part in self.reliability],
        }

    def terms(self) -> tuple[str, bool]:
        return data_terms(self.config.data.name)

    def logits(self, run: Run, documents: Documents) -> list[NDArray[np.float32]]:
        """Logits (rows, classes) of the windows of every document; the first window is its head."""
        return of_windows(run, documents.texts, self.length, self.overlap, self.config.model.buckets)


def accuracy(logits: Logits, labels: NDArray[np.int64]) -> float:
    """Share of right answers."""
    return float((logits.argmax(1) == labels).mean())


def macro_f1(logits: Logits, labels: NDArray[np.int64]) -> float:
    """Mean over the classes of 2 right / (said + true), 0 for a class that is neither."""
    answers, classes = logits.argmax(1), logits.shape[1]
    right = np.bincount(labels[answers == labels], minlength=classes)
    either = np.bincount(answers, minlength=classes) + np.bincount(labels, minlength=classes)
    return float((2 * right / np.maximum(either, 1)).mean())


FIGURES = {"accuracy": accuracy, "macro_f1": macro_f1}


def temperature(logits: Logits, labels: NDArray[np.int64]) -> float:
    """The T that makes softmax(logits / T) likeliest, within a factor of 20 of 1.

    One document more, classified by chance, is assumed: that all answers are right is no reason to be certain.

    Reference:  Guo et al. 2017, arXiv:1706.04599, sec. 4.2; the added document: Platt 1999, sec. 2.2.
    """
    inputs, target = torch.from_numpy(logits.astype(np.float64)), torch.from_numpy(labels)
    low, high = -math.log(20), math.log(20)
    doubt = 1 / (len(labels) + 1)
    for _ in range(60):  # the loss is convex in 1 / T, so its slope has one sign on either side of the best T
        middle = torch.tensor((low + high) / 2, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(
            nn.functional.cross_entropy(inputs / middle.exp(), target, label_smoothing=doubt), middle
        )
        low, high = (middle.item(), high) if slope < 0 else (low, middle.item())
    return math.exp((low + high) / 2)


def reliability(logits: Logits, labels: NDArray[np.int64]) -> tuple[ReliabilityBin, ...]:
    """Documents by the score of their answer, in BINS equal steps; empty ones left out."""
    scores, right = softmax(logits.astype(np.float64)).max(1), logits.argmax(1) == labels
    place = np.minimum((scores * BINS).astype(int), BINS - 1)
    return tuple(
        ReliabilityBin(score=scores[place == i].mean(), accuracy=right[place == i].mean(), examples=(place == i).sum())
        for i in range(BINS)
        if (place == i).any()
    )


def calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Expected calibration error: mean distance of score and accuracy, bins weighted by their documents.

    Reference:  Guo et al. 2017, arXiv:1706.04599, eq. (5).
    """
    total = sum(part.examples for part in bins)
    return sum(part.examples * abs(part.score - part.accuracy) for part in bins) / total
