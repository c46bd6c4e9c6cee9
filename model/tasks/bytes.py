"""Text classification by a model of byte n-grams (`ByteClassifier`)."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.arrays import Floats
from artifact.encodings import RAW
from model.config.data import DocumentsConfig
from model.config.models import ClassifierConfig, NgramViewConfig
from model.data.documents import DocumentSet
from model.nn.classifier import ByteClassifier
from model.nn.patches import PatchClassifier
from model.nn.stem import ByteHasher
from model.nn.tokens import TokenClassifier
from model.tasks.classification import padded_batches
from model.tasks.graphs import ExportGraph, golden_documents, module_functions
from model.tasks.link import Outputs, link_of
from model.tasks.ngrams import CANDIDATES, Choice, Counted, choose
from model.tasks.two_views import HAS_VECTOR_VIEW, NgramView, TwoViewTask, fit_ngrams
from model.tasks.views import combined
from model.tasks.words import PRIOR, WordTask
from model.training.checkpoint import RunFolder
from model.training.learner import Learner, TrainingBatch

if TYPE_CHECKING:
    from model.tasks.document_vectors import VectorLearner

TEACHER = "teacher"
"""Folder of the teacher in the run folder."""
NUM_SHORT = 2
"""Number of buckets with an ONNX file of their own, up to 512 bytes: a Fourier convolution of so few tokens takes a
fraction of the time if their number is a constant."""


class ByteTask(TwoViewTask):
    """Text classification by a model of byte n-grams.

    With unlabelled documents, both views also learn from a teacher: the n-gram view of a model of words.
    """

    @property
    def documents(self) -> DocumentsConfig:
        """Where the documents come from; the model reads them as they are."""
        return self.config.data.model_copy(update={"encoding": RAW})

    @property
    def max_counted(self) -> int:
        return CANDIDATES * self.config.model.ngram_view.num_ngrams

    @property
    def tried_lengths(self) -> Sequence[int]:
        """The recipe chooses the sizes: all of them count."""
        return self.config.model.ngram_view.sizes[-1:]

    def hasher(self) -> ByteHasher:
        view = self.config.model.ngram_view
        return ByteHasher(view.sizes, self.length, fold_case=view.fold_case)

    def described(self, choice: Choice) -> str:
        sizes = ", ".join(map(str, self.config.model.ngram_view.sizes))
        return (
            f"n-grams of {sizes} bytes{', counted 1 + log k times' if choice.sublinear else ''}"
            f", scales {choice.scaling}, C = {choice.strength:g}"
            f"{f', {choice.naive_bayes:.0%} naive Bayes' if choice.naive_bayes else ''}"
            f"{', n-grams of the own group discounted' if choice.discount else ''}"
        )

    def chosen(self, counted: Counted, labels: NDArray[np.int64], learner: "VectorLearner | None") -> Choice:
        del learner
        view = self.config.model.ngram_view
        return choose(counted, labels, len(self.facts["labels"]), view, lengths=self.tried_lengths)

    def vector_learner(
        self, texts: Sequence[bytes], labels: NDArray[np.int64], unlabelled: Sequence[bytes]
    ) -> "VectorLearner | None":
        del texts, labels, unlabelled
        return None

    def teacher(self, data: DocumentSet, folder: RunFolder) -> Outputs | None:
        """Logits of the n-gram view of a model of words, which also learns vectors from the unlabelled documents."""
        if not data.unlabelled:
            return None
        view = NgramViewConfig(max_length=self.length, class_weights=self.config.model.ngram_view.class_weights)
        words = ClassifierConfig(kind="words", ngram_view=view, ngram_vectors=self.config.model.ngram_vectors)
        config = self.config.model_copy(update={"model": words})
        print("teacher: the n-gram view of a model of words", flush=True)
        fitted = fit_ngrams(WordTask(config, {}).with_facts_of(data), data, folder.inside(TEACHER, config), None)
        function = module_functions(fitted.task.graphs(fitted.model), folder.device)[0]
        return combined(fitted.task.document_logits(function, data.unlabelled), None, fitted.weights)

    def read_corpus(self, data: DocumentSet, folder: RunFolder, ngrams: NgramView) -> "ByteCorpus":
        """A new vector view."""
        del folder
        model = ngrams.task.knowing(**{HAS_VECTOR_VIEW: True}).seeded()
        assert isinstance(model, ByteClassifier)
        model.ngram_view = ngrams.model.ngram_view
        assert model.vector_view is not None
        sizes = [min(len(text), self.length) for text in data.train.texts]
        model.vector_view.set_prior(PRIOR * float(np.median(sizes)))
        return ByteCorpus(self, data, model)

    def build(self) -> ByteClassifier:
        config = self.recipe.model.model_copy(update={"ngram_view": self.view})
        return ByteClassifier(config, len(self.facts["labels"]))

    def graphs(self, model: nn.Module) -> tuple[ExportGraph, ...]:
        assert isinstance(model, ByteClassifier)
        graph = ExportGraph(
            "model",
            model,
            golden_documents(self.length),
            ("logits", "contributions"),
            self.config.model.buckets,
            model.with_fixed_shapes(),
            fixed_for_all_batches=True,  # MatMulInteger, which adds the vectors on a CPU, has no CUDA kernel
            num_short=NUM_SHORT,
        )
        return (graph,)


@dataclass(frozen=True)
class ByteCorpus:
    """Documents, of which the vector view reads the bytes."""

    task: ByteTask
    data: DocumentSet
    model: ByteClassifier

    def learner(self, targets: NDArray[np.float32], seed: str) -> "ByteRound":
        return ByteRound(self, [*self.data.train.texts, *self.data.unlabelled], targets, seed, self.task.metric)

    def validation_logits(self, view: TokenClassifier, device: torch.device) -> Outputs:
        return self._logits(view, self.data.validation.texts, device)

    def unlabelled_logits(self, view: TokenClassifier, device: torch.device) -> Outputs:
        return self._logits(view, self.data.unlabelled, device)

    def _logits(self, view: TokenClassifier, texts: Sequence[bytes], device: torch.device) -> Outputs:
        view.eval().to(device)

        def compute(inputs: Mapping[str, NDArray[Any]]) -> Floats:
            document, lengths = (torch.from_numpy(array) for array in inputs.values())
            with torch.inference_mode():
                rows = self.model.rows(document, lengths).to(device)
                logits: Floats = view(rows, lengths.to(device)).cpu().numpy()
            return logits

        return self.task.document_logits(compute, texts)


@dataclass(frozen=True)
class ByteRound(Learner):
    """One round of the vector view's training, on labels and on soft labels of a teacher."""

    corpus: ByteCorpus
    texts: Sequence[bytes]
    """The training documents, then the unlabelled ones."""
    targets: NDArray[np.float32]
    """Probabilities (documents, classes): one for the label, or the teacher's."""
    seed: str
    """Seed of the order and of the crops of the documents."""
    metric: str
    """Validation metric, a key of the report of the link."""

    unit = "doc"
    has_fixed_shapes = True

    @property
    def examples_per_epoch(self) -> int:
        size = self.corpus.task.config.training.batch_size
        return len(self.texts) // size * size

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        """Yield shuffled batches of documents of similar length; a last, smaller batch is dropped.

        Shape:  yields rows (B, bucket, s) int64, lengths (B,) int32, targets (B, classes) float32.
        """
        task, generator = self.corpus.task, random.Random(f"{self.seed}-{epoch}")
        for chosen, documents, lengths in padded_batches(self.texts, task, task.config.training.batch_size, generator):
            yield self.corpus.model.rows(documents, lengths), lengths, torch.from_numpy(self.targets[chosen])

    def loss(self, model: nn.Module, batch: TrainingBatch) -> Tensor:
        rows, lengths, targets = batch
        return link_of(np.array(self.corpus.data.validation.labels)).loss(model(rows, lengths), targets)

    def validate(self, model: nn.Module, device: torch.device) -> float:
        assert isinstance(model, PatchClassifier)
        labels = np.array(self.corpus.data.validation.labels)
        return link_of(labels).report(self.corpus.validation_logits(model, device), labels)[self.metric]
