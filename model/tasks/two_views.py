"""Text classification in two views (`TwoViewClassifier`), trained in stages.

1. For bytes with unlabelled documents, the teacher: the n-gram view of a model of words.
2. The n-gram view: a linear classifier over n-grams, fitted to the labels; on unlabelled documents to the probabilities
   of the teacher if there is one. For words with or without vectors of the n-grams, which are learned from labelled and
   unlabelled documents.
3. What the vector view reads in all documents.
4. The vector view, a classifier over vectors of n-grams in order, in rounds. It learns from the labels, and on
   unlabelled documents from the probabilities of a teacher: that of step 1, or else the n-gram view; from the second
   round on, both views together.
5. The weights of both views' logits, with the round of the lowest cross-entropy on validation. The vector view is left
   out unless it lowers that by more than a standard error.
6. If the recipe asks for it, the n-gram view is fitted again, on the rows of all splits.

Each stage but that of step 3 keeps its result in the run folder. Each round has a folder of its own and resumes from
its own checkpoint.
"""

import copy
import json
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from artifact.arrays import Doubles, Floats
from artifact.documents import cut
from artifact.tasks.classification import stretch_bounds
from model.config.data import DocumentsConfig
from model.config.models import NgramViewConfig, RoundConfig, VectorViewConfig
from model.config.run import ClassificationRun
from model.data.documents import DocumentSet, LabelledDocuments
from model.data.sampling import sample
from model.errors import UserError
from model.nn.classifier import STRETCH_BYTES, TwoViewClassifier
from model.nn.tokens import TokenClassifier
from model.tasks.base import Finished
from model.tasks.classification import ClassificationTask
from model.tasks.graphs import Arrays, module_functions
from model.tasks.link import Outputs, link_of
from model.tasks.ngrams import Choice, Counted, Fitted, count, fit
from model.tasks.occurrences import Hasher, principal_vectors
from model.tasks.predictions import AllOutputs, Stretch
from model.tasks.regression import balanced
from model.tasks.rows import run_on_windows
from model.tasks.views import combined, cross_entropies, fit_weights, held_out_logits, is_better
from model.training import checkpoint
from model.training.checkpoint import BEST, FINAL, LAST, Progress, RunFolder
from model.training.learner import Learner
from model.training.loop import Trainer, peak_memory_bytes
from model.training.stages import MODEL, Stage

if TYPE_CHECKING:
    from model.tasks.document_vectors import VectorLearner

NGRAMS = "ngram_view"
"""Key of a fact: hyperparameters of the n-gram view that training chose."""
CHOICE_FILE, VECTORS_FILE, VIEW_FILE = "choice.json", "ngram-vectors.npz", "ngram-view.npz"
"""Files of a run folder: hyperparameters of the n-gram view, its vectors while they are learned, the fitted view."""
MAX_DOCUMENTS = 50_000
MAX_BYTES = 200_000_000
"""Maximum number and size of the documents to fit on; of more, a random sample is used. Training on 136 MB of text with
n-grams of up to three words took 4.1 GB of memory in rows of 65,536 bytes, and 5.7 GB in windows of 4,096."""
NGRAM_STAGE = "n-gram view"
"""Name of the first stage."""
HAS_VECTOR_VIEW = "has_vector_view"
"""Key of a fact: whether training kept the vector view."""


class Corpus(Protocol):
    """What the vector view reads in all documents."""

    @property
    def model(self) -> TwoViewClassifier:
        """The whole model; its vector view is not trained."""

    def learner(self, targets: NDArray[np.float32], seed: str) -> Learner:
        """What a round learns from: probabilities (documents, classes) of the training and unlabelled documents."""

    def validation_logits(self, view: TokenClassifier, device: torch.device) -> Outputs:
        """Logits (documents, classes) of the vector view alone."""

    def unlabelled_logits(self, view: TokenClassifier, device: torch.device) -> Outputs:
        """Logits (documents, classes) of the vector view alone."""


class TwoViewTask(ClassificationTask):
    """Text classification by a model in two views."""

    @property
    def documents(self) -> DocumentsConfig:
        """Where the documents come from."""
        return self.config.data

    @property
    def vector_config(self) -> VectorViewConfig:
        """The vector view; without one in the recipe, it has no rounds."""
        return self.config.model.vector_view or VectorViewConfig()

    @property
    def view(self) -> NgramViewConfig:
        """The n-gram view; once training has chosen its hyperparameters, with these."""
        view, chosen = self.config.model.ngram_view, self.facts.get(NGRAMS)
        return view if chosen is None else Choice(**chosen).of(view)

    @property
    def max_counted(self) -> int | None:
        """Approximate maximum number of n-grams that training considers, the most frequent ones; None for all."""
        return None

    @property
    @abstractmethod
    def tried_lengths(self) -> Sequence[int]:
        """Maximum lengths of an n-gram that training tries, ascending."""

    @abstractmethod
    def hasher(self) -> Hasher:
        """Finds all n-grams that training considers."""

    @abstractmethod
    def described(self, choice: Choice) -> str:
        """The hyperparameters of the n-gram view in words."""

    @abstractmethod
    def chosen(self, counted: Counted, labels: NDArray[np.int64], learner: "VectorLearner | None") -> Choice:
        """The hyperparameters of the n-gram view, chosen by cross-validation."""

    @abstractmethod
    def vector_learner(
        self, texts: Sequence[bytes], labels: NDArray[np.int64], unlabelled: Sequence[bytes]
    ) -> "VectorLearner | None":
        """The learner of n-gram vectors; None without vectors."""

    def teacher(self, data: DocumentSet, folder: RunFolder) -> Outputs | None:
        """Logits of a teacher for the unlabelled documents; None if the n-gram view is the first teacher."""
        del data, folder
        return None

    @abstractmethod
    def read_corpus(self, data: DocumentSet, folder: RunFolder, ngrams: "NgramView") -> Corpus:
        """What the rounds learn from, with a new vector view."""

    @abstractmethod
    def build(self) -> TwoViewClassifier:
        """Create the model."""

    def trained(self, progress: Progress) -> tuple[str, ...]:
        read = f"{self.length:,} bytes at once"
        line = f"the model is the n-gram view ({self.described(Choice(**self.facts[NGRAMS]))}; {read})"
        with_both = [one for one in progress.history if one["stage"] != NGRAM_STAGE]
        if not with_both:
            return (f"{line} alone; the vector view with S3Attention was not trained: it needs --unlabelled documents",)
        best = min(one["validation_cross_entropy"] for one in with_both)
        gain = (
            f"validation cross-entropy {best:.4f} with it, "
            f"{progress.history[0]['validation_cross_entropy']:.4f} without"
        )
        if self.facts[HAS_VECTOR_VIEW]:
            return (f"{line} and the vector view with S3Attention: {gain}",)
        return (f"{line} alone; the vector view with S3Attention was left out: {gain}",)

    def stages(self, data: DocumentSet) -> Sequence[Stage]:
        training, rounds = self.config.training, self.vector_config.rounds
        documents, needed = len(data.train) + len(data.unlabelled), training.batch_size * training.batches_per_step
        if rounds and documents < needed:
            raise UserError(
                "training.batch_size times training.batches_per_step must be at most "
                f"{documents}, the number of documents, not {needed}"
            )
        names = [f"round {number}" for number in range(1, 1 + len(rounds))]
        stages = [
            Stage("teacher", partial(self.teacher, data)),
            Stage(NGRAM_STAGE, partial(fit_ngrams, self, data), ("teacher",)),
        ]
        if rounds:
            stages.append(Stage("n-grams", partial(self.read_corpus, data), (NGRAM_STAGE,)))
            before = "teacher"
            for number, name in enumerate(names, 1):
                train = partial(train_round, self, data, number)
                stages.append(Stage(name, train, (NGRAM_STAGE, "n-grams", before)))
                before = name
        stages.append(Stage(MODEL, partial(weigh_views, self), (NGRAM_STAGE, *names)))
        if self.config.data.final_fit:
            stages.append(Stage("final fit", partial(fit_ngrams_on_all, self, data), (MODEL, "teacher")))
        return stages

    def seeded(self) -> TwoViewClassifier:
        """A new model, the same one for the same facts."""
        torch.manual_seed(self.config.seed)
        return self.build()

    @property
    def recipe(self) -> ClassificationRun:
        config = self.config.model
        if self.facts.get(HAS_VECTOR_VIEW, config.has_rounds):
            return self.config
        return self.config.model_copy(
            update={"model": config.model_copy(update={"encoder": None, "vector_view": None})}
        )

    def finish(self, model: nn.Module, final: nn.Module | None, data: DocumentSet) -> Finished:
        """Quantise the tables; divide the logits by the temperature."""
        for one in (model, final):
            if isinstance(one, TwoViewClassifier):
                one.quantise()
        return super().finish(model, final, data)

    def stretches(self, compute: AllOutputs, text: bytes) -> Sequence[Stretch]:
        """The contributions, as the mean over the windows; the stretches of overlapping windows overlap."""
        plan = cut(len(text), self.length, self.overlap, "windows")
        (parts,) = run_on_windows(
            lambda inputs: compute(inputs)[1], [text], self.length, self.overlap, self.config.model.buckets
        )
        found = [
            Stretch(*bounds, contributions.astype(np.float64) / len(plan))
            for spans, part in zip(plan, parts, strict=True)
            for bounds, contributions in zip(stretch_bounds(spans, STRETCH_BYTES), part, strict=False)  # less padding
        ]
        return sorted(found, key=lambda stretch: stretch[:2])

    def manifest(self, golden: Arrays) -> dict[str, Any]:
        base = (golden["logits"] - golden["contributions"].sum(axis=1)).mean(axis=0, dtype=np.float64)
        return super().manifest(golden) | {"stretches": {"length": STRETCH_BYTES, "base": base.tolist()}}


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

    task: TwoViewTask
    """With the facts of a model without a vector view."""
    model: TwoViewClassifier
    """With this view alone."""
    logits: Outputs
    """Logits of the validation documents."""
    unlabelled: Outputs
    """Logits of the unlabelled documents, for a model with rounds."""
    fitted: Fitted
    token_vectors: Floats
    """Vectors of the n-grams of `fitted` for a model with rounds, (R, dim)."""
    weights: tuple[float, float]
    """Weights of the views, the second one 0."""
    losses: NDArray[np.float64]
    """Cross-entropy of each validation document."""
    record: dict[str, Any]
    """Line of metrics.jsonl."""
    effort: Effort


@dataclass(frozen=True)
class VectorView:
    """Output of the stages `round N`."""

    view: TokenClassifier
    """The trained vector view."""
    model: TwoViewClassifier
    """The whole model; its own vector view is not trained."""
    teacher: Outputs | None
    """Combined logits of both views for the unlabelled documents; None after the last round, and if there are none."""
    weights: tuple[float, float]
    """Weights of both views."""
    losses: NDArray[np.float64]
    """Cross-entropy of each validation document."""
    records: tuple[dict[str, Any], ...]
    """Lines of metrics.jsonl, except that of the n-gram view."""
    effort: Effort


def fit_ngrams(task: TwoViewTask, data: DocumentSet, folder: RunFolder, teacher: Outputs | None) -> NgramView:
    """Choose the hyperparameters of the n-gram view and fit it; kept in ngram-view.npz. Raises: UserError.

    With a teacher's logits of the unlabelled documents, the view is also fitted to its probabilities.
    """
    folder.begin()
    path = folder.path / VIEW_FILE
    if not path.is_file():
        checkpoint.write_arrays(path, _fitted_ngrams(task, data, folder, teacher))
        (folder.path / VECTORS_FILE).unlink(missing_ok=True)  # up to 1 GB
    with checkpoint.reading_result(path) as file, np.load(file) as stored:
        token_vectors = stored["token_vectors"]
        effort = Effort(*(stored[field.name].item() for field in fields(Effort)))
        chosen = {field.name: stored[field.name].item() for field in fields(Choice) if field.name in stored}
        hashes, scales, weights, bias, prior = (stored[field.name] for field in fields(Fitted))
        fitted = Fitted(hashes, scales, weights, bias, prior.item())
    task = task.knowing(**{NGRAMS: asdict(Choice(**chosen)), HAS_VECTOR_VIEW: False})
    model = task.seeded()
    fitted.fill(model.ngram_view)
    function = module_functions(task.graphs(model), folder.device)[0]
    logits = task.document_logits(function, data.validation.texts)
    labels = np.array(data.validation.labels)
    record, losses = _record(NGRAM_STAGE, task.metric, logits, None, labels, effort)
    folder.write_metrics([record])
    unlabelled = task.document_logits(function, data.unlabelled if task.vector_config.rounds else ())
    weights = fit_weights(logits, None, labels)
    return NgramView(task, model, logits, unlabelled, fitted, token_vectors, weights, losses, record, effort)


def _fitted_ngrams(task: TwoViewTask, data: DocumentSet, folder: RunFolder, teacher: Outputs | None) -> dict[str, Any]:
    """Choose the hyperparameters of the n-gram view and fit it; returns both, and what the fit took."""
    started = time.perf_counter()
    config, num_classes = task.config.model.ngram_view, len(task.facts["labels"])
    texts, labels, counted = _count(task, data.train)
    learner = task.vector_learner(texts, labels, data.unlabelled)
    choice = _chosen(folder.path / CHOICE_FILE, task, counted, labels, learner)
    vectors = None
    if learner is not None and (choice.vector_strength or task.vector_config.rounds):
        vectors = learner.learn(np.arange(len(labels)), folder.path / VECTORS_FILE)
    print(f"n-gram view, chosen by cross-validation: {task.described(choice)}")
    if choice.reason:
        print(f"n-gram view: {choice.reason}")
    counted, soft = _with_unlabelled(task, data, texts, counted, teacher)
    print(f"n-gram view: fitted to {len(counted.groups):,} documents ...", flush=True)
    fitted = fit(counted, labels, num_classes, config, choice, vectors, soft=soft)
    token_vectors = np.zeros((0, 0), dtype=np.float32)
    if vectors is not None and task.vector_config.rounds:
        token_vectors = principal_vectors(vectors, fitted.hashes, fitted.scales, task.config.model.required_encoder.dim)
    seconds = time.perf_counter() - started
    effort = Effort(seconds, len(labels) / seconds, peak_memory_bytes(torch.device("cpu")))
    chosen = {key: value for key, value in asdict(choice).items() if value is not None}
    return {**vars(fitted), "token_vectors": token_vectors, **chosen, **asdict(effort)}


def _chosen(
    path: Path, task: TwoViewTask, counted: Counted, labels: NDArray[np.int64], learner: "VectorLearner | None"
) -> Choice:
    """The hyperparameters of the n-gram view, kept in a file."""
    if not path.is_file():
        choice = task.chosen(counted, labels, learner)
        view = choice.of(task.config.model.ngram_view)
        choice = replace(choice, sublinear=view.sublinear, prefixes=view.prefixes)
        with checkpoint.replacing(path) as partial_path:
            partial_path.write_text(json.dumps(asdict(choice)))
    with checkpoint.reading_result(path) as file:
        return Choice(**json.load(file))


def _with_unlabelled(
    task: TwoViewTask, data: DocumentSet, texts: Sequence[bytes], counted: Counted, teacher: Outputs | None
) -> tuple[Counted, Doubles | None]:
    """N-grams of the labelled documents, then of unlabelled ones, and the teacher's probabilities of the latter.

    Without a teacher, those of the labelled documents. Of many documents, a random sample is used.
    """
    if teacher is None:
        return counted, None
    chosen = sample(list(map(len, data.unlabelled)), MAX_DOCUMENTS, MAX_BYTES)
    both = [*texts, *(data.unlabelled[i] for i in chosen)]
    groups = np.concatenate((counted.groups, np.full(len(chosen), -1)))
    counted = replace(count(task.hasher(), both, task.length, task.overlap, (), task.max_counted), groups=groups)
    return counted, link_of(np.array(data.train.labels)).probabilities(teacher[chosen]).astype(np.float64)


def _count(task: TwoViewTask, documents: LabelledDocuments) -> tuple[Sequence[bytes], NDArray[np.int64], Counted]:
    """Texts of the documents, or of a sample if there are many, their labels and n-grams. Raises: UserError."""
    chosen = sample(list(map(len, documents.texts)), MAX_DOCUMENTS, MAX_BYTES)
    texts = [documents.texts[i] for i in chosen]
    if len(texts) < len(documents):
        print(f"n-gram view: fitted on a random {len(texts):,} of {len(documents):,} documents")
    groups = [documents.groups[i] for i in chosen] if documents.groups else []
    try:
        counted = count(task.hasher(), texts, task.length, task.overlap, groups, task.max_counted)
    except ValueError as error:
        raise UserError(f"training documents: {error}") from None
    return texts, np.array([documents.labels[i] for i in chosen]), counted


def train_round(
    task: TwoViewTask,
    data: DocumentSet,
    number: int,
    folder: RunFolder,
    ngrams: NgramView,
    corpus: Corpus,
    before: VectorView | Outputs | None,
) -> VectorView:
    """Train the vector view on labels, and on a teacher's probabilities of unlabelled documents; in round-NUMBER.

    `before` is the round before, or for the first one the teacher's logits; None for those of the n-gram view.
    """
    rounds, labels = task.vector_config.rounds, np.array(data.validation.labels)
    teacher = before.teacher if isinstance(before, VectorView) else before
    if teacher is None:
        teacher = combined(ngrams.unlabelled, None, ngrams.weights)
    soft, train = link_of(labels).probabilities(teacher), np.array(data.train.labels)
    hard = np.eye(soft.shape[1])[train] if train.ndim == 1 else train
    if task.is_balanced:  # the teacher's probabilities already are
        hard = hard * balanced(train)[:, None]
    targets = np.concatenate((hard, soft)).astype(np.float32)
    learner = corpus.learner(targets, f"{task.config.seed}-{number}")
    view = copy.deepcopy(before.view if isinstance(before, VectorView) else corpus.model.vector_view)
    assert view is not None
    own = _fit_round(task, number, rounds[number - 1], folder, learner, view)
    earlier = before.effort if isinstance(before, VectorView) else ngrams.effort
    effort = Effort(
        earlier.seconds + own.seconds,
        own.history[-1]["examples_per_second"],
        max(earlier.peak_memory_bytes, own.peak_memory_bytes),
    )
    second = corpus.validation_logits(view, folder.device)
    weights = fit_weights(ngrams.logits, second, labels)
    record, losses = _record(f"round {number}", task.metric, ngrams.logits, second, labels, effort)
    records = (*(before.records if isinstance(before, VectorView) else ()), record)
    folder.write_metrics([ngrams.record, *records])
    is_teacher = number < len(rounds) and len(data.unlabelled) > 0
    unlabelled = corpus.unlabelled_logits(view, folder.device) if is_teacher else None
    next_teacher = None if unlabelled is None else combined(ngrams.unlabelled, unlabelled, weights)
    return VectorView(view, corpus.model, next_teacher, weights, losses, records, effort)


def _fit_round(
    task: TwoViewTask, number: int, config: RoundConfig, folder: RunFolder, learner: Learner, view: TokenClassifier
) -> Progress:
    """Train the vector view for a round, or resume it, and load its best weights."""
    training = task.config.training
    rate = training.model_copy(update={"learning_rate": training.learning_rate * config.rate})
    name, run = f"round-{number}", task.config.model_copy(update={"training": rate})
    folder = folder.inside(name, run)
    view.to(folder.device)
    view.set_dropout(config.dropout, config.pooled_dropout, config.ngram_dropout)
    torch.manual_seed(task.config.seed)
    print(f"{name}: {learner.examples_per_epoch:,} documents an epoch", flush=True)
    resumed = folder.resumed()
    progress, state = (folder.started(), None) if resumed is None else (resumed.progress, resumed.state)
    progress = Trainer(folder, learner, view, progress, state)()
    checkpoint.load_best(view, folder.path)
    view.eval()
    return progress


def weigh_views(task: TwoViewTask, folder: RunFolder, ngrams: NgramView, *rounds: VectorView) -> Progress:
    """Combine the views, or leave the vector view out; writes best.pt and last.pt."""
    model, weights, facts = ngrams.model, ngrams.weights, {**folder.facts, **ngrams.task.facts}
    records, effort = [ngrams.record, *(rounds[-1].records if rounds else ())], ngrams.effort
    best = records[0]
    if rounds:
        both, effort = min(rounds, key=lambda one: float(one.losses.mean())), rounds[-1].effort
        is_kept = both.weights[1] > 0 and is_better(both.losses, ngrams.losses)
        print(
            f"vector view {'kept' if is_kept else 'left out'}: validation cross-entropy "
            f"{both.losses.mean():.4f} with it, {ngrams.losses.mean():.4f} without"
        )
        if is_kept:
            model, weights, facts, best = both.model, both.weights, {**facts, HAS_VECTOR_VIEW: True}, both.records[-1]
            model.vector_view = both.view
    model.weights.copy_(torch.tensor(weights))
    progress = folder.started()
    progress.best, progress.epoch = best[f"validation_{task.metric}"], task.config.training.epochs
    progress.history, progress.seconds = records, effort.seconds
    progress.peak_memory_bytes = effort.peak_memory_bytes
    for name in (BEST, LAST):
        replace(folder, facts=facts).save(name, progress, {"model": model.cpu().state_dict()})
    return progress


def fit_ngrams_on_all(
    task: TwoViewTask, data: DocumentSet, folder: RunFolder, progress: Progress, teacher: Outputs | None
) -> None:
    """Fit the n-gram view again, on the rows of all splits; the vector view and the weights remain. Writes final.pt."""
    path = folder.path / FINAL
    if path.exists():
        return
    facts, joined = checkpoint.load(folder.path / BEST).facts, data.joined()
    model = task.knowing(**facts).seeded()
    checkpoint.load_best(model, folder.path)
    texts, labels, counted = _count(task, joined.train)
    config, choice = task.config.model.ngram_view, Choice(**facts[NGRAMS])
    learner = task.vector_learner(texts, labels, data.unlabelled) if choice.vector_strength else None
    vectors = None if learner is None else learner.learn(np.arange(len(labels)))
    hashes = None
    if model.vector_view is not None:  # its vectors belong to the n-grams of the first fit
        with checkpoint.reading_result(folder.path / VIEW_FILE) as file, np.load(file) as stored:
            hashes = stored["hashes"]
    counted, soft = _with_unlabelled(task, joined, texts, counted, teacher)
    fit(counted, labels, len(facts["labels"]), config, choice, vectors, hashes, soft).fill(model.ngram_view)
    replace(folder, facts=facts).save(FINAL, progress, {"model": model.state_dict()})
    print(f"{path}: n-gram view fitted on all {len(joined.train)} documents")


def _record(
    stage: str, metric: str, first: Outputs, second: Outputs | None, labels: NDArray[np.int64], effort: Effort
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Validation metrics of a stage, which are printed, and the cross-entropy of each document.

    The logits of both views are combined with weights that are fitted on other documents.
    """
    logits, link = held_out_logits(first, second, labels), link_of(labels)
    losses = cross_entropies(logits, labels)
    values = {} if second is None else {f"vector_view_{metric}": link.report(second, labels)[metric]}
    values[f"validation_{metric}"] = link.report(logits, labels)[metric]
    values["validation_cross_entropy"] = float(losses.mean())
    print(f"{stage}: " + ", ".join(f"{key.replace('_', ' ')} {value:.4f}" for key, value in values.items()))
    rate, peak = effort.examples_per_second, effort.peak_memory_bytes
    return {"stage": stage, **values, "examples_per_second": rate, "peak_memory_bytes": peak}, losses
