"""Training of a matcher of own pairs: the lexical view, its tower, the encoder, the joint view, and their weights.

Used by the commands through `model.tasks`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from artifact.arrays import Doubles
from model.config.models import OPENING
from model.config.run import MatchingRun
from model.data.pairs import Pairs
from model.data.sampling import sample
from model.errors import UserError
from model.nn.joint import JointView
from model.nn.matcher import Matcher, ViewsMatcher
from model.nn.tower import TowerMatcher
from model.tasks import tfidf
from model.tasks.base import Finished
from model.tasks.comparison import difference
from model.tasks.graphs import module_functions
from model.tasks.joint import JointLearner, words_of
from model.tasks.lexical import Choice, FittedLexical, LabelledPairs, Weights, choose, fit
from model.tasks.link import Outputs
from model.tasks.matching import MatchingTask, PairLearner, PairTask
from model.tasks.tower import TowerLearner, encodings_of_windows
from model.tasks.views import combined, cross_entropies, fit_weights, held_out_logits, is_better
from model.training import checkpoint
from model.training.checkpoint import BEST, FINAL, LAST, Progress, RunFolder
from model.training.loop import peak_memory_bytes
from model.training.stages import MODEL, Stage, check_steps, fit_on_all
from model.training.stages import fit as fit_gradients

VIEW_FILE = "lexical-view.npz"
"""File of a run folder: the fitted lexical view."""
CHOICE = "lexical_view"
"""Key of a fact: hyperparameters of the lexical view that training chose."""
HAS_TOWER, HAS_ENCODER, HAS_JOINT = "has_tower", "has_encoder", "has_joint_view"
"""Keys of facts: whether training kept the tower, the encoder, and the joint view."""
LEXICAL_STAGE, TOWER_STAGE, ENCODER_STAGE, JOINT_STAGE = "lexical view", "tower", "encoder", "joint view"
"""Names of stages."""
JOINT_FOLDER = "joint-view"
"""Folder within a run of the joint view's training."""
MAX_PAIRS, MAX_BYTES = 20_000, 200_000_000
"""Maximum number of the pairs on which the lexical view is fitted, and of the bytes of both texts of all; of more, a
random sample is used."""


@dataclass(frozen=True)
class LexicalMatchingTask(PairTask):
    """Text matching by a lexical view, and by an encoder and a joint view where they help."""

    @property
    def recipe(self) -> MatchingRun:
        config = self.config.model
        assert config.lexical_view is not None
        chosen = self.facts.get(CHOICE)
        changes: dict[str, Any] = {}
        if chosen is not None:
            view = Choice(**chosen).of(config.lexical_view)
            changes["lexical_view"] = view if self.facts.get(HAS_TOWER) else view.model_copy(update={"tower": None})
        if not self.facts.get(HAS_ENCODER, config.has_encoder):
            changes |= {"stem": None, "encoder": None}
        if not self.facts.get(HAS_JOINT, chosen is None):
            changes["joint_view"] = None
        return self.config.model_copy(update={"model": config.model_copy(update=changes)})

    def of_encoder(self) -> MatchingTask:
        """The task of the encoder alone, which learns as a matcher without a lexical view."""
        model = self.config.model.model_copy(update={"lexical_view": None, "joint_view": None})
        return MatchingTask(self.config.model_copy(update={"model": model}), self.facts)

    def plain(self) -> "LexicalMatchingTask":
        """The task of the lexical view alone, without a tower."""
        return replace(self, facts={**self.facts, HAS_TOWER: False, HAS_ENCODER: False, HAS_JOINT: False})

    def with_tower(self) -> "LexicalMatchingTask":
        """The task of the lexical view alone, with its tower; training is that of the tower."""
        view, plain = self.config.model.lexical_view, self.plain()
        assert view is not None
        assert view.tower is not None
        config = self.config.model_copy(update={"training": view.tower.training})
        return replace(plain, config=config, facts={**plain.facts, HAS_TOWER: True})

    def with_joint(self) -> "LexicalMatchingTask":
        """The task of the lexical view without a tower and the joint view, whose training it is."""
        view, plain = self.config.model.joint_view, self.plain()
        assert view is not None
        config = self.config.model_copy(update={"training": view.training})
        return replace(plain, config=config, facts={**plain.facts, HAS_JOINT: True})

    def trains_tower(self, data: Pairs) -> bool:
        """Whether there are enough pairs to train the tower."""
        view = self.config.model.lexical_view
        assert view is not None
        return view.tower is not None and len(self.pairs(data, "train")) >= view.tower.min_pairs

    def trains_joint(self, data: Pairs) -> bool:
        """Whether there are enough pairs to train the joint view."""
        view = self.config.model.joint_view
        return view is not None and len(self.pairs(data, "train")) >= view.min_pairs

    def trains_encoder(self, data: Pairs) -> bool:
        """Whether there are enough pairs to train the encoder."""
        return self.config.model.has_encoder and len(self.pairs(data, "train")) >= self.config.model.encoder_pairs

    def stages(self, data: Pairs) -> Sequence[Stage]:
        if self.trains_encoder(data):
            check_steps(self.of_encoder().learner(data).examples_per_epoch, self.config.training)
        stages = [
            Stage(LEXICAL_STAGE, partial(fit_lexical, self, data)),
            Stage(TOWER_STAGE, partial(fit_tower, self, data), (LEXICAL_STAGE,)),
            Stage(ENCODER_STAGE, partial(fit_encoder, self, data)),
            Stage(JOINT_STAGE, partial(fit_joint, self, data), (LEXICAL_STAGE,)),
            Stage(MODEL, partial(weigh_views, self), (LEXICAL_STAGE, TOWER_STAGE, ENCODER_STAGE, JOINT_STAGE)),
        ]
        if self.config.data.final_fit:
            stages.append(Stage("final fit", partial(fit_lexical_on_all, self, data), (MODEL,)))
        return stages

    def build(self) -> ViewsMatcher:
        return ViewsMatcher(self.recipe.model)

    def conclude(
        self, finished: Finished, data: Pairs, baseline: tfidf.Baseline | None, progress: Progress
    ) -> tuple[str, ...]:
        line = f"the model is the lexical view ({described(Choice(**self.facts[CHOICE]))})"
        losses = {record["stage"]: record["validation_cross_entropy"] for record in progress.history}
        without = LEXICAL_STAGE
        for stage, fact, kind in (
            (TOWER_STAGE, HAS_TOWER, ""),
            (ENCODER_STAGE, HAS_ENCODER, " with S3Attention"),
            (JOINT_STAGE, HAS_JOINT, ""),
        ):
            if stage in losses:
                line += f"{', with the' if self.facts[fact] else '; without the'} {stage}{kind}: validation "
                line += f"cross-entropy {losses[stage]:.4f} with it, {losses[without]:.4f} without"
                without = stage if self.facts[fact] else without
        if ENCODER_STAGE not in losses and self.config.model.has_encoder:
            needed = self.config.model.encoder_pairs
            line += f"; the encoder with S3Attention was not trained: it needs {needed:,} training pairs"
        if baseline is None:
            return (line,)
        pairs = self.pairs(data, "val")
        functions = module_functions(finished.graphs, torch.device("cpu"))
        logits, labels = self.logits(functions, data, pairs)
        scores = baseline.scores(data.texts, pairs[:, :2])
        found = difference(self.order_value, logits, scores, labels, pairs[:, 0].tolist())
        compared = f"validation {self.metric} {self.order_value(logits, labels):.4f}"
        return (
            line,
            f"warning: {compared} is below that of {baseline.name}, {baseline.value:.4f}: {found}"
            if found.is_behind
            else f"{compared}, {baseline.name} {baseline.value:.4f}: {found}",
        )


@dataclass(frozen=True)
class View:
    """Output of a view for the M validation pairs."""

    logits: Outputs
    """(M, 1), as in `centred`."""
    targets: Doubles
    """(M, 1)."""
    seconds: float
    """Duration of the stage."""
    examples: int
    """Number of training pairs."""


@dataclass(frozen=True)
class LexicalStage:
    """Output of the stages `lexical view` and `tower`."""

    task: LexicalMatchingTask
    """With the facts of a model of this view alone, which has a tower or none."""
    fitted: FittedLexical
    model: ViewsMatcher
    """With this view alone."""
    view: View


@dataclass(frozen=True)
class EncoderStage:
    """Output of the stage `encoder`."""

    model: Matcher
    view: View


@dataclass(frozen=True)
class JointStage:
    """Output of the stage `joint view`."""

    model: JointView
    view: View


def described(choice: Choice) -> str:
    """The hyperparameters of the lexical view in words."""
    words = "words" if choice.longest == 1 else f"n-grams of up to {choice.longest} words"
    power = "" if choice.exponent == 1 else f" to the power of {choice.exponent:g}"
    head = f"products and differences with C = {choice.strength:g}" if choice.strength else "their cosine"
    opening = f", the first {OPENING} bytes also by themselves" if choice.opening else ""
    return f"{words}, inverse document frequency{power}, {head}{opening}"


def labelled(task: PairTask, data: Pairs, pairs: NDArray[np.int64]) -> tuple[list[bytes], LabelledPairs]:
    """The distinct documents of pairs, cut to `data.max_bytes`, and the pairs; a random sample if there are many."""
    limit = task.config.data.max_bytes
    sizes = [sum(min(len(data.texts[i]), limit) for i in pair) for pair in pairs[:, :2].tolist()]
    kept = sample(sizes, MAX_PAIRS, MAX_BYTES)
    if len(kept) < len(pairs):
        print(f"lexical view: fitted on a random {len(kept):,} of {len(pairs):,} pairs")
    pairs = pairs[kept]
    used = np.unique(pairs[:, :2])
    texts = [data.texts[i][:limit] for i in used]
    return texts, LabelledPairs(np.searchsorted(used, pairs[:, :2]), data.targets(pairs))


def fit_lexical(task: LexicalMatchingTask, data: Pairs, folder: RunFolder) -> LexicalStage:
    """Choose the hyperparameters of the lexical view and fit it, or read both from VIEW_FILE. Raises: UserError."""
    folder.begin()
    path = folder.path / VIEW_FILE
    if not path.is_file():
        checkpoint.write_arrays(path, _fitted_lexical(task, data))
    with checkpoint.reading_result(path) as file, np.load(file) as stored:
        choice = Choice(*(stored[name].item() for name in Choice._fields))
        weights = Weights(*(stored[name] for name in Weights._fields))
        fitted = FittedLexical(stored["hashes"], stored["table"], stored["frequencies"], weights)
        seconds = stored["seconds"].item()
    task = replace(task, facts={**task.facts, CHOICE: choice._asdict()}).plain()
    model = task.build()
    fitted.fill(model)
    return LexicalStage(task, fitted, model, _view(LEXICAL_STAGE, task, model, data, folder, seconds))


def _fitted_lexical(task: LexicalMatchingTask, data: Pairs) -> dict[str, Any]:
    """Arrays of VIEW_FILE: hyperparameters and parameters of the lexical view, and the duration in seconds."""
    started, config = time.perf_counter(), task.config.model.lexical_view
    assert config is not None
    texts, pairs = labelled(task, data, task.pairs(data, "train"))
    try:
        choice = choose(texts, pairs, config, task.config.seed)
    except ValueError as error:
        raise UserError(f"training documents: {error}") from None
    print(f"lexical view, chosen by cross-validation: {described(choice)}", flush=True)
    fitted = fit(texts, pairs, config, choice, task.config.seed)
    return {
        **choice._asdict(),
        **fitted.weights._asdict(),
        "hashes": fitted.hashes,
        "table": fitted.table,
        "frequencies": fitted.frequencies,
        "seconds": time.perf_counter() - started,
    }


def fit_tower(task: LexicalMatchingTask, data: Pairs, folder: RunFolder, lexical: LexicalStage) -> LexicalStage | None:
    """Train the tower of the lexical view, or resume it, in the folder `tower`; None if there are too few pairs.

    Raises: UserError.
    """
    if not task.trains_tower(data):
        return None
    pairs = np.concatenate([task.pairs(data, split) for split in ("train", "val")])
    learner = _tower_learner(lexical.task, lexical.fitted, data, pairs, folder)
    check_steps(learner.examples_per_epoch, learner.config.training)
    inside = folder.inside(TOWER_STAGE, learner.config)
    progress = fit_gradients(learner, inside)
    trained = learner.build()
    checkpoint.load_best(trained, inside.path)
    fitted, known = lexical.fitted.with_tower(trained), lexical.task.with_tower()
    model = known.build()
    fitted.fill(model)
    return LexicalStage(known, fitted, model, _view(TOWER_STAGE, known, model, data, folder, progress.seconds))


def _tower_learner(
    task: LexicalMatchingTask, fitted: FittedLexical, data: Pairs, pairs: NDArray[np.int64], folder: RunFolder
) -> TowerLearner:
    """What trains the tower, on vectors of all documents of the pairs. `fitted` has no tower."""
    windows = _encodings(task.plain(), fitted, data, pairs, folder)
    return TowerLearner(task.with_tower(), data, task.pairs(data, "train"), windows)


def fit_joint(task: LexicalMatchingTask, data: Pairs, folder: RunFolder, lexical: LexicalStage) -> JointStage | None:
    """Train the joint view, or resume it, in JOINT_FOLDER; None if there are too few pairs.

    Raises: UserError.
    """
    if not task.trains_joint(data):
        return None
    pairs = np.concatenate([task.pairs(data, split) for split in ("train", "val")])
    learner = _joint_learner(lexical.task, lexical.fitted, data, pairs, folder)
    check_steps(learner.examples_per_epoch, learner.config.training)
    inside = folder.inside(JOINT_FOLDER, learner.config)
    progress = fit_gradients(learner, inside)
    model = learner.build()
    checkpoint.load_best(model, inside.path)
    pairs = task.pairs(data, "val")
    logits, targets = learner.logits(model.eval().to(folder.device), pairs, folder.device), data.targets(pairs)
    examples = len(task.pairs(data, "train"))
    logits = centred(logits, targets, task)
    return JointStage(model.cpu(), View(logits[:, None], targets[:, None], progress.seconds, examples))


def _joint_learner(
    task: LexicalMatchingTask, fitted: FittedLexical, data: Pairs, pairs: NDArray[np.int64], folder: RunFolder
) -> JointLearner:
    """What trains the joint view, on the words of all documents of the pairs. `fitted` has no tower."""
    known = task.with_joint()
    words = words_of(_encodings(known, fitted, data, pairs, folder), known.recipe.model.num_words)
    return JointLearner(known, data, task.pairs(data, "train"), words, fitted.frequencies)


def _encodings(
    task: LexicalMatchingTask, fitted: FittedLexical, data: Pairs, pairs: NDArray[np.int64], folder: RunFolder
) -> Mapping[int, Outputs]:
    """Encodings of the windows (windows, C) of each document of the pairs, by a model without a tower."""
    model = task.build()
    fitted.fill(model)
    return encodings_of_windows(task, model, data, pairs, folder.device)


def fit_encoder(task: LexicalMatchingTask, data: Pairs, folder: RunFolder) -> EncoderStage | None:
    """Train the encoder alone, as a matcher without a lexical view, or resume it, in the folder `encoder`.

    None if there are too few pairs.
    """
    if not task.trains_encoder(data):
        return None
    alone = task.of_encoder()
    inside = folder.inside(ENCODER_STAGE, alone.config)
    progress = fit_gradients(alone.learner(data), inside)
    model = alone.build()
    checkpoint.load_best(model, inside.path)
    return EncoderStage(model, _view(ENCODER_STAGE, alone, model, data, folder, progress.seconds))


def _view(stage: str, task: PairTask, model: nn.Module, data: Pairs, folder: RunFolder, seconds: float) -> View:
    """Output of a model of one view for the validation pairs. Prints their metric."""
    pairs = task.pairs(data, "val")
    functions = module_functions(task.graphs(model), folder.device)
    logits, targets = task.logits(functions, data, pairs)
    value = task.value(logits, targets)
    print(f"{stage}: validation {task.metric} {value:.4f}", flush=True)
    examples = len(task.pairs(data, "train"))
    model.cpu()
    return View(centred(logits, targets, task)[:, None], targets[:, None], seconds, examples)


def centred(logits: Outputs, targets: Doubles, task: PairTask) -> Outputs:
    """Logits (M,) plus a constant, after which 0 is where both answers are equally likely.

    The weights of the views have no constant; the model gets one at the end, by its calibration. Logits trained with
    in-batch negatives may be off by several units.
    """
    scaling = task.link.calibrate(logits, targets)
    return logits + scaling.shift / scaling.scale if scaling.scale > 0 else logits


def weigh_views(
    task: LexicalMatchingTask,
    folder: RunFolder,
    lexical: LexicalStage,
    tower: LexicalStage | None,
    encoder: EncoderStage | None,
    joint: JointStage | None,
) -> Progress:
    """Keep the tower, the encoder and the joint view, or leave each out, and combine them; writes best.pt and last.pt.

    Each is judged beside those kept before it.
    """
    record, losses = _record(LEXICAL_STAGE, task, lexical.view, None)
    records, views = [record], [lexical.view]
    if tower is not None:
        found, losses_with = _record(TOWER_STAGE, task, tower.view, None)
        records, views = [*records, found], [*views, tower.view]
        if _is_kept(TOWER_STAGE, losses_with, losses):
            lexical, record, losses = tower, found, losses_with
    first, facts = lexical.view, {**folder.facts, **lexical.task.facts}
    weights, joint_weight, second = fit_weights(first.logits, None, first.targets), 0.0, None
    if encoder is not None:
        found, losses_with = _record(ENCODER_STAGE, task, first, encoder.view)
        records, views = [*records, found], [*views, encoder.view]
        both = fit_weights(first.logits, encoder.view.logits, first.targets)
        if _is_kept(ENCODER_STAGE, losses_with, losses, weight=both[1]):
            facts, weights, record, losses = {**facts, HAS_ENCODER: True}, both, found, losses_with
            second = encoder.view.logits
    if joint is not None:
        first = replace(first, logits=combined(first.logits, second, weights))
        found, losses_with = _record(JOINT_STAGE, task, first, joint.view)
        records, views = [*records, found], [*views, joint.view]
        scale, joint_weight = fit_weights(first.logits, joint.view.logits, first.targets)
        if _is_kept(JOINT_STAGE, losses_with, losses, weight=joint_weight):
            facts, weights, record = {**facts, HAS_JOINT: True}, (weights[0] * scale, weights[1] * scale), found
    model = replace(task, facts=facts).build()
    lexical.fitted.fill(model)
    if encoder is not None and facts[HAS_ENCODER]:
        model.join(encoder.model)
    if joint is not None and model.head.joint is not None:
        model.head.joint.load_state_dict(joint.model.state_dict())
        model.head.joint.weight.fill_(joint_weight)
    model.head.weights.copy_(torch.tensor(weights))
    progress = folder.started()
    progress.best, progress.epoch = record[f"validation_{task.metric}"], task.config.training.epochs
    progress.history, progress.seconds = records, sum(view.seconds for view in views)
    progress.peak_memory_bytes = peak_memory_bytes(torch.device("cpu"))
    folder.write_metrics(records)
    for name in (BEST, LAST):
        replace(folder, facts=facts).save(name, progress, {"model": model.state_dict()})
    return progress


def _is_kept(stage: str, losses: Doubles, before: Doubles, weight: float = 1.0) -> bool:
    """Whether a stage has a positive weight and lowers the cross-entropy of the validation pairs. Prints both."""
    is_kept = weight > 0 and is_better(losses, before)
    compared = f"{losses.mean():.4f} with it, {before.mean():.4f} without"
    print(f"{stage} {'kept' if is_kept else 'left out'}: validation cross-entropy {compared}")
    return is_kept


def _record(stage: str, task: LexicalMatchingTask, first: View, second: View | None) -> tuple[dict[str, Any], Doubles]:
    """Validation metrics with the views up to a stage, and the cross-entropy of each pair.

    The views are combined with weights that are fitted on other pairs.
    """
    logits = held_out_logits(first.logits, None if second is None else second.logits, first.targets)
    losses, view = cross_entropies(logits, first.targets), first if second is None else second
    ranked = logits if second is not None else first.logits  # one weight does not change the order of pairs
    return {
        "stage": stage,
        f"validation_{task.metric}": task.value(ranked[:, 0], first.targets[:, 0]),
        "validation_cross_entropy": float(losses.mean()),
        "examples_per_second": view.examples / view.seconds,
        "peak_memory_bytes": peak_memory_bytes(torch.device("cpu")),
    }, losses


def fit_lexical_on_all(task: LexicalMatchingTask, data: Pairs, folder: RunFolder, progress: Progress) -> None:
    """Fit the lexical view, its tower and the joint view again, on the pairs of all splits; the rest remains.

    Writes final.pt.
    """
    path = folder.path / FINAL
    if path.exists():
        return
    best = checkpoint.load(folder.path / BEST)
    task = replace(task, facts={**task.facts, **best.facts})
    model = task.build()
    checkpoint.load_weights(model, best.state, folder.path / BEST)
    assert task.config.model.lexical_view is not None
    pairs = np.concatenate([task.pairs(data, split) for split in ("train", "val", "test")])
    texts, found = labelled(task, data, pairs)
    plain = fit(texts, found, task.config.model.lexical_view, Choice(**task.facts[CHOICE]), task.config.seed)
    fitted = plain
    if task.facts.get(HAS_TOWER):
        learner = _tower_learner(task, plain, data, pairs, folder)
        tower = _fitted_on_all(learner, folder.inside(TOWER_STAGE, learner.config))
        assert isinstance(tower, TowerMatcher)
        fitted = plain.with_tower(tower)
    fitted.fill(model)
    if model.head.joint is not None:
        of_words, weight = _joint_learner(task, plain, data, pairs, folder), model.head.joint.weight.clone()
        joint = _fitted_on_all(of_words, folder.inside(JOINT_FOLDER, of_words.config))
        model.head.joint.load_state_dict(joint.state_dict())
        model.head.joint.weight.copy_(weight)
    replace(folder, facts=best.facts).save(FINAL, progress, {"model": model.state_dict()})
    print(f"{path}: lexical view fitted on all {len(pairs)} pairs")


def _fitted_on_all(learner: PairLearner, folder: RunFolder) -> nn.Module:
    """What a learner trains on the pairs of all splits, for as many epochs as the best model of the folder had."""
    fit_on_all(learner, folder, checkpoint.load(folder.path / BEST).progress)
    model = learner.build()
    checkpoint.load_weights(model, checkpoint.load(folder.path / FINAL).state, folder.path / FINAL)
    return model
