"""Training of a classifier of words (`WordClassifier`), in stages.

1. The n-gram view: a linear classifier over word n-grams, fitted to the labels.
2. Word vectors, by word2vec.
3. The vector view, a classifier over the word vectors, in rounds. It learns from the labels, and on unlabelled
   documents from the probabilities of a teacher: the n-gram view in the first round, then both views together.
4. The weights of both views' logits. The vector view is left out unless it lowers the cross-entropy on validation by
   more than a standard error.

Each stage writes to the run folder when it ends, and a resumed run reads it from there; each round has a folder of its
own and resumes from its own checkpoint. Called by `model.training.run`.
"""

import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
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
from model.data.documents import Documents
from model.data.sampling import sample
from model.errors import UserError, writing
from model.nn.classifier import WordClassifier
from model.nn.vectors import VectorClassifier
from model.nn.words import WordHasher
from model.tasks.base import Learner, module_runs
from model.tasks.classification import HAS_VECTOR_VIEW, METRICS, NGRAMS, Classification, Logits
from model.tasks.ngrams import MAX_BYTES, MAX_DOCUMENTS, Choice, Counted, Fitted, choose, count, fit
from model.tasks.vectors import Words, choose_words, hash_words, known_ids, train_vectors
from model.tasks.views import (
    VectorRound,
    combine,
    combined,
    cross_entropies,
    held_out_logits,
    is_better,
    mean_of_windows,
    vector_logits,
)
from model.training import checkpoint
from model.training.checkpoint import FINAL, Progress
from model.training.loop import Job, Trainer, peak_memory_bytes
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
    """Training run of a `WordClassifier`. Call it to train to the end; finished stages are not repeated."""

    def __init__(
        self,
        config: ClassificationRun,
        task: Classification,
        folder: Path,
        device: torch.device,
        unlabelled: Sequence[bytes],
    ) -> None:
        """Create a run. Raises: UserError if there are fewer documents than a batch."""
        self.config, self.task, self.folder, self.device, self.unlabelled = config, task, folder, device, unlabelled
        self.vector_config = config.model.vector_view or VectorViewConfig()
        self.labels = np.array(task.data.validation.labels)
        self.seconds, self.peak_memory_bytes, self.examples_per_second = 0.0, 0, 0.0
        self.history: list[dict[str, Any]] = []
        training, documents = config.training, len(task.data.train) + len(unlabelled)
        if self.vector_config.rounds and documents < (needed := training.batch_size * training.batches_per_step):
            raise UserError(
                "training.batch_size times training.batches_per_step must be at most "
                f"{documents}, the number of documents, not {needed}"
            )

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
        facts = self.task.facts
        fitted, choice = self._ngrams(self.task.data.train)
        facts |= {NGRAMS: asdict(choice), HAS_VECTOR_VIEW: False}
        alone = self._build()
        fitted.fill(alone.ngram_view)
        first = self._ngram_logits(alone, self.task.data.validation.texts)
        losses = self._record("n-gram view", first, None)
        weights = combine(first, None, self.labels)
        if not self.vector_config.rounds:
            return self._finish(alone, progress, weights)
        facts[HAS_VECTOR_VIEW] = True
        model = self._build()
        assert model.vector_view is not None
        model.ngram_view = alone.ngram_view
        corpus = self._corpus(model)
        model.vector_view.vectors.data.copy_(self._vectors(corpus))
        unlabelled_first = self._ngram_logits(alone, self.unlabelled)
        teacher = combined(unlabelled_first, None, weights)
        for number, round_config in enumerate(self.vector_config.rounds, 1):
            self._train_round(number, round_config, model.vector_view, corpus, softmax(teacher.astype(np.float64)))
            window_logits = vector_logits(model.vector_view, corpus.validation, self.device)
            second = mean_of_windows(window_logits, corpus.window_counts)
            both = combine(first, second, self.labels)
            both_losses = self._record(f"round {number}", first, second)
            if number < len(self.vector_config.rounds) and self.unlabelled:
                unlabelled_second = vector_logits(model.vector_view, corpus.unlabelled, self.device)
                teacher = combined(unlabelled_first, unlabelled_second, both)
        facts[HAS_VECTOR_VIEW] = both[1] > 0 and is_better(both_losses, losses)
        print(
            f"vector view {'kept' if facts[HAS_VECTOR_VIEW] else 'left out'}: validation cross-entropy "
            f"{both_losses.mean():.4f} with it, {losses.mean():.4f} without"
        )
        return self._finish(model, progress, both) if facts[HAS_VECTOR_VIEW] else self._finish(alone, progress, weights)

    def fit_on_all(self, data: Path) -> None:
        """Fit the n-gram view again, on the rows of all splits; the vector view and the weights remain.

        Writes final.pt. Raises: UserError.
        """
        _, progress, facts, state = checkpoint.load(self.folder / "best.pt")
        self.task.restore(facts)
        joined = self.task.join_splits(data)
        model = self._build()
        checkpoint.load_weights(model, state, self.folder / "best.pt")
        documents, choice = self.task.data.train, Choice(**facts[NGRAMS])
        counted, labels = self._count(documents)
        self._fit(counted, labels, choice).fill(model.ngram_view)
        checkpoint.save(self.folder / FINAL, self.config, progress, facts, {"model": model.state_dict()})
        print(f"{self.folder / FINAL}: n-gram view fitted on all {joined}")

    def _build(self) -> WordClassifier:
        """Create the model with the present facts."""
        torch.manual_seed(self.config.seed)
        model = self.task.build()
        assert isinstance(model, WordClassifier)
        return model

    def _ngrams(self, documents: Documents) -> tuple[Fitted, Choice]:
        """Fit the n-gram view, once per run; then read it from the run's folder. Raises: UserError."""
        path = self.folder / "ngram-view.npz"
        if not path.is_file():
            self._write(path, self._fitted_ngrams(documents))
        with np.load(path) as stored:
            self.seconds += float(stored["seconds"])
            self.examples_per_second = float(stored["examples_per_second"])
            self.peak_memory_bytes = max(self.peak_memory_bytes, int(stored["peak_memory_bytes"]))
            choice = Choice(
                **{field.name: stored[field.name].item() for field in fields(Choice) if field.name in stored}
            )
            return Fitted(*(stored[field.name] for field in fields(Fitted))), choice

    def _fitted_ngrams(self, documents: Documents) -> dict[str, Any]:
        """Choose the hyperparameters of the n-gram view and fit it; returns both, and what the fit took."""
        started = time.perf_counter()
        counted, labels = self._count(documents)
        choice = choose(counted, labels, len(self.task.facts["labels"]), self.config.model.ngram_view)
        fitted = self._fit(counted, labels, choice)
        print(
            f"n-gram view, chosen by cross-validation: n-grams of up to {choice.longest} words, "
            f"scales {choice.scaling}, C = {choice.strength:g}"
            f"{', n-grams of the own group discounted' if choice.discount else ''}"
        )
        seconds = time.perf_counter() - started
        return {
            **vars(fitted),
            **asdict(choice),
            "seconds": seconds,
            "examples_per_second": len(labels) / seconds,
            "peak_memory_bytes": peak_memory_bytes(torch.device("cpu")),
        }

    def _write(self, path: Path, arrays: dict[str, Any]) -> None:
        """Write an .npz file atomically."""
        partial = path.with_suffix(".partial")
        with writing(path):
            with partial.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            partial.replace(path)

    def _count(self, documents: Documents) -> tuple[Counted, NDArray[np.int64]]:
        """N-grams and labels of the documents, or of a sample if there are many. Raises: UserError."""
        chosen = sample(list(map(len, documents.texts)), MAX_DOCUMENTS, MAX_BYTES)
        hasher = WordHasher(self.config.model.ngram_view.longest, self.task.length)
        texts = [documents.texts[i] for i in chosen]
        if len(texts) < len(documents):
            print(f"n-gram view: fitted on a random {len(texts):,} of {len(documents):,} documents")
        groups = [documents.groups[i] for i in chosen] if documents.groups else []
        try:
            counted = count(hasher, texts, self.task.length, self.task.overlap, groups)
        except ValueError as error:
            raise UserError(f"training documents: {error}") from None
        return counted, np.array([documents.labels[i] for i in chosen])

    def _fit(self, counted: Counted, labels: NDArray[np.int64], choice: Choice) -> Fitted:
        return fit(counted, labels, len(self.task.facts["labels"]), self.config.model.ngram_view, choice)

    def _train_round(
        self,
        number: int,
        config: RoundConfig,
        vector_view: VectorClassifier,
        corpus: Corpus,
        soft: NDArray[np.float64],
    ) -> None:
        """Train the vector view for a round: on labels, and on the probabilities `soft` of unlabelled documents."""
        vector_view.to(self.device)
        vector_view.set_dropout(config.dropout, config.pooled_dropout, config.word_dropout)
        training = self.config.training
        one_hot = np.eye(soft.shape[1])[self.task.data.train.labels]
        words = _concatenated(corpus.train, corpus.unlabelled)
        learner = VectorRound(
            words,
            np.concatenate((one_hot, soft)).astype(np.float32),
            training.batch_size,
            f"{self.config.seed}-{number}",
        )
        learner.validate_on(corpus.validation, corpus.window_counts, self.labels, self.task.metric)
        rate = training.learning_rate * config.rate
        stage_config = self.config.model_copy(update={"training": training.model_copy(update={"learning_rate": rate})})
        self._train(f"round-{number}", stage_config, learner, vector_view)

    def _train(self, name: str, config: ClassificationRun, learner: Learner, model: nn.Module) -> None:
        """Train or resume one stage, then load its best weights."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(self.config.seed)
        progress, state = Progress(device=hardware(self.device), revision=git_revision()), None
        if (folder / "last.pt").is_file():
            _, progress, _, state = checkpoint.load(folder / "last.pt")
        print(f"{name}: {learner.examples_per_epoch:,} documents an epoch", flush=True)
        progress = Trainer(Job(config, learner, model, folder, self.device), progress, state)()
        checkpoint.load_weights(model, checkpoint.load(folder / "best.pt")[3], folder / "best.pt")
        model.eval()
        self.seconds += progress.seconds
        self.peak_memory_bytes = max(self.peak_memory_bytes, progress.peak_memory_bytes)
        self.examples_per_second = progress.history[-1]["examples_per_second"]

    def _corpus(self, model: WordClassifier) -> Corpus:
        """Fill the vector view's vocabulary with the most frequent words, and find these in all documents."""
        data, length, hasher = self.task.data, self.task.length, model.words
        generator = random.Random(self.config.seed)
        windows = [
            [take(text, spans) for spans in cut(len(text), length, self.task.overlap, "windows")]
            for text in data.validation.texts
        ]
        train = hash_words(hasher, [self._crop(text, generator) for text in data.train.texts])
        unlabelled = hash_words(hasher, [self._crop(text, generator) for text in self.unlabelled])
        validation = hash_words(hasher, [row for rows in windows for row in rows])
        ignored = hash_words(hasher, [text.encode() for text in (self.vector_config.vectors.ignored,) if text])
        vocabulary = choose_words((train, unlabelled), ignored, self.vector_config.vectors.num_words)
        assert model.vocabulary is not None
        model.vocabulary.fill(vocabulary)
        train, unlabelled, validation = (known_ids(words, vocabulary) for words in (train, unlabelled, validation))
        return Corpus(train, unlabelled, validation, tuple(map(len, windows)))

    def _crop(self, text: bytes, generator: random.Random) -> bytes:
        """The part of a document that the vector view learns from: its head, or a random part."""
        spare = max(0, len(text) - self.task.length)
        start = generator.randint(0, spare) if self.config.data.crop == "random" else 0
        return text[start : start + self.task.length]

    def _vectors(self, corpus: Corpus) -> Tensor:
        """Word vectors, trained once per run and then read from its folder."""
        path, config = self.folder / "vectors.npz", self.vector_config.vectors
        if not path.is_file():
            dim = self.config.model.required_encoder.dim
            parts = (corpus.train, corpus.unlabelled)
            self._write(path, {"vectors": train_vectors(parts, config.num_words, dim, config, self.config.seed)})
        with np.load(path) as stored:
            return torch.from_numpy(stored["vectors"])

    def _ngram_logits(self, model: WordClassifier, texts: Sequence[bytes]) -> Logits:
        """Logits (documents, classes) of the n-gram view, as means over the windows of each document."""
        if not texts:
            return np.zeros((0, len(self.task.facts["labels"])), dtype=np.float32)
        run = module_runs(self.task.graphs(model), self.device)[0]
        rows = self.task.logits(run, Documents(list(texts), [0] * len(texts)))
        return np.stack([windows.mean(0) for windows in rows])

    def _record(self, stage: str, first: Logits, second: Logits | None) -> NDArray[np.float64]:
        """Add the validation metrics of a stage to metrics.jsonl; returns the cross-entropy of each document.

        The logits of both views are combined with weights that are fitted on other documents.
        """
        logits, metric = held_out_logits(first, second, self.labels), self.task.metric
        record: dict[str, Any] = {"stage": stage}
        if second is not None:
            record[f"vector_view_{metric}"] = METRICS[metric](second, self.labels)
        record |= {
            f"validation_{metric}": METRICS[metric](logits, self.labels),
            "validation_cross_entropy": float((losses := cross_entropies(logits, self.labels)).mean()),
            "examples_per_second": self.examples_per_second,
            "peak_memory_bytes": self.peak_memory_bytes,
        }
        self.history.append(record)
        with writing(path := self.folder / "metrics.jsonl"):
            path.write_text("".join(json.dumps(row) + "\n" for row in self.history))
        shown = {key: value for key, value in record.items() if key.endswith((metric, "cross_entropy"))}
        print(f"{stage}: " + ", ".join(f"{key.replace('_', ' ')} {value:.4f}" for key, value in shown.items()))
        return losses

    def _finish(self, model: WordClassifier, progress: Progress, weights: tuple[float, float]) -> Progress:
        """Set the weights of the views and write best.pt and last.pt."""
        model.weights.copy_(torch.tensor(weights))
        has_vector_view = self.task.facts[HAS_VECTOR_VIEW]
        progress.best = self.history[-1 if has_vector_view else 0][f"validation_{self.task.metric}"]
        progress.history, progress.seconds = self.history, self.seconds
        progress.peak_memory_bytes, progress.epoch = self.peak_memory_bytes, self.config.training.epochs
        state = {"model": model.cpu().state_dict()}
        for name in ("best.pt", "last.pt"):
            checkpoint.save(self.folder / name, self.config, progress, self.task.facts, state)
        return progress


def _concatenated(first: Words, second: Words) -> Words:
    """The documents of both, in order."""
    return Words(
        np.concatenate((first.values, second.values)),
        np.concatenate((first.starts, second.starts[1:] + first.starts[-1])),
        np.concatenate((first.lengths, second.lengths)),
    )
