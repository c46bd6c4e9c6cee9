"""Text matching: pairs of documents -> scores. Used by the commands through `model.tasks`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.arrays import Doubles
from artifact.documents import pad_rows, pool
from artifact.manifest import ExportManifest, Result
from model.config.run import MatchingRun
from model.data.own import DataFiles, OwnTexts, read_own
from model.data.pairs import MATCH, Pairs, columns_of, data_terms, load_pairs, load_test_pairs
from model.nn.matcher import Matcher, ViewsMatcher
from model.nn.tower import TowerMatcher
from model.tasks import tfidf
from model.tasks.base import BASELINE, FINGERPRINT, SPLITS, Finished, Measurement, TrainingTask
from model.tasks.graphs import Arrays, ExportGraph, GraphFunction, golden_documents, golden_encodings, module_functions
from model.tasks.link import DEGREE, SIGMOID, Outputs, Sigmoid, Targets, area_under_roc, spearman
from model.tasks.predictions import PairPredictions, Rival
from model.tasks.rows import run_on_windows
from model.training.learner import TaskLearner, TrainingBatch
from model.training.stages import Stage, gradient_stages

INITIAL_DOCUMENTS = 512
"""Number of training documents for the data-dependent initialisation."""
FREQUENCY_DOCUMENTS = 3000
"""Number of training documents in which n-grams are counted, for their initial weights."""
VALIDATION_PAIRS = 1500
"""Maximum number of validation pairs that select the best epoch; all pairs would take minutes per epoch."""
HEAD_ROWS = 16
"""Number of pairs that the head compares at once."""
CONTRAST = 1.0
"""Weight of the contrastive loss."""
RIVALS = {
    "all": {"accuracy": "TF-IDF cosine 0.8286", "auc": "TF-IDF cosine 0.8943"},
    "paper-disjoint": {"accuracy": "TF-IDF cosine 0.8264", "auc": "TF-IDF cosine 0.9015"},
}
"""The strongest other model on the same test pairs of `aan` (benchmarks/results: `aan_tfidf`)."""


@dataclass(frozen=True)
class PairTask(TrainingTask[MatchingRun, OwnTexts | Path, Pairs]):
    """Two documents, encoded one by one, and a head that compares their vectors."""

    unit = "pair"

    @property
    def metric(self) -> str:
        return "spearman" if self.config.data.graded else "auc"

    @property
    def link(self) -> Sigmoid:
        """What a logit means: whether two documents match, or to which degree."""
        return DEGREE if self.config.data.graded else SIGMOID

    def value(self, logits: Outputs, targets: Targets) -> float:
        """The metric of logits (M,) and targets (M,)."""
        return self.link.report(logits, targets)[self.metric]

    @property
    def length(self) -> int:
        """Bytes that the encoder reads at once."""
        return self.config.model.max_length

    @property
    def overlap(self) -> int:
        """Minimum overlap of neighbouring windows in bytes."""
        return self.length // 8

    def read(self, files: DataFiles, *, is_new: bool = False) -> OwnTexts | Path:
        del is_new
        return read_own(files, columns_of(self.config.data)) if self.config.data.name == "own" else files.data_dir

    def load(self, source: OwnTexts | Path) -> Pairs:
        data = load_pairs(self.config.data, source)
        if isinstance(source, OwnTexts):
            self.check_fingerprint(data.fingerprint, source.data.path)
            self.check_splits(data.splits, source.data.path)
        return data

    def with_facts_of(self, data: Pairs) -> Self:
        return self.knowing(**{FINGERPRINT: data.fingerprint, SPLITS: data.splits}) if data.fingerprint else self

    def fingerprint(self, source: OwnTexts | Path) -> str:
        return source.fingerprint if isinstance(source, OwnTexts) else ""

    def with_test(self, data: Pairs | None, source: OwnTexts | Path) -> Pairs:
        assert isinstance(source, OwnTexts)
        test = load_test_pairs(self.config.data, source.data)
        return test if data is None else data.with_test(test)

    def pairs(self, data: Pairs, split: str) -> NDArray[np.int64]:
        """Pairs (M, 3) of a split, as in `Pairs.table`; only disjoint ones if the recipe says so."""
        return data.disjoint(split) if self.config.data.disjoint else data.table[split]

    def describe(self, data: Pairs) -> tuple[str, ...]:
        train, validation = (self.pairs(data, split) for split in ("train", "val"))
        return (f"{len(train)} training and {len(validation)} validation pairs", *data.notes)

    def baseline(self, data: Pairs, *settings: str) -> tfidf.Baseline | None:
        if self.config.data.name != "own":
            return None
        train, validation = (self.pairs(data, split) for split in ("train", "val"))
        return tfidf.fit_matcher(
            data.texts,
            (train[:, :2], data.targets(train)),
            (validation[:, :2], data.targets(validation)),
            self.order_value,
            settings or tuple(tfidf.CLASSIFIERS),
        )

    def order_value(self, scores: Outputs, targets: Targets) -> float:
        """The metric of scores that are no logits: it depends on their order only."""
        return spearman(scores, targets) if self.config.data.graded else area_under_roc(scores, targets)

    def graphs(self, model: nn.Module) -> tuple[ExportGraph, ...]:
        assert isinstance(model, Matcher | ViewsMatcher)
        config = self.recipe.model
        golden = golden_encodings(config.dim, config.num_words)
        head_for_cuda = model.head.for_cuda() if isinstance(model, ViewsMatcher) else None
        return (
            ExportGraph(
                "model",
                model.encoder,
                golden_documents(self.length),
                ("vectors",),
                config.buckets,
                model.encoder.for_cuda(),
                fixed_for_all_batches=True,
            ),
            ExportGraph(
                "head",
                model.head,
                golden,
                ("logits",),
                (config.encoding_size,),
                head_for_cuda,
                fixed_for_all_batches=head_for_cuda is not None,
            ),
        )

    def finish(self, model: nn.Module, final: nn.Module | None, data: Pairs) -> Finished:
        """Quantise the tables; calibrate the head on the validation pairs."""
        models = [one for one in (model, final) if isinstance(one, Matcher | ViewsMatcher)]
        for one in models:
            one.quantise()
        functions = module_functions(self.graphs(model), torch.device("cpu"))
        scaling = self.link.calibrate(*self.logits(functions, data, self.pairs(data, "val")))
        for one in models:
            one.head.rescale(scaling.scale, scaling.shift)
        return self.finished(model, final)

    def measure(self, functions: Sequence[GraphFunction], data: Pairs) -> Measurement:
        pairs = self.pairs(data, "test")
        logits, targets = self.logits(functions, data, pairs)
        which = "paper-disjoint" if self.config.data.disjoint else "all"
        compared, notes, rival = self._compared(data, pairs)
        if self.config.data.name == "aan":
            compared = RIVALS[which]
        results = tuple(
            Result(
                metric=metric,
                value=round(value, 6),
                split="test",
                examples=len(pairs),
                condition=f"{which} pairs, first {self.config.data.max_bytes} bytes",
                seeds=(self.config.seed,),
                compared_with=compared.get(metric, "nothing"),
            )
            for metric, value in self.link.report(logits, targets).items()
        )
        predictions = PairPredictions(
            targets,
            self.link.probabilities(logits),
            [(data.texts[a], data.texts[b]) for a, b, _ in pairs.tolist()],
            data.places if len(data.places) == len(pairs) else (),
            rival,
        )
        return Measurement(results, notes, predictions=predictions)

    def _compared(
        self, data: Pairs, pairs: NDArray[np.int64]
    ) -> tuple[Mapping[str, str], tuple[str, ...], Rival | None]:
        """Metric -> name and value of the baseline, if one was fitted in training; notes; its scores."""
        if BASELINE not in self.facts:
            return {}, (), None
        baseline = self.chosen_baseline(data)
        assert baseline is not None
        scores, targets = baseline.scores(data.texts, pairs[:, :2]), data.targets(pairs)
        seen = {
            (data.texts[a], data.texts[b]) for split in ("train", "val") for a, b, _ in self.pairs(data, split).tolist()
        }
        known = sum((data.texts[a], data.texts[b]) in seen for a, b, _ in pairs.tolist())
        notes = (f"{known} of the measured pairs are also in training or validation",) if known else ()
        values = {self.metric: self.order_value(scores, targets)}
        if not self.config.data.graded:
            values["accuracy"] = float(((scores >= baseline.threshold) == targets).mean())
        compared = {metric: tfidf.note(baseline.name, value) for metric, value in values.items()}
        return compared, notes, Rival(baseline.name, scores, baseline.threshold)

    def logits(
        self, functions: Sequence[GraphFunction], data: Pairs, pairs: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], Doubles]:
        """Logits (M,) and targets (M,) of pairs of documents (M, 3).

        Each document is cut to `data.max_bytes` and encoded once, in windows if it is longer than `max_length`.
        """
        encode, compare = functions
        needed, index = np.unique(pairs[:, :2], return_inverse=True)
        index = index.reshape(-1, 2)
        texts = [data.texts[i][: self.config.data.max_bytes] for i in needed]
        encoded = run_on_windows(encode, texts, self.length, self.overlap, self.recipe.model.buckets)
        encodings = np.stack([pool(part, self.recipe.model.num_words) for part in encoded])
        logits = [
            compare({"a": encodings[part[:, 0]], "b": encodings[part[:, 1]]})
            for part in np.split(index, range(HEAD_ROWS, len(index), HEAD_ROWS))
        ]
        return np.concatenate(logits)[:, 0], data.targets(pairs)

    def manifest(self, golden: Arrays) -> dict[str, Any]:
        del golden
        return {
            "min_length": self.recipe.model.shortest,
            "max_length": self.length,
            "window_overlap": self.overlap,
            "num_words": self.recipe.model.num_words,
        }

    def of_export(self, manifest: ExportManifest, folder: Path) -> Self:
        del manifest, folder
        return self

    def terms(self) -> tuple[str, bool]:
        return data_terms(self.config.data)


@dataclass(frozen=True)
class MatchingTask(PairTask):
    """Text matching by an encoder, trained on pairs and with in-batch negatives."""

    def stages(self, data: Pairs) -> Sequence[Stage]:
        return gradient_stages(self.learner(data), self.config.training, is_fitted_on_all=self.config.data.final_fit)

    def learner(self, data: Pairs) -> "PairLearner":
        """What training learns from."""
        return PairLearner(self, data, self.pairs(data, "train"))

    def build(self) -> Matcher:
        return Matcher(self.config.model)


@dataclass(frozen=True)
class PairLearner(TaskLearner):
    """Pairs that train a matcher."""

    task: PairTask
    data: Pairs
    train: NDArray[np.int64]
    """(M, 3), as in `Pairs.table`."""

    unit = "pair"

    @property
    def metric(self) -> str:  # type: ignore[override]
        """That of the task."""
        return self.task.metric

    @property
    def config(self) -> MatchingRun:
        """The recipe."""
        return self.task.config

    def build(self) -> nn.Module:
        return self.task.build()

    def on_all(self) -> tuple[TaskLearner, str]:
        train = np.concatenate([self.task.pairs(self.data, split) for split in ("train", "val", "test")])
        return replace(self, train=train), f"{len(train)} pairs"

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        assert isinstance(model, Matcher)
        chosen = np.random.default_rng(self.config.seed).permutation(np.unique(self.train[:, :2]))
        stem = model.encoder.stem
        frequencies = torch.zeros(stem.num_buckets, device=device)
        counted = chosen[:FREQUENCY_DOCUMENTS]
        for document in counted:
            rows = torch.unique(stem.rows(*(part.to(device) for part in self.inputs([document]))))
            frequencies[rows[rows > 0] - 1] += 1  # row 0 stands for no n-gram
        stem.initialise(frequencies, len(counted))
        documents, lengths = self.inputs(chosen[:INITIAL_DOCUMENTS])
        model.encoder.standardise(documents.to(device), lengths.to(device))

    def inputs(self, documents: Sequence[int] | NDArray[np.int64]) -> tuple[Tensor, ...]:
        """What the model reads of documents.

        Shape:  the first `length` bytes, padded (B, length) uint8, lengths (B,) int32.
        """
        length = self.task.length
        cut = min(length, self.config.data.max_bytes)
        padded, lengths = pad_rows([self.data.texts[document][:cut] for document in documents], length)
        return torch.from_numpy(padded), torch.from_numpy(lengths)

    @property
    def examples_per_epoch(self) -> int:
        size = self.config.training.batch_size
        return (self.config.training.examples_per_epoch or len(self.train)) // size * size

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        """Yield batches with one half positive and one half negative pairs; documents are deduplicated.

        Pairs are positive from a target of 1/2; if all or none of them are, from the mean target.

        Shape:  yields the inputs of the U distinct documents of M pairs, a and b (M,) indices of documents, targets
                        (M,), is_known (M/2, M/2): whether a_i and b_j, of positive pairs i and j, are known to match;
                        they are then not used as negatives.
        """
        generator = np.random.default_rng([self.config.seed, epoch])
        half, targets = self.config.training.batch_size // 2, self.data.targets(self.train)
        is_positive = targets >= (MATCH if targets.min() < MATCH <= targets.max() else targets.mean())
        positive, negative, known = self.train[is_positive], self.train[~is_positive], _known(self.train[is_positive])
        for _ in range(self.examples_per_epoch // (2 * half)):
            chosen = np.concatenate([part[generator.choice(len(part), half)] for part in (positive, negative)])
            distinct, index = np.unique(chosen[:, :2], return_inverse=True)
            index = index.reshape(-1, 2)
            is_known = [[a == b or (a, b) in known for b in chosen[:half, 1]] for a in chosen[:half, 0]]
            yield (
                *self.inputs(distinct),
                torch.from_numpy(index[:, 0]),
                torch.from_numpy(index[:, 1]),
                torch.from_numpy(self.data.targets(chosen)).float(),
                torch.tensor(is_known),
            )

    def loss(self, model: nn.Module, batch: TrainingBatch) -> Tensor:
        """Cross-entropy of the pairs, plus a contrastive loss: find b_i among all b_j for each positive pair.

        Reference:  van den Oord et al. 2018, arXiv:1807.03748, eq. (4) (contrastive loss with in-batch negatives).
        """
        assert isinstance(model, Matcher | TowerMatcher)
        *inputs, a, b, labels, is_known = batch
        vectors = model(*inputs).float()
        pairs = SIGMOID.loss(model.head(vectors[a], vectors[b]).squeeze(1), labels)
        half = len(is_known)  # P: number of positive pairs
        logits = model.head.between(vectors[a[:half]], vectors[b[:half]])  # (P, P)
        target = torch.arange(half, device=logits.device)
        is_excluded = is_known & (target != target.unsqueeze(1))
        contrast = nn.functional.cross_entropy(logits.masked_fill(is_excluded, -1e9), target)
        return pairs + CONTRAST * contrast

    def validate(self, model: nn.Module, device: torch.device) -> float:
        functions = module_functions(self.task.graphs(model), device)
        pairs = self.task.pairs(self.data, "val")[:VALIDATION_PAIRS]
        return self.task.value(*self.task.logits(functions, self.data, pairs))


def _known(pairs: NDArray[np.int64]) -> set[tuple[int, int]]:
    """Pairs in both orders."""
    return {(a, b) for x, y, _ in pairs.tolist() for a, b in ((x, y), (y, x))}
