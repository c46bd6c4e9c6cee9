"""Training of a matcher's joint view. Used by `model.tasks.lexical_matching`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.arrays import Doubles, Floats
from artifact.documents import WORD_FIELDS, pool
from model.nn.joint import JointView
from model.tasks.link import SIGMOID, Outputs
from model.tasks.matching import PairLearner
from model.training.learner import TrainingBatch

ROWS = 64
"""Number of pairs whose words are compared at once outside training."""


@dataclass(frozen=True)
class JointLearner(PairLearner):
    """Pairs that train the joint view, whose inputs are the words of both documents."""

    words: Mapping[int, Floats]
    """Document -> its words (num_words, WORD_FIELDS)."""
    frequencies: Doubles
    """Share of the documents that contain each n-gram of the vocabulary, (R,)."""

    def build(self) -> JointView:
        config = self.config.model
        assert config.joint_view is not None
        assert config.lexical_view is not None
        return JointView(config.joint_view, config.lexical_view.num_ngrams)

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        del device
        assert isinstance(model, JointView)
        model.fill(self.frequencies)

    def inputs(self, documents: Sequence[int] | NDArray[np.int64]) -> tuple[Tensor, ...]:
        """The words (U, num_words, WORD_FIELDS) of documents."""
        return (torch.from_numpy(np.stack([self.words[int(document)] for document in documents])),)

    def loss(self, model: nn.Module, batch: TrainingBatch) -> Tensor:
        """Cross-entropy of the pairs."""
        words, a, b, labels, _ = batch
        return SIGMOID.loss(model(words[a], words[b]).squeeze(1), labels)

    def validate(self, model: nn.Module, device: torch.device) -> float:
        pairs = self.task.pairs(self.data, "val")
        return self.task.value(self.logits(model, pairs, device), self.data.targets(pairs))

    @torch.inference_mode()
    def logits(self, model: nn.Module, pairs: NDArray[np.int64], device: torch.device) -> Outputs:
        """Logits (M,) of pairs of documents (M, 3)."""
        found = [
            model(*(self.inputs(part[:, side])[0].to(device) for side in (0, 1))).squeeze(1).cpu().numpy()
            for part in np.split(pairs, range(ROWS, len(pairs), ROWS))
        ]
        return np.concatenate(found)


def words_of(windows: Mapping[int, Outputs], num_words: int) -> dict[int, Floats]:
    """Words (num_words, WORD_FIELDS) of documents from the encodings of their windows (windows, C)."""
    size = num_words * WORD_FIELDS
    return {
        document: pool(rows.astype(np.float32), num_words)[-size:].reshape(-1, WORD_FIELDS)
        for document, rows in windows.items()
    }
