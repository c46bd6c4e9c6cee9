"""Trains means of word and bigram vectors, as fastText does. Used by `benchmarks.models.alternatives`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from benchmarks.serving.classifiers import MODEL, word_and_bigram_rows

BATCH = 32


@dataclass(frozen=True)
class Settings:
    """Hyperparameters."""

    dim: int = 10
    rows: int = 2**21
    """Number of vectors, which all words and bigrams share by their hashes."""
    epochs: int = 5
    learning_rate: float = 0.01


class Bags:
    """Rows of the words and bigrams of each document.

    Args:
        texts: the documents.
        rows: number of vectors.

    """

    def __init__(self, texts: Sequence[bytes], rows: int) -> None:
        found = [word_and_bigram_rows(text.decode(errors="replace"), rows) for text in texts]
        self._starts = np.cumsum([0, *map(len, found)])
        self._rows = np.concatenate(found)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def batch(self, chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Rows of all chosen documents in order, and the first place of each document."""
        parts = [self._rows[self._starts[i] : self._starts[i + 1]] for i in chosen]
        firsts = np.cumsum([0, *map(len, parts[:-1])])
        return torch.from_numpy(np.concatenate(parts)), torch.from_numpy(firsts)


class Model(nn.Module):
    """Linear classifier of the mean of a document's vectors.

    Shape:      rows (N,), firsts (B,); returns logits (B, 2).
    Reference:  Joulin et al. 2017, arXiv:1607.01759, sec. 2.
    Deviates:   words and bigrams share one hashed table; batches and Adam instead of SGD on single documents.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.vectors = nn.EmbeddingBag(settings.rows, settings.dim, mode="mean", sparse=True)
        nn.init.uniform_(self.vectors.weight, -1 / settings.dim, 1 / settings.dim)
        self.head = nn.Linear(settings.dim, 2)
        nn.init.zeros_(self.head.weight)

    def forward(self, rows: Tensor, firsts: Tensor) -> Tensor:
        """Logits (B, 2)."""
        return self.head(self.vectors(rows, firsts))  # type: ignore[no-any-return]

    def save(self, folder: Path) -> None:
        """Write the file that `load_word_vectors` reads."""
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.numpy() for name, tensor in self.state_dict().items()}
        np.savez(
            folder / f"{MODEL}.npz",
            vectors=weights["vectors.weight"],
            weight=weights["head.weight"],
            bias=weights["head.bias"],
        )


def fit(settings: Settings, bags: Bags, labels: Sequence[int], seed: int) -> Model:
    """Train; the learning rate falls linearly to 0."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    model, truth = Model(settings), torch.tensor(labels)
    optimisers = [
        torch.optim.SparseAdam(list(model.vectors.parameters()), settings.learning_rate),
        torch.optim.Adam(model.head.parameters(), settings.learning_rate),
    ]
    steps = settings.epochs * -(-len(bags) // BATCH)
    schedules = [torch.optim.lr_scheduler.LinearLR(each, 1.0, 0.0, steps) for each in optimisers]
    with tqdm(total=steps, desc="word vectors", unit="step") as bar:
        for _ in range(settings.epochs):
            order = generator.permutation(len(bags))
            for first in range(0, len(order), BATCH):
                chosen = order[first : first + BATCH]
                for optimiser in optimisers:
                    optimiser.zero_grad()
                nn.functional.cross_entropy(model(*bags.batch(chosen)), truth[chosen]).backward()
                for optimiser, schedule in zip(optimisers, schedules, strict=True):
                    optimiser.step()
                    schedule.step()
                bar.update()
    return model


@torch.inference_mode()
def accuracy(model: Model, bags: Bags, labels: Sequence[int]) -> float:
    """Fraction of documents whose most probable class is the label."""
    order = np.arange(len(bags))
    found = [model(*bags.batch(order[i : i + 256])).argmax(1).numpy() for i in range(0, len(order), 256)]
    return float((np.concatenate(found) == np.array(labels)).mean())
