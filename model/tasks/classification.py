"""Text classification: documents -> labels, and its classifier of single bytes. Used through `model.tasks`."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.arrays import Doubles
from artifact.documents import pad_rows
from artifact.encodings import RAW
from artifact.manifest import ExportManifest, Result
from artifact.tasks.classification import ClassifierManifest
from model.config.data import DocumentsConfig
from model.config.run import ClassificationRun
from model.data.documents import (
    DocumentSet,
    LabelledDocuments,
    all_as_test,
    check_labels,
    columns_of,
    data_terms,
    load_documents,
    with_unlabelled,
)
from model.data.own import DataFiles, OwnTexts, read_own
from model.errors import UserError
from model.nn.classifier import PaperClassifier, TwoViewClassifier
from model.tasks import tfidf
from model.tasks.base import FINGERPRINT, SPLITS, UNLABELLED, Finished, Measurement, TrainingTask
from model.tasks.comparison import difference, micro_f1_difference
from model.tasks.graphs import Arrays, ExportGraph, GraphFunction, golden_documents, module_functions
from model.tasks.link import SIGMOIDS, SOFTMAX, Outputs, calibration_error, link_of
from model.tasks.predictions import LabelPredictions, LabelSetPredictions, Predictions, Rival
from model.tasks.rows import run_on_windows
from model.training.checkpoint import Progress
from model.training.learner import TaskLearner, TrainingBatch
from model.training.stages import Stage, gradient_stages

INITIAL_DOCUMENTS = 256
"""Number of documents for the data-dependent initialisation."""
IMBALANCE = 3
"""Ratio of the largest to the smallest class above which macro F1 replaces accuracy for validation."""
SHOWN_CLASSES = 10
"""Maximum number of classes in a message, those with the lowest recall."""
GROUPED_BATCHES = 32
"""Number of batches whose documents are sorted by length together."""
NOTHING = LabelledDocuments([], [])
SEVERAL, THRESHOLDS = "has_several_labels", "thresholds"
"""Keys of facts: whether a document may have any number of labels, and the score from which each of them applies."""
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


@dataclass(frozen=True)
class ClassificationTask(TrainingTask[ClassificationRun, OwnTexts | Path, DocumentSet]):
    """Text classification by a model of single bytes; documents longer than it reads are split into windows."""

    unit = "doc"

    @property
    def metric(self) -> str:
        return str(self.facts.get("metric", "accuracy"))

    @property
    def is_balanced(self) -> bool:
        """Whether all classes weigh the same in training."""
        return self.config.model.ngram_view.class_weights == "balanced"

    @property
    def length(self) -> int:
        """Bytes that the model reads at once."""
        return self.config.model.max_length

    @property
    def overlap(self) -> int:
        """Minimum overlap of neighbouring windows in bytes."""
        return self.length // 8

    @property
    def documents(self) -> DocumentsConfig:
        """Where the documents come from. A model of bytes reads them as they are."""
        return self.config.data.model_copy(update={"encoding": RAW})

    def read(self, files: DataFiles, *, is_new: bool = False) -> OwnTexts | Path:
        if self.config.data.name != "own":
            return files.data_dir
        return read_own(files, replace(columns_of(self.documents), needs_groups=not is_new))

    def load(self, source: OwnTexts | Path) -> DocumentSet:
        data = load_documents(self.documents, source)
        if isinstance(source, OwnTexts):
            self.check_fingerprint(data.fingerprint, source.data.path)
            self.check_splits(data.splits, source.data.path)
        if "labels" in self.facts:
            check_labels(
                data.labels, self.facts["labels"], source.data.path if isinstance(source, OwnTexts) else source
            )
        return data

    def with_unlabelled(self, data: DocumentSet, source: OwnTexts | Path) -> DocumentSet:
        if not self.config.data.unlabelled:
            return data
        data = with_unlabelled(self.documents, data, source)
        if self.facts.get(UNLABELLED, found := _digest(data.unlabelled)) != found:
            own = source.unlabelled if isinstance(source, OwnTexts) else None
            place = source if own is None else own.path
            raise UserError(f"{place} has other unlabelled documents than this run began with")
        return data

    def with_facts_of(self, data: DocumentSet) -> Self:
        facts: dict[str, Any] = {"labels": data.labels}
        if data.has_several_labels:
            if self.is_balanced:
                raise UserError(
                    "model.ngram_view.class_weights is balanced, but documents may have any number of labels"
                )
            facts |= {SEVERAL: True, "metric": "micro_f1"}
        else:
            sizes = np.bincount(np.array(data.train.labels), minlength=len(data.labels))
            facts["metric"] = "macro_f1" if sizes.max() > IMBALANCE * sizes.min() else "accuracy"
        if data.fingerprint:
            facts |= {FINGERPRINT: data.fingerprint, SPLITS: data.splits}
        if data.unlabelled:
            facts[UNLABELLED] = _digest(data.unlabelled)
        return self.knowing(**facts)

    def fingerprint(self, source: OwnTexts | Path) -> str:
        return source.fingerprint if isinstance(source, OwnTexts) else ""

    def with_test(self, data: DocumentSet | None, source: OwnTexts | Path) -> DocumentSet:
        assert isinstance(source, OwnTexts)
        labels: list[str] = self.facts["labels"]
        several = self.facts.get(SEVERAL, False)
        test = all_as_test(self.documents, source.data, labels, has_several_labels=several)
        return DocumentSet(NOTHING, NOTHING, test, labels) if data is None else replace(data, test=test)

    def describe(self, data: DocumentSet) -> tuple[str, ...]:
        found = f"{len(data.train)} training and {len(data.validation)} validation documents"
        if data.has_several_labels:
            found += "; micro F1 chooses the model"
        elif self.metric != "accuracy":
            found += f"; the largest class is over {IMBALANCE} times the smallest: macro F1 chooses the model"
        count = len(data.unlabelled)
        unlabelled = (f"{count:,} unlabelled documents that are not in the labelled data",) if count else ()
        return (found, *data.notes, *unlabelled)

    def baseline(self, data: DocumentSet, *settings: str) -> tfidf.Baseline | None:
        if self.config.data.name != "own":
            return None
        train, validation = ((part.texts, np.array(part.labels)) for part in (data.train, data.validation))
        if data.has_several_labels:
            return tfidf.fit_labels(train, validation, self.value, settings)
        return tfidf.fit_classifier(
            (train[0], train[1].tolist()),
            (validation[0], validation[1].tolist()),
            len(data.labels),
            self.value,
            settings or tuple(tfidf.TUNED),
            groups=data.train.groups,
            is_balanced=self.is_balanced,
        )

    def value(self, outputs: Outputs, labels: NDArray[np.int64]) -> float:
        """Validation metric of outputs (documents, classes)."""
        return link_of(labels).report(outputs, labels)[self.metric]

    def conclude(
        self, finished: Finished, data: DocumentSet, baseline: tfidf.Baseline | None, progress: Progress
    ) -> tuple[str, ...]:
        (function,) = module_functions(finished.graphs, torch.device("cpu"))
        validation, labels = data.validation, np.array(data.validation.labels)
        logits = self.document_logits(function, validation.texts)
        lines = [*self.trained(progress), *(f"validation: {line}" for line in self.by_class(logits, labels))]
        if baseline is not None:
            scores = baseline.scores(validation.texts)
            if data.has_several_labels:
                ours, theirs = SIGMOIDS.chosen(logits, labels), SIGMOIDS.chosen(scores, labels)
                found = micro_f1_difference(ours, theirs, labels == 1, validation.groups)
            else:
                found = difference(self.value, logits, scores, labels, validation.groups)
            compared = f"validation {self.metric} {self.value(logits, labels):.4f}"
            lines.append(
                f"warning: {compared} is below that of {baseline.name}, {baseline.value:.4f}: {found}"
                if found.is_behind
                else f"{compared}, {baseline.name} {baseline.value:.4f}: {found}"
            )
        return tuple(lines)

    def trained(self, progress: Progress) -> tuple[str, ...]:
        """What the model consists of, in one line."""
        del progress
        return ()

    def by_class(self, logits: Outputs, labels: NDArray[np.int64]) -> tuple[str, ...]:
        """Lines about classes: recall of each if their sizes differ much, and those that are never the answer.

        There are none if a document may have any number of labels.
        """
        if labels.ndim == 2:
            return ()
        answers, names = logits.argmax(1), self.facts["labels"]
        sizes = np.bincount(labels, minlength=len(names))
        present = np.flatnonzero(sizes)
        recall = {i: float((answers[labels == i] == i).mean()) for i in present.tolist()}
        lines = list[str]()
        is_imbalanced = self.metric != "accuracy"
        if "metric" not in self.facts:  # of an export
            is_imbalanced = sizes.max() > IMBALANCE * sizes[present].min()
        if is_imbalanced:
            report = SOFTMAX.report(logits, labels)
            shown = sorted(recall, key=lambda i: (recall[i], sizes[i]))[:SHOWN_CLASSES]
            of = ", ".join(f"{names[i]} {recall[i]:.2f} of {sizes[i]}" for i in shown)
            rest = f", {len(recall) - len(shown)} more above" if len(shown) < len(recall) else ""
            lines.append(
                f"accuracy {report['accuracy']:.4f}, macro F1 {report['macro_f1']:.4f}; recall by class: {of}{rest}"
            )
        if never := [
            f"{names[i]} ({sizes[i]})" for i in np.flatnonzero(sizes > 1).tolist() if not (answers == i).any()
        ]:
            more = f" and {len(never) - SHOWN_CLASSES} more" if len(never) > SHOWN_CLASSES else ""
            hint = "" if self.is_balanced else "; with --class-weights balanced, all classes weigh the same in training"
            lines.append(
                f"never predicted, with their number of documents: {', '.join(never[:SHOWN_CLASSES])}{more}{hint}"
            )
        return tuple(lines)

    def stages(self, data: DocumentSet) -> Sequence[Stage]:
        size = self.config.training.batch_size
        if len(data.train) < size:
            raise UserError(f"{len(data.train)} training documents are fewer than one batch, {size}")
        final_fit = self.config.data.final_fit
        return gradient_stages(self.learner(data), self.config.training, is_fitted_on_all=final_fit)

    def learner(self, data: DocumentSet) -> "PaperLearner":
        """What training of a model of bytes learns from."""
        return PaperLearner(self, data)

    def build(self) -> nn.Module:
        return PaperClassifier(self.config.model.required_encoder, len(self.facts["labels"]))

    def graphs(self, model: nn.Module) -> tuple[ExportGraph, ...]:
        golden = golden_documents(self.length)
        return (ExportGraph("model", model, golden, ("logits",), self.config.model.buckets),)

    def finish(self, model: nn.Module, final: nn.Module | None, data: DocumentSet) -> Finished:
        """Divide the logits by the temperature with the lowest validation loss; choose thresholds of labels."""
        (function,) = module_functions(self.graphs(model), torch.device("cpu"))
        labels = np.array(data.validation.labels)
        logits, link = self.document_logits(function, data.validation.texts), link_of(labels)
        temperature = link.calibrate(logits, labels).temperature
        for one in (model, final):
            if isinstance(one, TwoViewClassifier | PaperClassifier):
                one.divide_logits(temperature)
        finished = self.finished(model, final, temperature=round(temperature, 4))
        if link is SOFTMAX:
            return finished
        thresholds = SIGMOIDS.thresholds(link.probabilities(logits / temperature), labels).round(6)
        keys = {**finished.keys, "thresholds": thresholds.tolist()}
        return replace(finished, keys=keys, facts={THRESHOLDS: thresholds})

    def measure(self, functions: Sequence[GraphFunction], data: DocumentSet) -> Measurement:
        """Test metrics with all windows (the serving default); the first also with one window, and on long texts."""
        texts, labels = data.test.texts, np.array(data.test.labels)
        rows = self.logits(functions[0], texts)
        windows, head = np.stack([part.mean(0) for part in rows]), np.stack([part[0] for part in rows])
        is_long = np.array([len(text) > self.length for text in texts])
        reliability = link_of(labels).reliability(windows, labels)
        found = self._report(windows, labels)
        first = next(iter(found))
        values = [(metric, "windows", value, len(labels)) for metric, value in found.items()]
        values.append(("ece", "windows", calibration_error(reliability), len(labels)))
        values.append((first, "head", self._report(head, labels)[first], len(labels)))
        if is_long.any():
            for condition, logits in (("windows", windows), ("head", head)):
                value = self._report(logits[is_long], labels[is_long])[first]
                values.append((first, f"{condition}, over {self.length:,} bytes", value, int(is_long.sum())))
        compared, notes, rival = self._compared(data, windows, labels, is_long)
        notes = (*notes, *self.by_class(windows, labels))
        results = tuple(
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
        keys = {"reliability": [part.model_dump() for part in reliability]}
        return Measurement(results, notes, keys, predictions=self._predictions(data, windows, rival))

    def _predictions(self, data: DocumentSet, windows: Outputs, rival: Rival | None) -> Predictions:
        """What the report shows of the test documents."""
        labels, train = np.array(data.test.labels), np.array(data.train.labels)
        scores, texts, places = link_of(labels).probabilities(windows), data.test.texts, data.test.places
        if labels.ndim == 2:
            sizes = train.sum(0).tolist() if len(train) else ()
            thresholds = self.facts[THRESHOLDS]
            return LabelSetPredictions(data.labels, labels, scores, thresholds, texts, places, sizes, rival)
        sizes = np.bincount(train, minlength=len(data.labels)).tolist() if len(train) else ()
        return LabelPredictions(data.labels, labels, scores, texts, "bytes", places, sizes, rival)

    def _report(
        self, logits: Outputs, labels: NDArray[np.int64], thresholds: Doubles | None = None
    ) -> dict[str, float]:
        """Metrics by name, the main one first; of any number of labels with thresholds, by default the model's."""
        if labels.ndim == 1:
            return SOFTMAX.report(logits, labels)
        return SIGMOIDS.report(logits, labels, self.facts[THRESHOLDS] if thresholds is None else thresholds)

    def _compared(
        self, data: DocumentSet, windows: Outputs, labels: NDArray[np.int64], is_long: NDArray[np.bool_]
    ) -> tuple[Mapping[tuple[str, str], str], tuple[str, ...], Rival | None]:
        """Metric and condition -> name and value of what the model is compared with; notes; the baseline's scores."""
        baseline = self.chosen_baseline(data)
        if baseline is None:
            name = self.config.data.name
            return {("accuracy", "windows"): RIVALS[name]} if name in RIVALS else {}, (), None
        scores = baseline.scores(data.test.texts)
        found = self._report(scores, labels, baseline.thresholds)
        values = {(metric, "windows"): value for metric, value in found.items()}
        if is_long.any():
            first = next(iter(found))
            value = self._report(scores[is_long], labels[is_long], baseline.thresholds)[first]
            values[first, f"windows, over {self.length:,} bytes"] = value
        seen = {*data.train.texts, *data.validation.texts}
        known = sum(text in seen for text in data.test.texts)
        notes = (f"{known} of the measured texts are also in training or validation",) if known else ()
        compared = {key: tfidf.note(baseline.name, value) for key, value in values.items()}
        if labels.ndim == 2:
            ours = SIGMOIDS.chosen(windows, labels, self.facts[THRESHOLDS])
            theirs = SIGMOIDS.chosen(scores, labels, baseline.thresholds)
            gain = micro_f1_difference(ours, theirs, labels == 1, data.test.groups)
            rival = Rival(baseline.name, SIGMOIDS.probabilities(scores), thresholds=baseline.thresholds)
        else:
            gain = difference(self.value, windows, scores, labels, data.test.groups)
            rival = Rival(baseline.name, scores)
        return compared, (*notes, f"{self.metric} (windows) less that of the baseline: {gain}"), rival

    def manifest(self, golden: Arrays) -> dict[str, Any]:
        del golden
        return {"labels": self.facts["labels"], "max_length": self.length, "window_overlap": self.overlap}

    def of_export(self, manifest: ExportManifest, folder: Path) -> Self:
        del folder
        assert isinstance(manifest, ClassifierManifest)
        labels = list(manifest.labels)
        if manifest.thresholds is None:
            return self.knowing(labels=labels)
        return self.knowing(labels=labels, **{SEVERAL: True, THRESHOLDS: np.array(manifest.thresholds)})

    def terms(self) -> tuple[str, bool]:
        return data_terms(self.config.data.name)

    def logits(self, function: GraphFunction, texts: Sequence[bytes]) -> list[NDArray[np.float32]]:
        """Logits (windows, classes) of every document; the first window is the document's head."""
        return run_on_windows(function, texts, self.length, self.overlap, self.config.model.buckets)

    def document_logits(self, function: GraphFunction, texts: Sequence[bytes]) -> NDArray[np.float32]:
        """Logits (documents, classes), as means over the windows of each document."""
        if not texts:
            return np.zeros((0, len(self.facts["labels"])), dtype=np.float32)
        return np.stack([rows.mean(0) for rows in self.logits(function, texts)])


@dataclass(frozen=True)
class PaperLearner(TaskLearner):
    """Documents that train a classifier of single bytes."""

    task: ClassificationTask
    data: DocumentSet

    unit = "doc"
    has_fixed_shapes = True

    @property
    def metric(self) -> str:  # type: ignore[override]  # it depends on the data
        """Validation metric."""
        return self.task.metric

    def build(self) -> nn.Module:
        return self.task.build()

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        assert isinstance(model, PaperClassifier)
        count = min(INITIAL_DOCUMENTS, len(self.data.train))
        batch = next(self._batches(count, epoch=-1))  # an epoch that training does not use: its own random order
        documents, lengths, _ = (part.to(device) for part in batch)
        model.standardise_head(documents, lengths)

    def on_all(self) -> tuple[TaskLearner, str]:
        joined = self.data.joined()
        return replace(self, data=joined), f"{len(joined.train)} documents"

    @property
    def examples_per_epoch(self) -> int:
        training = self.task.config.training
        wanted = min(training.examples_per_epoch or len(self.data.train), len(self.data.train))
        return wanted // training.batch_size * training.batch_size

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        size = self.task.config.training.batch_size
        for number, batch in enumerate(self._batches(size, epoch)):
            if number * size >= self.examples_per_epoch:
                return
            yield batch

    def _batches(self, batch_size: int, epoch: int) -> Iterator[TrainingBatch]:
        """Yield shuffled batches of documents of similar length; a last, smaller batch is dropped.

        Shape:  yields documents (B, bucket) uint8, lengths (B,) int32, targets int64 as in `link_of`.
        """
        documents, task, config = self.data.train, self.task, self.task.config
        generator = random.Random(f"{config.seed}-{epoch}")
        for chosen, padded, lengths in padded_batches(documents.texts, task, batch_size, generator):
            labels = torch.tensor([documents.labels[i] for i in chosen])
            yield padded, lengths, labels

    def loss(self, model: nn.Module, batch: TrainingBatch) -> Tensor:
        documents, lengths, labels = batch
        return link_of(labels).loss(model(documents, lengths), labels)

    def validate(self, model: nn.Module, device: torch.device) -> float:
        (function,) = module_functions(self.task.graphs(model), device)
        logits = self.task.document_logits(function, self.data.validation.texts)
        labels = np.array(self.data.validation.labels)
        return link_of(labels).report(logits, labels)[self.metric]


def padded_batches(
    texts: Sequence[bytes], task: ClassificationTask, batch_size: int, generator: random.Random
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Yield shuffled batches of documents of similar length; a last, smaller batch is dropped.

    Shape:  yields the indices of the documents; bytes (B, bucket) uint8, of one crop each; and lengths (B,) int32.
    """
    length, buckets = task.length, task.config.model.buckets
    sizes = [min(length, len(text)) for text in texts] if len(buckets) > 1 else None
    for chosen in grouped_batches(len(texts), sizes, batch_size, generator):
        rows = [crop(texts[i], length, task.config.data.crop, generator) for i in chosen]
        longest = max(map(len, rows))
        padded, lengths = pad_rows(rows, next(size for size in buckets if size >= longest))
        yield chosen, torch.from_numpy(padded), torch.from_numpy(lengths)


def grouped_batches(
    count: int, sizes: Sequence[int] | None, batch_size: int, generator: random.Random
) -> list[list[int]]:
    """Shuffled batches of examples, of similar size if there are sizes; a last, smaller batch is dropped."""
    order, batches = list(range(count)), list[list[int]]()
    generator.shuffle(order)
    for first in range(0, count, GROUPED_BATCHES * batch_size):
        group = order[first : first + GROUPED_BATCHES * batch_size]
        if sizes is not None:
            group.sort(key=sizes.__getitem__)
        batches += [group[i : i + batch_size] for i in range(0, len(group) - batch_size + 1, batch_size)]
    generator.shuffle(batches)
    return batches


def crop(text: bytes, length: int, how: str, generator: random.Random) -> bytes:
    """The part of a document that a model learns from: its head, or with `how` random a random part."""
    spare = max(0, len(text) - length)
    start = generator.randint(0, spare) if how == "random" else 0
    return text[start : start + length]


def accuracy(logits: Outputs, labels: NDArray[np.int64]) -> float:
    """Fraction of correct answers."""
    return float((logits.argmax(1) == labels).mean())


def _digest(texts: Sequence[bytes]) -> str:
    return sha256(b"".join(sha256(text).digest() for text in texts)).hexdigest()
