"""Text matching: pairs of documents -> scores. Used by the commands through `model.tasks`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.documents import pad_rows, pool, sigmoid
from artifact.manifest import Result
from model.config.run import MatchingRun
from model.data.pairs import Pairs, data_terms, fingerprint, load_pairs, load_test_pairs
from model.nn.matcher import Matcher
from model.tasks import tfidf
from model.tasks.base import BASELINE, Batch, ExportGraph, Run, TextTask, module_runs
from model.tasks.golden import golden_documents, golden_vectors
from model.tasks.rows import run_on_windows

INITIAL_DOCUMENTS = 512
"""Number of training documents for the data-dependent initialisation."""
FREQUENCY_DOCUMENTS = 3000
"""Number of training documents in which n-grams are counted, for their initial weights."""
VALIDATION_PAIRS = 1500
"""Maximum number of validation pairs that select the best epoch; all pairs would take minutes per epoch."""
CONTRAST = 1.0
"""Weight of the contrastive loss."""
HEAD_ROWS = 256
"""Number of pairs that the head scores at once, one per row."""
RIVALS = {
    "all": {"accuracy": "TF-IDF cosine 0.8286", "auc": "TF-IDF cosine 0.8943"},
    "paper-disjoint": {"accuracy": "TF-IDF cosine 0.8264", "auc": "TF-IDF cosine 0.9015"},
}
"""The strongest other model on the same test pairs of `aan` (benchmarks/results: `aan_tfidf`)."""


class Matching(TextTask[MatchingRun]):
    """Dual encoder, trained on pairs and with in-batch negatives."""

    metric = "auc"
    unit = "pair"
    data: Pairs

    def __init__(self, config: MatchingRun) -> None:
        super().__init__(config)
        self.length = config.model.max_length
        self.overlap = config.model.max_length // 8
        self.facts = {}

    def load(self, data_dir: Path) -> None:
        self.data = load_pairs(self.config.data, data_dir, self.held_out)
        if self.data.fingerprint:
            self.check_fingerprint(self.data.fingerprint, data_dir)
        self.texts = [text[: self.config.data.max_bytes] for text in self.data.texts]
        self.train, self.validation = (self._pairs(split) for split in ("train", "val"))
        self.known = _known(self.train)

    def _pairs(self, split: str) -> NDArray[np.int64]:
        """Pairs (M, 3) of a split, as two document indices and a label; only disjoint ones if the recipe says so."""
        return self.data.disjoint(split) if self.config.data.disjoint else self.data.table[split]

    def describe(self) -> str:
        return "\n".join((f"{len(self.train)} training and {len(self.validation)} validation pairs", *self.data.notes))

    def fingerprint(self, path: Path) -> str:
        return fingerprint(self.config.data, path)

    def baseline(self, *settings: str) -> tfidf.Baseline | None:
        if self.config.data.name != "own":
            return None
        settings = settings or tuple(tfidf.VECTORIZERS)
        return tfidf.fit_matcher(self.data.texts, self.train, self.validation, area_under_roc, settings)

    def build(self) -> nn.Module:
        return Matcher(self.config.model)

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        assert isinstance(model, Matcher)
        seen = np.unique(self.train[:, :2])
        chosen = np.random.default_rng(self.config.seed).permutation(seen)
        frequencies = torch.zeros(self.config.model.stem.num_buckets, device=device)
        counted = chosen[:FREQUENCY_DOCUMENTS]
        for document in counted:
            rows = torch.unique(model.encoder.stem.rows(*(part.to(device) for part in self._padded([document]))))
            frequencies[rows[rows > 0] - 1] += 1  # row 0 stands for no n-gram
        model.encoder.stem.initialise(frequencies, len(counted))
        documents, lengths = self._padded(chosen[:INITIAL_DOCUMENTS])
        model.encoder.standardise(documents.to(device), lengths.to(device))

    def _padded(self, documents: Sequence[int] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The first `length` bytes of documents, padded: bytes (B, length) uint8, lengths (B,) int32."""
        padded, lengths = pad_rows([self.texts[document][: self.length] for document in documents], self.length)
        return torch.from_numpy(padded), torch.from_numpy(lengths)

    @property
    def examples_per_epoch(self) -> int:
        size = self.config.training.batch_size
        return (self.config.training.examples_per_epoch or len(self.train)) // size * size

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield batches with one half positive and one half negative pairs; documents are deduplicated.

        Shape:  yields the U distinct documents of M pairs (U, length) uint8, lengths (U,) int32, a and b (M,) indices
                        of documents, labels (M,), is_known (M/2, M/2): whether a_i and b_j, of positive pairs i and j,
                        are known to match; they are then not used as negatives.
        """
        generator = np.random.default_rng([self.config.seed, epoch])
        half = self.config.training.batch_size // 2
        positive, negative = (self.train[self.train[:, 2] == label] for label in (1, 0))
        for _ in range(self.examples_per_epoch // (2 * half)):
            chosen = np.concatenate([part[generator.choice(len(part), half)] for part in (positive, negative)])
            distinct, index = np.unique(chosen[:, :2], return_inverse=True)
            index = index.reshape(-1, 2)
            documents, lengths = self._padded(distinct)
            is_known = [[a == b or (a, b) in self.known for b in chosen[:half, 1]] for a in chosen[:half, 0]]
            yield (
                documents,
                lengths,
                torch.from_numpy(index[:, 0]),
                torch.from_numpy(index[:, 1]),
                torch.from_numpy(chosen[:, 2]).float(),
                torch.tensor(is_known),
            )

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy of the pairs, plus a contrastive loss: find b_i among all b_j for each positive pair.

        Reference:  van den Oord et al. 2018, arXiv:1807.03748, eq. (4) (contrastive loss with in-batch negatives).
        """
        assert isinstance(model, Matcher)
        documents, lengths, a, b, labels, is_known = batch
        vectors = model(documents, lengths).float()
        pairs = nn.functional.binary_cross_entropy_with_logits(model.head(vectors[a], vectors[b]).squeeze(1), labels)
        half = len(is_known)  # P: number of positive pairs
        left = vectors[a[:half]].unsqueeze(1).expand(-1, half, -1)  # (P, P, C)
        right = vectors[b[:half]].unsqueeze(0).expand(half, -1, -1)
        logits = model.head(left, right).squeeze(-1)  # (P, P)
        target = torch.arange(half, device=logits.device)
        is_excluded = is_known & (target != target.unsqueeze(1))
        contrast = nn.functional.cross_entropy(logits.masked_fill(is_excluded, -1e9), target)
        return pairs + CONTRAST * contrast

    def validate(self, model: nn.Module, device: torch.device) -> float:
        logits, labels = self._logits(module_runs(self.graphs(model), device), self.validation[:VALIDATION_PAIRS])
        return area_under_roc(logits, labels)

    def finish(self, model: nn.Module, data_dir: Path) -> None:
        """Quantise the n-gram table; calibrate the head on the validation pairs by Platt scaling."""
        assert isinstance(model, Matcher)
        if not hasattr(self, "data"):
            self.load(data_dir)
        model.encoder.stem.quantise()
        logits, labels = self._logits(module_runs(self.graphs(model), torch.device("cpu")), self.validation)
        self.scaling = fit_platt_scaling(logits, labels)
        model.head.rescale(*self.scaling)

    def finish_final(self, model: nn.Module) -> None:
        assert isinstance(model, Matcher)
        model.encoder.stem.quantise()
        model.head.rescale(*self.scaling)

    def join_splits(self, data_dir: Path) -> str:
        del data_dir
        self.train = np.concatenate([self._pairs(split) for split in ("train", "val", "test")])
        self.known = _known(self.train)
        return f"{len(self.train)} pairs"

    def graphs(self, model: nn.Module) -> Sequence[ExportGraph]:
        assert isinstance(model, Matcher)
        dim = self.config.model.encoder.dim
        return [
            ExportGraph(
                "model",
                model.encoder,
                golden_documents(self.length),
                ("vectors",),
                self.config.model.buckets,
                model.encoder.for_cuda(),
                fixed_for_all_batches=True,
            ),
            ExportGraph("head", model.head, golden_vectors(dim), ("logits",), (dim,)),
        ]

    def measure(self, runs: Sequence[Run], data_dir: Path) -> tuple[Result, ...]:
        """Accuracy at a score of 0.5, the served threshold, and area under the ROC curve."""
        texts, pairs = self._test(data_dir)
        logits, labels = self._logits(runs, pairs, texts)
        scores = sigmoid(logits)
        which = "paper-disjoint" if self.config.data.disjoint else "all"
        values = {"accuracy": float(((scores >= 0.5) == labels).mean()), "auc": area_under_roc(scores, labels)}
        is_known = self.test_file is None and self.config.data.name == "aan"
        compared = RIVALS[which] if is_known else self._compared(texts, pairs)
        return tuple(
            Result(
                metric=metric,
                value=round(value, 6),
                split="test",
                examples=len(pairs),
                condition=f"{which} pairs, first {self.config.data.max_bytes} bytes",
                seeds=(self.config.seed,),
                compared_with=compared.get(metric, "nothing"),
            )
            for metric, value in values.items()
        )

    def _test(self, data_dir: Path) -> tuple[list[bytes], NDArray[np.int64]]:
        """Whole texts and test pairs (M, 3)."""
        if self.test_file is not None:
            data = load_test_pairs(self.config.data, self.test_file)
            return data.texts, data.table["test"]
        if not hasattr(self, "data"):
            self.load(data_dir)
        return self.data.texts, self._pairs("test")

    def _compared(self, texts: list[bytes], pairs: NDArray[np.int64]) -> dict[str, str]:
        """Metric -> name and value of the baseline, if one was fitted in training."""
        if BASELINE not in self.facts or not hasattr(self, "train"):
            return {}
        baseline = self.baseline(self.facts[BASELINE]["setting"])
        assert baseline is not None
        scores, labels = baseline.scores(texts, pairs[:, :2]), pairs[:, 2]
        seen = {
            (self.data.texts[a], self.data.texts[b])
            for part in (self.train, self.validation)
            for a, b, _ in part.tolist()
        }
        if known := sum((texts[a], texts[b]) in seen for a, b, _ in pairs.tolist()):
            self.notes = (f"{known} of the measured pairs are also in training or validation",)
        return {
            "accuracy": tfidf.note(baseline.name, float(((scores >= baseline.threshold) == labels).mean())),
            "auc": tfidf.note(baseline.name, area_under_roc(scores, labels)),
        }

    def _logits(
        self, runs: Sequence[Run], pairs: NDArray[np.int64], documents: Sequence[bytes] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Logits and labels of pairs of documents, by default of the loaded ones.

        Each document is cut to `data.max_bytes` and encoded once, in windows if it is longer than `max_length`.
        """
        encode, compare = runs
        documents = self.texts if documents is None else documents
        needed, index = np.unique(pairs[:, :2], return_inverse=True)
        index = index.reshape(-1, 2)
        texts = [documents[i][: self.config.data.max_bytes] for i in needed]
        encoded = run_on_windows(encode, texts, self.length, self.overlap, self.config.model.buckets)
        vectors = np.stack([pool(part) for part in encoded])
        logits = [
            compare({"a": vectors[part[:, 0]], "b": vectors[part[:, 1]]})
            for part in np.split(index, range(HEAD_ROWS, len(index), HEAD_ROWS))
        ]
        return np.concatenate(logits)[:, 0], pairs[:, 2]

    def manifest(self, runs: Sequence[Run], results: Sequence[Result], data_dir: Path, folder: Path) -> dict[str, Any]:
        del runs, results, data_dir, folder
        return {
            "min_length": self.config.model.stem.shortest,
            "max_length": self.length,
            "window_overlap": self.overlap,
        }

    def terms(self) -> tuple[str, bool]:
        return data_terms(self.config.data.name)


def _known(pairs: NDArray[np.int64]) -> set[tuple[int, int]]:
    """Pairs of documents that match, in both orders."""
    return {(a, b) for x, y, label in pairs.tolist() if label for a, b in ((x, y), (y, x))}


def fit_platt_scaling(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> tuple[float, float]:
    """Fit Platt scaling: scale and shift that maximise the likelihood of sigmoid(scale * logit + shift).

    The targets (sec. 2.2 of the reference) are slightly inside (0, 1), so that a solution exists even for perfectly
    separated pairs.

    Reference:  Platt 1999, "Probabilistic outputs for support vector machines".
    """
    positive = int(labels.sum())
    high, low = (positive + 1) / (positive + 2), 1 / (len(labels) - positive + 2)
    target = torch.from_numpy(np.where(labels == 1, high, low))
    inputs = torch.from_numpy(logits.astype(np.float64))
    solution = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([solution], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = nn.functional.binary_cross_entropy_with_logits(solution[0] * inputs + solution[1], target)
        value.backward()
        return value

    optimiser.step(loss)
    scale, shift = solution.tolist()
    return scale, shift


def area_under_roc(scores: NDArray[np.floating[Any]], labels: NDArray[np.int64]) -> float:
    """Probability that a positive pair scores above a negative one; ties count half."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]  # mean rank of ties, from 1
    positive = labels == 1
    count = int(positive.sum())
    excess = ranks[positive].sum() - count * (count + 1) / 2
    return float(excess / (count * (len(labels) - count)))
