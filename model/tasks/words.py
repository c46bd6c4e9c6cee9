"""Text classification by a model of words (`WordClassifier`), trained in stages.

1. The n-gram view: a linear classifier over word n-grams, fitted to the labels.
2. The words of all documents, and the vocabulary of the most frequent ones; nothing is kept of them.
3. Word vectors, by word2vec.
4. The vector view, a classifier over the word vectors, in rounds. It learns from the labels, and on unlabelled
   documents from the probabilities of a teacher: the n-gram view in the first round, then both views together.
5. The weights of both views' logits. The vector view is left out unless it lowers the cross-entropy on validation by
   more than a standard error.
6. If the recipe asks for it, the n-gram view is fitted again, on the rows of all splits.

Each stage keeps its result in the run folder. Each round has a folder of its own and resumes from its own checkpoint.
"""

import copy
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from artifact.documents import cut, take
from model.config.data import DocumentsConfig
from model.config.models import RoundConfig, VectorViewConfig
from model.config.run import ClassificationRun
from model.data.documents import DocumentSet, LabelledDocuments
from model.data.sampling import sample
from model.errors import UserError, writing
from model.nn.classifier import STRETCH_BYTES, WordClassifier
from model.nn.vectors import VectorClassifier
from model.nn.words import WordHasher
from model.tasks.base import Finished
from model.tasks.classification import ClassificationTask, crop
from model.tasks.graphs import Arrays, ExportGraph, golden_documents, module_functions
from model.tasks.link import SOFTMAX, Outputs
from model.tasks.ngrams import MAX_BYTES, MAX_DOCUMENTS, Choice, Counted, Fitted, choose, count, fit
from model.tasks.vectors import Words, choose_words, hash_words, known_ids, train_vectors
from model.tasks.views import (
    VectorRound,
    combined,
    cross_entropies,
    fit_weights,
    held_out_logits,
    is_better,
    mean_of_windows,
    vector_logits,
)
from model.training import checkpoint
from model.training.checkpoint import BEST, FINAL, LAST, Progress, RunFolder
from model.training.loop import Trainer, peak_memory_bytes
from model.training.stages import MODEL, Stage

NGRAMS = "ngram_view"
"""Key of a fact: hyperparameters of the n-gram view that training chose."""
WORDS = "words"
"""Key of a fact: the rule by which words are found. Checkpoints of before the rule UNICODE have none."""
UNICODE = "unicode"
"""Rule of `WordHasher`."""
HAS_VECTOR_VIEW = "has_vector_view"
"""Key of a fact: whether training kept the vector view."""


class WordTask(ClassificationTask):
    """Text classification by a model of words."""

    @property
    def documents(self) -> DocumentsConfig:
        """Where the documents come from."""
        return self.config.data

    @property
    def vector_config(self) -> VectorViewConfig:
        """The vector view; without one in the recipe, it has no rounds."""
        return self.config.model.vector_view or VectorViewConfig()

    def stages(self, data: DocumentSet) -> Sequence[Stage]:
        training, rounds = self.config.training, self.vector_config.rounds
        documents, needed = len(data.train) + len(data.unlabelled), training.batch_size * training.batches_per_step
        if rounds and documents < needed:
            raise UserError(
                "training.batch_size times training.batches_per_step must be at most "
                f"{documents}, the number of documents, not {needed}"
            )
        names = [f"round {number}" for number in range(1, 1 + len(rounds))]
        stages = [Stage("n-gram view", partial(fit_ngrams, self, data))]
        if rounds:
            stages.append(Stage("words", partial(find_words, self, data), ("n-gram view",)))
            stages.append(Stage("vectors", partial(learn_vectors, self), ("words",)))
            before = "vectors"
            for number, name in enumerate(names, 1):
                train = partial(train_round, self, data, number)
                stages.append(Stage(name, train, ("n-gram view", "words", before)))
                before = name
        stages.append(Stage(MODEL, partial(weigh_views, self), ("n-gram view", *names)))
        if self.config.data.final_fit:
            stages.append(Stage("final fit", partial(fit_ngrams_on_all, self, data), (MODEL,)))
        return stages

    def with_facts_of(self, data: DocumentSet) -> Self:
        return super().with_facts_of(data).knowing(**{WORDS: UNICODE})

    def check_code(self, path: Path) -> None:
        if self.facts.get(WORDS) != UNICODE:
            raise UserError(f"{path} was trained on words found by an earlier rule; train again, with another name")

    def build(self) -> WordClassifier:
        config = self.recipe.model
        longest = self.facts.get(NGRAMS, {}).get("longest", config.ngram_view.longest)
        ngram_view = config.ngram_view.model_copy(update={"longest": longest})
        return WordClassifier(config.model_copy(update={"ngram_view": ngram_view}), len(self.facts["labels"]))

    def seeded(self) -> WordClassifier:
        """A new model, the same one for the same facts."""
        torch.manual_seed(self.config.seed)
        return self.build()

    @property
    def recipe(self) -> ClassificationRun:
        config = self.config.model
        if self.facts.get(HAS_VECTOR_VIEW, config.has_rounds):
            return self.config
        model = config.model_copy(update={"encoder": None, "vector_view": None})
        data = self.config.data.model_copy(update={"unlabelled": False})  # only the vector view reads these
        return self.config.model_copy(update={"model": model, "data": data})

    def graphs(self, model: nn.Module) -> tuple[ExportGraph, ...]:
        assert isinstance(model, WordClassifier)
        golden, outputs = golden_documents(self.length), ("logits", "contributions", "known")
        return (ExportGraph("model", model, golden, outputs, self.config.model.buckets, model.with_fixed_shapes()),)

    def finish(self, model: nn.Module, final: nn.Module | None, data: DocumentSet) -> Finished:
        """Quantise the tables; divide the logits by the temperature with the lowest validation loss."""
        for one in (model, final):
            if isinstance(one, WordClassifier):
                one.quantise()
        return super().finish(model, final, data)

    def manifest(self, golden: Arrays) -> dict[str, Any]:
        base = (golden["logits"] - golden["contributions"].sum(axis=1)).mean(axis=0, dtype=np.float64)
        return super().manifest(golden) | {
            "words": self.facts[WORDS],
            "stretches": {"length": STRETCH_BYTES, "base": base.tolist()},
        }


@dataclass(frozen=True)
class Effort:
    """What the stages have taken so far."""

    seconds: float
    examples_per_second: float
    """Of the last stage."""
    peak_memory_bytes: int


@dataclass(frozen=True)
class NgramView:
    """Output of the stage `n-gram view`."""

    task: WordTask
    """With the facts of a model without a vector view."""
    model: WordClassifier
    """With this view alone."""
    logits: Outputs
    """Of the validation documents."""
    unlabelled: Outputs
    """Outputs of the unlabelled documents, for a model with rounds."""
    weights: tuple[float, float]
    """Weights of the views, the second one 0."""
    losses: NDArray[np.float64]
    """Cross-entropy of each validation document."""
    record: dict[str, Any]
    """Line of metrics.jsonl."""
    effort: Effort


@dataclass(frozen=True)
class Corpus:
    """Output of the stage `words`: the words of all documents that the vector view reads, as ids of its vocabulary."""

    model: WordClassifier
    """With the n-gram view and the vocabulary."""
    train: Words
    """One crop of each training document."""
    unlabelled: Words
    """One crop of each unlabelled document."""
    validation: Words
    """All windows of the validation documents."""
    window_counts: tuple[int, ...]
    """Number of windows of each validation document."""


@dataclass(frozen=True)
class VectorView:
    """Output of the stages `vectors` and `round N`."""

    view: VectorClassifier
    model: WordClassifier
    """With all but a trained vector view."""
    teacher: Outputs | None = None
    """Outputs of both views for the unlabelled documents; None before the first round and after the last."""
    weights: tuple[float, float] = (1.0, 0.0)
    losses: NDArray[np.float64] | None = None
    """Cross-entropy of each validation document; None before the first round."""
    records: tuple[dict[str, Any], ...] = ()
    """Lines of metrics.jsonl, except that of the n-gram view."""
    effort: Effort | None = None


def fit_ngrams(task: WordTask, data: DocumentSet, folder: RunFolder) -> NgramView:
    """Choose the hyperparameters of the n-gram view and fit it; kept in ngram-view.npz. Raises: UserError."""
    if not (folder.path / LAST).is_file():  # without weights: each stage has its own checkpoint
        folder.save(LAST, folder.started(), {})
    path = folder.path / "ngram-view.npz"
    if not path.is_file():
        _write(path, _fitted_ngrams(task, data.train))
    with np.load(path) as stored:
        effort = Effort(*(stored[field.name].item() for field in fields(Effort)))
        chosen = {field.name: stored[field.name].item() for field in fields(Choice) if field.name in stored}
        fitted = Fitted(*(stored[field.name] for field in fields(Fitted)))
    task = task.knowing(**{NGRAMS: asdict(Choice(**chosen)), HAS_VECTOR_VIEW: False})
    model = task.seeded()
    fitted.fill(model.ngram_view)
    function = module_functions(task.graphs(model), folder.device)[0]
    logits = task.document_logits(function, data.validation.texts)
    labels = np.array(data.validation.labels)
    record, losses = _record("n-gram view", task.metric, logits, None, labels, effort)
    folder.write_metrics([record])
    unlabelled = task.document_logits(function, data.unlabelled if task.vector_config.rounds else ())
    return NgramView(task, model, logits, unlabelled, fit_weights(logits, None, labels), losses, record, effort)


def _fitted_ngrams(task: WordTask, documents: LabelledDocuments) -> dict[str, Any]:
    """Choose the hyperparameters of the n-gram view and fit it; returns both, and what the fit took."""
    started = time.perf_counter()
    counted, labels = _count(task, documents)
    config, num_classes = task.config.model.ngram_view, len(task.facts["labels"])
    choice = choose(counted, labels, num_classes, config)
    fitted = fit(counted, labels, num_classes, config, choice)
    print(
        f"n-gram view, chosen by cross-validation: n-grams of up to {choice.longest} words, "
        f"scales {choice.scaling}, C = {choice.strength:g}"
        f"{', n-grams of the own group discounted' if choice.discount else ''}"
    )
    seconds = time.perf_counter() - started
    effort = Effort(seconds, len(labels) / seconds, peak_memory_bytes(torch.device("cpu")))
    return {**vars(fitted), **asdict(choice), **asdict(effort)}


def _count(task: WordTask, documents: LabelledDocuments) -> tuple[Counted, NDArray[np.int64]]:
    """N-grams and labels of the documents, or of a sample if there are many. Raises: UserError."""
    chosen = sample(list(map(len, documents.texts)), MAX_DOCUMENTS, MAX_BYTES)
    hasher = WordHasher(task.config.model.ngram_view.longest, task.length)
    texts = [documents.texts[i] for i in chosen]
    if len(texts) < len(documents):
        print(f"n-gram view: fitted on a random {len(texts):,} of {len(documents):,} documents")
    groups = [documents.groups[i] for i in chosen] if documents.groups else []
    try:
        counted = count(hasher, texts, task.length, task.overlap, groups)
    except ValueError as error:
        raise UserError(f"training documents: {error}") from None
    return counted, np.array([documents.labels[i] for i in chosen])


def find_words(task: WordTask, data: DocumentSet, folder: RunFolder, ngrams: NgramView) -> Corpus:
    """Choose the most frequent words as the vocabulary, and find these in all documents."""
    del folder
    model = ngrams.task.knowing(**{HAS_VECTOR_VIEW: True}).seeded()
    model.ngram_view = ngrams.model.ngram_view
    assert model.vocabulary is not None
    length, hasher, generator = task.length, model.words, random.Random(task.config.seed)
    windows = [
        [take(text, spans) for spans in cut(len(text), length, task.overlap, "windows")]
        for text in data.validation.texts
    ]
    train, unlabelled = (
        hash_words(hasher, [crop(text, length, task.config.data.crop, generator) for text in texts])
        for texts in (data.train.texts, data.unlabelled)
    )
    validation = hash_words(hasher, [row for rows in windows for row in rows])
    config = task.vector_config.vectors
    ignored = hash_words(hasher, [text.encode() for text in (config.ignored,) if text])
    vocabulary = choose_words((train, unlabelled), ignored, config.num_words)
    model.vocabulary.fill(vocabulary)
    train, unlabelled, validation = (known_ids(words, vocabulary) for words in (train, unlabelled, validation))
    return Corpus(model, train, unlabelled, validation, tuple(map(len, windows)))


def learn_vectors(task: WordTask, folder: RunFolder, corpus: Corpus) -> VectorView:
    """Train word vectors; kept in vectors.npz."""
    path, config, view = folder.path / "vectors.npz", task.vector_config.vectors, corpus.model.vector_view
    if not path.is_file():
        dim, parts = task.config.model.required_encoder.dim, (corpus.train, corpus.unlabelled)
        _write(path, {"vectors": train_vectors(parts, config.num_words, dim, config, task.config.seed)})
    assert view is not None
    with np.load(path) as stored:
        view.vectors.data.copy_(torch.from_numpy(stored["vectors"]))
    return VectorView(view, corpus.model)


def train_round(
    task: WordTask,
    data: DocumentSet,
    number: int,
    folder: RunFolder,
    ngrams: NgramView,
    corpus: Corpus,
    before: VectorView,
) -> VectorView:
    """Train the vector view on labels, and on the teacher's probabilities of unlabelled documents; in round-NUMBER."""
    rounds, labels = task.vector_config.rounds, np.array(data.validation.labels)
    teacher = combined(ngrams.unlabelled, None, ngrams.weights) if before.teacher is None else before.teacher
    soft = SOFTMAX.probabilities(teacher)
    one_hot = np.eye(soft.shape[1])[data.train.labels]
    learner = VectorRound(
        corpus.train.followed_by(corpus.unlabelled),
        np.concatenate((one_hot, soft)).astype(np.float32),
        task.config.training.batch_size,
        f"{task.config.seed}-{number}",
        corpus.validation,
        corpus.window_counts,
        labels,
        task.metric,
    )
    view = copy.deepcopy(before.view)
    own = _fit_round(task, number, rounds[number - 1], folder, learner, view)
    earlier = before.effort or ngrams.effort
    effort = Effort(
        earlier.seconds + own.seconds,
        own.history[-1]["examples_per_second"],
        max(earlier.peak_memory_bytes, own.peak_memory_bytes),
    )
    second = mean_of_windows(vector_logits(view, corpus.validation, folder.device), corpus.window_counts)
    weights = fit_weights(ngrams.logits, second, labels)
    record, losses = _record(f"round {number}", task.metric, ngrams.logits, second, labels, effort)
    records = (*before.records, record)
    folder.write_metrics([ngrams.record, *records])
    is_teacher = number < len(rounds) and data.unlabelled
    unlabelled = vector_logits(view, corpus.unlabelled, folder.device) if is_teacher else None
    next_teacher = None if unlabelled is None else combined(ngrams.unlabelled, unlabelled, weights)
    return VectorView(view, before.model, next_teacher, weights, losses, records, effort)


def _fit_round(
    task: WordTask, number: int, config: RoundConfig, folder: RunFolder, learner: VectorRound, view: VectorClassifier
) -> Progress:
    """Train the vector view for a round, or resume it, and load its best weights."""
    training = task.config.training
    rate = training.model_copy(update={"learning_rate": training.learning_rate * config.rate})
    name, run = f"round-{number}", task.config.model_copy(update={"training": rate})
    folder = folder.inside(name, run)
    view.to(folder.device)
    view.set_dropout(config.dropout, config.pooled_dropout, config.word_dropout)
    torch.manual_seed(task.config.seed)
    print(f"{name}: {learner.examples_per_epoch:,} documents an epoch", flush=True)
    resumed = folder.resumed()
    progress, state = (folder.started(), None) if resumed is None else (resumed.progress, resumed.state)
    progress = Trainer(folder, learner, view, progress, state)()
    checkpoint.load_best(view, folder.path)
    view.eval()
    return progress


def weigh_views(task: WordTask, folder: RunFolder, ngrams: NgramView, *rounds: VectorView) -> Progress:
    """Combine the views, or leave the vector view out; writes best.pt and last.pt."""
    model, weights, facts = ngrams.model, ngrams.weights, {**folder.facts, **ngrams.task.facts}
    records, effort = [ngrams.record, *(rounds[-1].records if rounds else ())], ngrams.effort
    best = records[0]
    if rounds:
        both, effort = rounds[-1], rounds[-1].effort or effort
        assert both.losses is not None
        is_kept = both.weights[1] > 0 and is_better(both.losses, ngrams.losses)
        print(
            f"vector view {'kept' if is_kept else 'left out'}: validation cross-entropy "
            f"{both.losses.mean():.4f} with it, {ngrams.losses.mean():.4f} without"
        )
        if is_kept:
            model, weights, facts, best = both.model, both.weights, {**facts, HAS_VECTOR_VIEW: True}, records[-1]
            model.vector_view = both.view
    model.weights.copy_(torch.tensor(weights))
    progress = folder.started()
    progress.best, progress.epoch = best[f"validation_{task.metric}"], task.config.training.epochs
    progress.history, progress.seconds = records, effort.seconds
    progress.peak_memory_bytes = effort.peak_memory_bytes
    for name in (BEST, LAST):
        replace(folder, facts=facts).save(name, progress, {"model": model.cpu().state_dict()})
    return progress


def fit_ngrams_on_all(task: WordTask, data: DocumentSet, folder: RunFolder, progress: Progress) -> None:
    """Fit the n-gram view again, on the rows of all splits; the vector view and the weights remain. Writes final.pt."""
    path = folder.path / FINAL
    if path.exists():
        return
    facts, joined = checkpoint.load(folder.path / BEST).facts, data.joined()
    model = task.knowing(**facts).seeded()
    checkpoint.load_best(model, folder.path)
    counted, labels = _count(task, joined.train)
    config, choice = task.config.model.ngram_view, Choice(**facts[NGRAMS])
    fit(counted, labels, len(facts["labels"]), config, choice).fill(model.ngram_view)
    replace(folder, facts=facts).save(FINAL, progress, {"model": model.state_dict()})
    print(f"{path}: n-gram view fitted on all {len(joined.train)} documents")


def _record(
    stage: str, metric: str, first: Outputs, second: Outputs | None, labels: NDArray[np.int64], effort: Effort
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Validation metrics of a stage, which are printed, and the cross-entropy of each document.

    The logits of both views are combined with weights that are fitted on other documents.
    """
    logits = held_out_logits(first, second, labels)
    losses = cross_entropies(logits, labels)
    values = {} if second is None else {f"vector_view_{metric}": SOFTMAX.report(second, labels)[metric]}
    values[f"validation_{metric}"] = SOFTMAX.report(logits, labels)[metric]
    values["validation_cross_entropy"] = float(losses.mean())
    print(f"{stage}: " + ", ".join(f"{key.replace('_', ' ')} {value:.4f}" for key, value in values.items()))
    rate, peak = effort.examples_per_second, effort.peak_memory_bytes
    return {"stage": stage, **values, "examples_per_second": rate, "peak_memory_bytes": peak}, losses


def _write(path: Path, arrays: dict[str, Any]) -> None:
    """Write an .npz file atomically. Raises: UserError, OSError."""
    partial_path = path.with_suffix(".partial")
    with writing(path):
        with partial_path.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        partial_path.replace(path)
