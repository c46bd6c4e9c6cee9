"""Training of a classifier with two views of a document (`ViewClassifier`), in stages.

1. The n-gram view: a classifier over word n-grams.
2. Word vectors, by word2vec.
3. The vector view, a classifier over the word vectors, in rounds. It learns from the labels, and on unlabelled
   documents from the probabilities of a teacher: the n-gram view in the first round, then both views together.
4. The combination: weights of both views' logits.

The n-gram view and each round have a folder below the run folder and resume from their own checkpoint. Called by
`model.training.run`.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.documents import cut, softmax, take
from artifact.provenance import git_revision
from model.config.models import RoundConfig, VectorViewConfig
from model.config.run import ClassificationRun
from model.config.training import TrainingConfig
from model.data import documents as data_documents
from model.errors import writing
from model.nn.classifier import WordClassifier
from model.nn.views import ViewClassifier
from model.tasks.base import Learner, module_runs
from model.tasks.classification import METRICS, Classification, Logits
from model.tasks.vectors import Words, choose_words, hash_words, known_ids, train_vectors
from model.tasks.views import (
    VectorRound,
    combine,
    cross_entropy,
    held_out_logits,
    mean_of_windows,
    vector_logits,
)
from model.training import checkpoint
from model.training.checkpoint import Progress
from model.training.loop import Job, Trainer
from model.training.provenance import hardware


@dataclass(frozen=True)
class Corpus:
    """Words of the documents that the vector view reads, as ids of its vocabulary."""

    train: Words
    """One crop of each training document."""
    unlabelled: Words
    """One crop of each unlabelled document."""
    validation: Words
    """All windows of the validation documents."""
    window_counts: tuple[int, ...]
    """Number of windows of each validation document."""


class ViewTraining:
    """Training run of a `ViewClassifier`. Call it to train to the end; finished stages are not repeated."""

    def __init__(
        self,
        config: ClassificationRun,
        task: Classification,
        folder: Path,
        device: torch.device,
        unlabelled: Sequence[bytes],
    ) -> None:
        assert config.model.vector_view is not None
        self.config, self.task, self.folder, self.device, self.unlabelled = config, task, folder, device, unlabelled
        self.vector_config: VectorViewConfig = config.model.vector_view
        self.labels = np.array(task.data.validation.labels)
        self.seconds, self.peak_memory_bytes, self.examples_per_second = 0.0, 0, 0.0
        self.history: list[dict[str, Any]] = []

    def __call__(self, progress: Progress) -> Progress:
        """Train all stages and write best.pt and metrics.jsonl.

        On Ctrl-C, raises KeyboardInterrupt with a hint at --resume. Raises: UserError.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # last.pt has no weights: each stage has its own checkpoint.
        checkpoint.save(self.folder / "last.pt", self.config, progress, self.task.facts, {})
        try:
            return self._train_stages(progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("resume with --resume") from None

    def _train_stages(self, progress: Progress) -> Progress:
        """Train the n-gram view, the word vectors and the rounds, then combine both views."""
        torch.manual_seed(self.config.seed)
        model = self.task.build()
        assert isinstance(model, ViewClassifier)
        ngram_view, ngram_task = self._train_ngram_view()
        model.ngram_view.load_state_dict(ngram_view.state_dict())
        first = self._ngram_logits(ngram_view, ngram_task, self.task.data.validation.texts)
        self._record("n-gram view", first, None)
        corpus = self._corpus(model)
        model.vector_view.vectors.data.copy_(self._vectors(corpus))
        unlabelled_first = self._ngram_logits(ngram_view, ngram_task, self.unlabelled)
        combination, second = combine(first, None, self.labels), None
        teacher = combination(unlabelled_first, np.zeros_like(unlabelled_first))
        for number, round_config in enumerate(self.vector_config.rounds, 1):
            self._train_round(number, round_config, model, corpus, softmax(teacher.astype(np.float64)))
            window_logits = vector_logits(model.vector_view, corpus.validation, self.device)
            second = mean_of_windows(window_logits, corpus.window_counts)
            combination = combine(first, second, self.labels)
            self._record(f"round {number}", first, second)
            if number < len(self.vector_config.rounds) and self.unlabelled:
                teacher = combination(
                    unlabelled_first, vector_logits(model.vector_view, corpus.unlabelled, self.device)
                )
        return self._finish(model, progress, first, second)

    def _train_ngram_view(self) -> tuple[WordClassifier, Classification]:
        """Train the n-gram view as a model of its own."""
        recipe = self.config.model_dump() | {"model": self.config.model.ngram_view.model_dump()}
        recipe["data"]["unlabelled"] = False
        config = ClassificationRun.model_validate(recipe)
        task = Classification(config)
        task.data, task.facts, task.metric = self.task.data, self.task.facts, self.task.metric
        model = task.build().to(self.device)
        assert isinstance(model, WordClassifier)
        self._train("ngram-view", config, task, model, lambda: task.initialise(model, self.device))
        return model, task

    def _train_round(
        self,
        number: int,
        config: RoundConfig,
        model: ViewClassifier,
        corpus: Corpus,
        soft: NDArray[np.float64],
    ) -> None:
        """Train the vector view for a round: on labels, and on the probabilities `soft` of unlabelled documents."""
        vector_view, size = model.vector_view.to(self.device), self.vector_config.batch_size
        vector_view.set_dropout(config.dropout, config.pooled_dropout, config.word_dropout)
        one_hot = np.eye(soft.shape[1])[self.task.data.train.labels]
        words = _concatenated(corpus.train, corpus.unlabelled)
        learner = VectorRound(
            words, np.concatenate((one_hot, soft)).astype(np.float32), size, f"{self.config.seed}-{number}"
        )
        learner.validate_on(corpus.validation, corpus.window_counts, self.labels, self.task.metric)
        training = TrainingConfig(
            epochs=self.vector_config.epochs,
            batch_size=size,
            learning_rate=config.learning_rate,
            warmup_steps=self.vector_config.warmup_steps,
        )
        stage_config = self.config.model_copy(update={"training": training})
        self._train(f"round-{number}", stage_config, learner, vector_view)

    def _train(
        self,
        name: str,
        config: ClassificationRun,
        learner: Learner,
        model: nn.Module,
        initialise: Callable[[], None] = lambda: None,
    ) -> None:
        """Train or resume one stage, then load its best weights."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(self.config.seed)
        progress, state = Progress(device=hardware(self.device), revision=git_revision()), None
        if (folder / "last.pt").is_file():
            _, progress, _, state = checkpoint.load(folder / "last.pt")
        else:
            initialise()
        print(f"{name}: {learner.examples_per_epoch:,} documents an epoch", flush=True)
        progress = Trainer(Job(config, learner, model, folder, self.device), progress, state)()
        checkpoint.load_weights(model, checkpoint.load(folder / "best.pt")[3], folder / "best.pt")
        model.eval()
        self.seconds += progress.seconds
        self.peak_memory_bytes = max(self.peak_memory_bytes, progress.peak_memory_bytes)
        self.examples_per_second = progress.history[-1]["examples_per_second"]

    def _corpus(self, model: ViewClassifier) -> Corpus:
        """Fill the vector view's vocabulary with the most frequent words, and find these in all documents."""
        data, length, stem = self.task.data, self.task.length, model.ngram_view.stem
        generator = random.Random(self.config.seed)
        windows = [
            [take(text, spans) for spans in cut(len(text), length, self.task.overlap, "windows")]
            for text in data.validation.texts
        ]
        train = hash_words(stem, [_crop(text, length, generator) for text in data.train.texts])
        unlabelled = hash_words(stem, [_crop(text, length, generator) for text in self.unlabelled])
        validation = hash_words(stem, [row for rows in windows for row in rows])
        ignored = hash_words(stem, [text.encode() for text in (self.vector_config.vectors.ignored,) if text])
        vocabulary = choose_words((train, unlabelled), ignored, self.vector_config.vectors.num_words)
        model.vocabulary.fill(vocabulary)
        train, unlabelled, validation = (known_ids(words, vocabulary) for words in (train, unlabelled, validation))
        return Corpus(train, unlabelled, validation, tuple(map(len, windows)))

    def _vectors(self, corpus: Corpus) -> Tensor:
        """Word vectors, trained once per run and then read from its folder."""
        path, config = self.folder / "vectors.npy", self.vector_config.vectors
        if not path.is_file():
            dim = self.config.model.encoder.dim
            parts = (corpus.train, corpus.unlabelled)
            vectors = train_vectors(parts, config.num_words, dim, config, self.config.seed)
            partial = path.with_suffix(".partial")
            with writing(path):
                with partial.open("wb") as file:
                    np.save(file, vectors)
                partial.replace(path)
        return torch.from_numpy(np.load(path))

    def _ngram_logits(self, model: WordClassifier, task: Classification, texts: Sequence[bytes]) -> Logits:
        """Logits (documents, classes) of the n-gram view, as means over the windows of each document."""
        if not texts:
            return np.zeros((0, len(self.task.facts["labels"])), dtype=np.float32)
        run = module_runs(task.graphs(model), self.device)[0]
        return np.stack(
            [rows.mean(0) for rows in task.logits(run, data_documents.Documents(list(texts), [0] * len(texts)))]
        )

    def _record(self, stage: str, first: Logits, second: Logits | None) -> None:
        """Add the validation metrics of a stage, from the logits of both views, to metrics.jsonl."""
        logits, metric = held_out_logits(first, second, self.labels), self.task.metric
        record: dict[str, Any] = {"stage": stage}
        if second is not None:
            record[f"vector_view_{metric}"] = METRICS[metric](second, self.labels)
        record |= {
            f"validation_{metric}": METRICS[metric](logits, self.labels),
            "validation_cross_entropy": cross_entropy(logits, self.labels),
            "examples_per_second": self.examples_per_second,
            "peak_memory_bytes": self.peak_memory_bytes,
        }
        self.history.append(record)
        with writing(path := self.folder / "metrics.jsonl"):
            path.write_text("".join(json.dumps(row) + "\n" for row in self.history))
        shown = {key: value for key, value in record.items() if key.endswith((metric, "cross_entropy"))}
        print(f"{stage}: " + ", ".join(f"{key.replace('_', ' ')} {value:.4f}" for key, value in shown.items()))

    def _finish(self, model: ViewClassifier, progress: Progress, first: Logits, second: Logits | None) -> Progress:
        """Fit the combination and write best.pt and last.pt.

        The vector view is left out unless it lowers the cross-entropy on validation.
        """
        assert second is not None
        losses = [row["validation_cross_entropy"] for row in self.history]
        combination = combine(first, second if losses[-1] < losses[0] else None, self.labels)
        model.weights.copy_(torch.tensor(combination.weights))
        model.bias.copy_(torch.from_numpy(combination.bias))
        model.has_vector_view = combination.weights[1] > 0
        print(
            f"vector view {'kept' if model.has_vector_view else 'left out'}: validation cross-entropy {losses[-1]:.4f} "
            f"with it, {losses[0]:.4f} without"
        )
        self.task.facts["has_vector_view"] = model.has_vector_view
        best = self.history[-1 if model.has_vector_view else 0][f"validation_{self.task.metric}"]
        progress.best, progress.history, progress.seconds = best, self.history, self.seconds
        progress.peak_memory_bytes, progress.epoch = self.peak_memory_bytes, self.config.training.epochs
        state = {"model": model.cpu().state_dict()}
        for name in ("best.pt", "last.pt"):
            checkpoint.save(self.folder / name, self.config, progress, self.task.facts, state)
        return progress


def _crop(text: bytes, length: int, generator: random.Random) -> bytes:
    """A random part of at most `length` bytes."""
    start = generator.randint(0, max(0, len(text) - length))
    return text[start : start + length]


def _concatenated(first: Words, second: Words) -> Words:
    """The documents of both, in order."""
    return Words(
        np.concatenate((first.values, second.values)),
        np.concatenate((first.starts, second.starts[1:] + first.starts[-1])),
        np.concatenate((first.lengths, second.lengths)),
    )
