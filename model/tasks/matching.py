"""Pairs of documents -> scores. Used by the commands through `model.tasks`."""

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
from model.data.pairs import Pairs, data_terms, load_pairs
from model.nn.matcher import Matcher
from model.tasks.base import Batch, GraphSource, Run, Task, module_runs
from model.tasks.golden import golden_documents, golden_vectors
from model.tasks.rows import of_windows

FIRST_DOCUMENTS = 512
"""Training documents the encoder is standardised by."""
FREQUENCY_DOCUMENTS = 3000
"""Training documents that n-grams are counted in."""
VALIDATION_PAIRS = 1500
"""Pairs that choose the best epoch; all would take minutes each time."""
CONTRAST = 1.0
"""Weight of the contrastive loss."""
HEAD_ROWS = 256
PUBLISHED = {"aan": "S3Attention on LRA's own pairs, not these: accuracy 83.26 (paper, Table 1)"}


class Matching(Task[MatchingRun]):
    """Dual encoder, trained to tell pairs apart and to find the partner of a document among those of its batch."""

    metric = "auc"
    unit = "pair"
    data: Pairs

    def __init__(self, config: MatchingRun) -> None:
        super().__init__(config)
        self.length = config.model.max_length
        self.overlap = config.model.max_length // 8
        self.facts = {}

    def load(self, data_dir: Path) -> None:
        self.data = load_pairs(self.config.data, data_dir)
        self.texts = [text[: self.config.data.max_bytes] for text in self.data.texts]
        self.train, self.validation = (self._pairs(split) for split in ("train", "val"))
        self.known = {(a, b) for x, y, label in self.train.tolist() if label for a, b in ((x, y), (y, x))}

    def _pairs(self, split: str) -> NDArray[np.int64]:
        """Pairs (M, 3) of a split, all or the disjoint ones."""
        return self.data.disjoint(split) if self.config.data.disjoint else self.data.table[split]

    def describe(self) -> str:
        return f"{len(self.train)} training and {len(self.validation)} validation pairs"

    def build(self) -> nn.Module:
        return Matcher(self.config.model)

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        assert isinstance(model, Matcher)
        seen = np.unique(self.train[:, :2])
        chosen = np.random.default_rng(self.config.seed).permutation(seen)
        frequencies = torch.zeros(self.config.model.stem.num_buckets, device=device)
        counted = chosen[:FREQUENCY_DOCUMENTS]
        for document in counted:
            rows = torch.unique(model.encoder.stem.buckets(*(part.to(device) for part in self._padded([document]))))
            frequencies[rows[rows > 0] - 1] += 1
        model.encoder.stem.initialise(frequencies, len(counted))
        documents, lengths = self._padded(chosen[:FIRST_DOCUMENTS])
        model.encoder.standardise(documents.to(device), lengths.to(device))

    def _padded(self, documents: Sequence[int] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Heads of documents: bytes (B, length) uint8, lengths (B,) int32."""
        padded, lengths = pad_rows([self.texts[document][: self.length] for document in documents], self.length)
        return torch.from_numpy(padded), torch.from_numpy(lengths)

    @property
    def examples_per_epoch(self) -> int:
        size = self.config.training.batch_size
        return (self.config.training.examples_per_epoch or len(self.train)) // size * size

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Half positive, half negative pairs, each document once.

        Shape:  yields documents (U, length) uint8, lengths (U,) int32, a and b (M,) indices of documents, labels (M,),
                is_known (M/2, M/2): whether a_i and b_j, of positive pairs, are no pair of opposites.
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
        """Cross-entropy of the pairs, and of finding b_i among all b_j of the batch for every positive a_i.

        Reference:  van den Oord et al. 2018, arXiv:1807.03748, eq. (4) (contrastive loss with in-batch negatives).
        """
        assert isinstance(model, Matcher)
        documents, lengths, a, b, labels, is_known = batch
        vectors = model(documents, lengths).float()
        pairs = nn.functional.binary_cross_entropy_with_logits(model.head(vectors[a], vectors[b]).squeeze(1), labels)
        half = len(is_known)
        left = vectors[a[:half]].unsqueeze(1).expand(-1, half, -1)  # (P, P, C)
        right = vectors[b[:half]].unsqueeze(0).expand(half, -1, -1)
        logits = model.head(left, right).squeeze(-1)  # (P, P)
        target = torch.arange(half, device=logits.device)
        is_other = is_known & (target != target.unsqueeze(1))
        contrast = nn.functional.cross_entropy(logits.masked_fill(is_other, -1e9), target)
        return pairs + CONTRAST * contrast

    def validate(self, model: nn.Module, device: torch.device) -> float:
        logits, labels = self._logits(module_runs(self.graphs(model), device), self.validation[:VALIDATION_PAIRS])
        return area_under_roc(logits, labels)

    def finish(self, model: nn.Module, data_dir: Path) -> None:
        """Keep the table in 8 bits; calibrate the head, so that 0.5 is where validation is split best."""
        assert isinstance(model, Matcher)
        if not hasattr(self, "data"):
            self.load(data_dir)
        model.encoder.stem.quantise()
        logits, labels = self._logits(module_runs(self.graphs(model), torch.device("cpu")), self.validation)
        model.head.rescale(*platt(logits, labels))

    def graphs(self, model: nn.Module) -> Sequence[GraphSource]:
        assert isinstance(model, Matcher)
        dim = self.config.model.encoder.dim
        return [
            GraphSource("model", model.encoder, golden_documents(self.length), "vectors", self.config.model.buckets),
            GraphSource("head", model.head, golden_vectors(dim), "logits", (dim,)),
        ]

    def measure(self, runs: Sequence[Run], data_dir: Path) -> tuple[Result, ...]:
        """Accuracy at a score of 0.5, which is what is served, and area under the ROC curve."""
        if not hasattr(self, "data"):
            self.load(data_dir)
        pairs = self._pairs("test")
        logits, labels = self._logits(runs, pairs)
        scores = sigmoid(logits)
        which = "paper-disjoint" if self.config.data.disjoint else "all"
        figures = {"accuracy": float(((scores >= 0.5) == labels).mean()), "auc": area_under_roc(scores, labels)}
        return tuple(
            Result(
                metric=metric,
                value=round(value, 6),
                split="test",
                examples=len(pairs),
                condition=f"{which} pairs, first {self.config.data.max_bytes} bytes",
                seeds=(self.config.seed,),
                compared_with=PUBLISHED.get(self.config.data.name, "nothing"),
            )
            for metric, value in figures.items()
        )

    def _logits(self, runs: Sequence[Run], pairs: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Logits and labels of pairs; each document is encoded once, in windows where it is longer than the model."""
        encode, compare = runs
        needed, index = np.unique(pairs[:, :2], return_inverse=True)
        index = index.reshape(-1, 2)
        texts = [self.texts[i] for i in needed]
        encoded = of_windows(encode, texts, self.length, self.overlap, self.config.model.buckets)
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


def platt(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> tuple[float, float]:
    """Scale and shift of logits that make sigmoid(scale * logit + shift) the likeliest.

    The targets are those of section 2.2, a little inside 0 and 1, so that perfectly split pairs have an answer too.

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
    """Probability that a positive pair scores above a negative one, ties counting half."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]  # mean rank of equal scores, from 1
    positive = labels == 1
    count = int(positive.sum())
    excess = ranks[positive].sum() - count * (count + 1) / 2
    return float(excess / (count * (len(labels) - count)))
