"""Text classification: documents -> labels. Used by the commands through `model.tasks`."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.documents import pad_rows, softmax
from artifact.encodings import RAW
from artifact.manifest import Result
from artifact.tasks.classification import ReliabilityBin
from model.config.data import DocumentsConfig
from model.config.run import ClassificationRun
from model.data.documents import (
    Documents,
    DocumentSet,
    check_labels,
    data_terms,
    fingerprint,
    load_test,
    load_training,
)
from model.errors import UserError
from model.nn.classifier import STRETCH_BYTES, ByteClassifier, WordClassifier
from model.tasks import tfidf
from model.tasks.base import BASELINE, Batch, ExportGraph, Facts, Run, TextTask, module_runs
from model.tasks.golden import golden_documents
from model.tasks.rows import run_on_windows

INITIAL_DOCUMENTS = 256
"""Number of documents for the data-dependent initialisation."""
IMBALANCE = 3
"""Ratio of the largest to the smallest class above which macro F1 replaces accuracy for validation."""
BINS = 15
"""Number of bins of the reliability diagram."""
GROUPED_BATCHES = 32
"""Number of batches whose documents are sorted by length together."""
NGRAMS = "ngram_view"
"""Key of a fact: hyperparameters of the n-gram view that training chose."""
HAS_VECTOR_VIEW = "has_vector_view"
"""Key of a fact: whether training kept the vector view."""
RIVALS = {
    "imdb": "fastText-like 0.9073, TF-IDF and logistic regression 0.9049",
    "20newsgroups": "TF-IDF and logistic regression 0.8514",
    "20newsgroups-stripped": "TF-IDF and logistic regression 0.7004",
    "scotus": "TF-IDF and logistic regression in windows 0.677",
    "un-debate": "TF-IDF and logistic regression in windows 0.942",
    "un-debate-country": "TF-IDF and logistic regression of the whole 0.650",
}
"""Accuracy of the strongest other models on the same test split, by data set (benchmarks/results: `alternatives`,
`text_tfidf`, `long_documents`)."""


Logits = NDArray[np.float32] | NDArray[np.float64]


class Classification(TextTask[ClassificationRun]):
    """Text classification from raw bytes; longer documents are split into windows."""

    metric = "accuracy"
    unit = "doc"
    data: DocumentSet
    temperature = 1.0
    reliability: tuple[ReliabilityBin, ...] = ()

    def __init__(self, config: ClassificationRun) -> None:
        super().__init__(config)
        self.length = config.model.max_length
        self.overlap = config.model.max_length // 8
        self.has_fixed_shapes = config.model.kind == "bytes"

    @property
    def _source(self) -> DocumentsConfig:
        """Where the documents come from. A model of bytes reads them as they are."""
        data = self.config.data
        return data.model_copy(update={"encoding": RAW}) if self.config.model.kind == "bytes" else data

    def load(self, data_dir: Path) -> None:
        self.data = load_training(self._source, data_dir, self.held_out)
        size = self.config.training.batch_size
        if self.config.model.kind == "bytes" and len(self.data.train) < size:
            raise UserError(f"{len(self.data.train)} training documents are fewer than one batch, {size}")
        sizes = np.bincount(self.data.train.labels, minlength=len(self.data.labels))
        is_imbalanced = sizes.max() > IMBALANCE * sizes.min()
        metric = "macro_f1" if is_imbalanced else "accuracy"
        self.restore({**getattr(self, "facts", {}), "labels": self.data.labels, "metric": metric})
        if self.data.fingerprint:
            self.check_fingerprint(self.data.fingerprint, data_dir)

    def restore(self, facts: Facts) -> None:
        super().restore(facts)
        self.metric = facts.get("metric", "accuracy")

    def describe(self) -> str:
        found = f"{len(self.data.train)} training and {len(self.data.validation)} validation documents"
        if self.metric != "accuracy":
            found += f"; the largest class is over {IMBALANCE} times the smallest: macro F1 chooses the model"
        return "\n".join((found, *self.data.notes))

    def fingerprint(self, path: Path) -> str:
        return fingerprint(self._source, path)

    def baseline(self, *settings: str) -> tfidf.Baseline | None:
        if self.config.data.name != "own":
            return None
        train, validation = self.data.train, self.data.validation
        return tfidf.fit_classifier(
            (train.texts, train.labels),
            (validation.texts, validation.labels),
            len(self.data.labels),
            METRICS[self.metric],
            settings or tuple(tfidf.VECTORIZERS),
        )

    def build(self) -> nn.Module:
        config, num_classes = self.config.model, len(self.facts["labels"])
        if config.kind == "bytes":
            return ByteClassifier(config.required_encoder, num_classes)
        config = self.recipe.model
        longest = self.facts.get(NGRAMS, {}).get("longest", config.ngram_view.longest)
        ngram_view = config.ngram_view.model_copy(update={"longest": longest})
        return WordClassifier(config.model_copy(update={"ngram_view": ngram_view}), num_classes)

    @property
    def recipe(self) -> ClassificationRun:
        config = self.config.model
        if config.kind == "bytes" or self.facts.get(HAS_VECTOR_VIEW, config.has_rounds):
            return self.config
        model = config.model_copy(update={"encoder": None, "vector_view": None})
        data = self.config.data.model_copy(update={"unlabelled": False})  # only the vector view reads these
        return self.config.model_copy(update={"model": model, "data": data})

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        assert isinstance(model, ByteClassifier)  # `model.training.views` trains models of words
        count = min(INITIAL_DOCUMENTS, len(self.data.train))
        batch = next(self._batches(count, epoch=-1))  # an epoch that training does not use: its own random order
        documents, lengths, _ = (part.to(device) for part in batch)
        model.standardise_head(documents, lengths)

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
        """Yield shuffled batches of documents of similar length; a last, smaller batch is dropped.

        Shape:  yields documents (B, bucket) uint8, lengths (B,) int32, labels (B,) int64.
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
            labels = torch.tensor([documents.labels[i] for i in chosen])
            yield torch.from_numpy(padded), torch.from_numpy(lengths), labels

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        documents, lengths, labels = batch
        return nn.functional.cross_entropy(model(documents, lengths).float(), labels)

    def validate(self, model: nn.Module, device: torch.device) -> float:
        logits, labels = self._validation_logits(model, device)
        return METRICS[self.metric](logits, labels)

    def _validation_logits(self, model: nn.Module, device: torch.device) -> tuple[Logits, NDArray[np.int64]]:
        """Logits (documents, classes) and labels on the validation documents."""
        documents = self.data.validation
        logits = self.logits(module_runs(self.graphs(model), device)[0], documents)
        return np.stack([rows.mean(0) for rows in logits]), np.array(documents.labels)

    def finish(self, model: nn.Module, data_dir: Path) -> None:
        """Quantise a model of words; divide the logits by the temperature with the lowest validation loss."""
        assert isinstance(model, WordClassifier | ByteClassifier)
        if not hasattr(self, "data"):
            labels = self.facts["labels"]
            self.load(data_dir)
            check_labels(self.data.labels, labels, data_dir)
        if isinstance(model, WordClassifier):
            model.quantise()
        self.temperature = fit_temperature(*self._validation_logits(model, torch.device("cpu")))
        model.divide_logits(self.temperature)

    def finish_final(self, model: nn.Module) -> None:
        assert isinstance(model, WordClassifier | ByteClassifier)
        if isinstance(model, WordClassifier):
            model.quantise()
        model.divide_logits(self.temperature)

    def join_splits(self, data_dir: Path) -> str:
        test = load_test(self._source, data_dir, self.data.labels, self.held_out)
        parts = (self.data.train, self.data.validation, test)
        joined = Documents([text for part in parts for text in part.texts], [i for part in parts for i in part.labels])
        self.data = replace(self.data, train=joined)
        return f"{len(joined)} documents"

    def graphs(self, model: nn.Module) -> Sequence[ExportGraph]:
        golden, buckets = golden_documents(self.length), self.config.model.buckets
        if not isinstance(model, WordClassifier):
            return [ExportGraph("model", model, golden, ("logits",), buckets)]
        outputs = ("logits", "contributions")
        return [ExportGraph("model", model, golden, outputs, buckets, model.with_fixed_shapes())]

    def measure(self, runs: Sequence[Run], data_dir: Path) -> tuple[Result, ...]:
        """Test metrics with all windows (the serving default); accuracy also with the first one, and on long texts."""
        held_out = replace(self.held_out, test=self.test_file or self.held_out.test)
        documents = load_test(self._source, data_dir, self.facts["labels"], held_out)
        rows, labels = self.logits(runs[0], documents), np.array(documents.labels)
        windows, head = np.stack([part.mean(0) for part in rows]), np.stack([part[0] for part in rows])
        is_long = np.array([len(text) > self.length for text in documents.texts])
        self.reliability = reliability_bins(windows, labels)
        values = [(metric, "windows", compute(windows, labels), len(labels)) for metric, compute in METRICS.items()]
        values.append(("ece", "windows", calibration_error(self.reliability), len(labels)))
        values.append(("accuracy", "head", accuracy(head, labels), len(labels)))
        if is_long.any():
            for condition, logits in (("windows", windows), ("head", head)):
                value = accuracy(logits[is_long], labels[is_long])
                values.append(("accuracy", f"{condition}, over {self.length:,} bytes", value, int(is_long.sum())))
        compared = self._compared(documents, labels, is_long)
        if self.test_file is None and self.config.data.name in RIVALS:
            compared["accuracy", "windows"] = RIVALS[self.config.data.name]
        return tuple(
            Result(
                metric=metric,
                value=round(value, 6),
                split="test",
                examples=examples,
                condition=condition,
                seeds=(self.config.seed,),
                compared_with=compared.get((metric, condition), "nothing"),
            )
            for metric, condition, value, examples in values
        )

    def _compared(
        self, documents: Documents, labels: NDArray[np.int64], is_long: NDArray[np.bool_]
    ) -> dict[tuple[str, str], str]:
        """Metric and condition -> name and value of the baseline, if one was fitted in training."""
        if BASELINE not in self.facts or not hasattr(self, "data"):
            return {}
        baseline = self.baseline(self.facts[BASELINE]["setting"])
        assert baseline is not None
        scores = baseline.scores(documents.texts)
        values = {(metric, "windows"): compute(scores, labels) for metric, compute in METRICS.items()}
        if is_long.any():
            long = accuracy(scores[is_long], labels[is_long])
            values["accuracy", f"windows, over {self.length:,} bytes"] = long
        seen = {*self.data.train.texts, *self.data.validation.texts}
        if known := sum(text in seen for text in documents.texts):
            self.notes = (f"{known} of the measured texts are also in training or validation",)
        return {key: tfidf.note(baseline.name, value) for key, value in values.items()}

    def manifest(self, runs: Sequence[Run], results: Sequence[Result], data_dir: Path, folder: Path) -> dict[str, Any]:
        del runs, results, data_dir
        stretches: dict[str, Any] | None = None
        if self.config.model.kind == "words":
            with np.load(folder / "golden.npz", allow_pickle=False) as golden:
                base = golden["logits"] - golden["contributions"].sum(axis=1)
            stretches = {"length": STRETCH_BYTES, "base": base.mean(axis=0, dtype=np.float64).tolist()}
        return {
            "stretches": stretches,
            "labels": self.facts["labels"],
            "max_length": self.length,
            "window_overlap": self.overlap,
            "temperature": round(self.temperature, 4),
            "reliability": [part.model_dump() for part in self.reliability],
        }

    def terms(self) -> tuple[str, bool]:
        return data_terms(self.config.data.name)

    def logits(self, run: Run, documents: Documents) -> list[NDArray[np.float32]]:
        """Logits (windows, classes) of every document; the first window is the document's head."""
        return run_on_windows(run, documents.texts, self.length, self.overlap, self.config.model.buckets)


def accuracy(logits: Logits, labels: NDArray[np.int64]) -> float:
    """Fraction of correct answers."""
    return float((logits.argmax(1) == labels).mean())


def macro_f1(logits: Logits, labels: NDArray[np.int64]) -> float:
    """Mean F1 over the classes; 0 for a class that is neither predicted nor present."""
    answers, classes = logits.argmax(1), logits.shape[1]
    right = np.bincount(labels[answers == labels], minlength=classes)
    either = np.bincount(answers, minlength=classes) + np.bincount(labels, minlength=classes)
    return float((2 * right / np.maximum(either, 1)).mean())


METRICS = {"accuracy": accuracy, "macro_f1": macro_f1}


def fit_temperature(logits: Logits, labels: NDArray[np.int64]) -> float:
    """Temperature T that minimises the cross-entropy of softmax(logits / T), between 1/20 and 20.

    The labels of n documents are smoothed by 1 / (n + 1), the weight of one more document with uniform probabilities.
    Without this, T would be 1/20 whenever all answers are correct.

    Reference:  Guo et al. 2017, arXiv:1706.04599, sec. 4.2; smoothed labels: Platt 1999, sec. 2.2.
    """
    inputs, target = torch.from_numpy(logits.astype(np.float64)), torch.from_numpy(labels)
    low, high = -math.log(20), math.log(20)
    smoothing = 1 / (len(labels) + 1)
    for _ in range(60):  # the loss is convex in 1 / T, so bisection on its slope finds the minimum
        middle = torch.tensor((low + high) / 2, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(
            nn.functional.cross_entropy(inputs / middle.exp(), target, label_smoothing=smoothing), middle
        )
        low, high = (middle.item(), high) if slope < 0 else (low, middle.item())
    return math.exp((low + high) / 2)


def reliability_bins(logits: Logits, labels: NDArray[np.int64]) -> tuple[ReliabilityBin, ...]:
    """Documents grouped by top score into BINS equal bins; empty bins are dropped."""
    scores, right = softmax(logits.astype(np.float64)).max(1), logits.argmax(1) == labels
    place = np.minimum((scores * BINS).astype(int), BINS - 1)
    return tuple(
        ReliabilityBin(score=scores[place == i].mean(), accuracy=right[place == i].mean(), examples=(place == i).sum())
        for i in range(BINS)
        if (place == i).any()
    )


def calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Expected calibration error: mean |score - accuracy| over the bins, weighted by their number of documents.

    Reference:  Guo et al. 2017, arXiv:1706.04599, eq. (5).
    """
    total = sum(part.examples for part in bins)
    return sum(part.examples * abs(part.score - part.accuracy) for part in bins) / total
