"""Training of a matcher's joint view. Used by `model.tasks.lexical_matching`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.arrays import Doubles, Floats
from artifact.documents import WORD_FIELDS, pool
from model.config.models import JointViewConfig
from model.nn.joint import JointView
from model.tasks.link import SIGMOID, Outputs
from model.tasks.matching import CONTRAST, PairLearner
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

    @property
    def view(self) -> JointViewConfig:
        """Settings of the joint view."""
        assert self.config.model.joint_view is not None
        return self.config.model.joint_view

    def build(self) -> JointView:
        assert self.config.model.lexical_view is not None
        return JointView(self.view, self.config.model.lexical_view.num_ngrams)

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        del device
        assert isinstance(model, JointView)
        model.fill(self.frequencies)

    def inputs(self, documents: Sequence[int] | NDArray[np.int64]) -> tuple[Tensor, ...]:
        """The words (U, num_words, WORD_FIELDS) of documents."""
        return (torch.from_numpy(np.stack([self.words[int(document)] for document in documents])),)

    def loss(self, model: nn.Module, batch: TrainingBatch) -> Tensor:
        """Cross-entropy of the pairs and of in-batch negatives, and a contrastive loss: find b_i among b_i and these.

        The negatives of a_i are b_(i+1), b_(i+2) and so on, of other pairs that match, unless they are known to match
        a_i.

        Reference:  van den Oord et al. 2018, arXiv:1807.03748, eq. (4) (contrastive loss with in-batch negatives).
        """
        words, a, b, labels, is_known = batch
        matching = len(is_known)  # these pairs come first
        count = min(self.view.in_batch_negatives, matching - 1)
        row = torch.arange(matching, device=a.device).unsqueeze(1)
        other = (row + 1 + torch.arange(count, device=a.device)) % matching  # (matching, count)
        is_excluded = is_known[row, other]
        first = torch.cat((a, a[:matching].repeat_interleave(count)))
        second = torch.cat((b, b[other.flatten()]))
        logits = model(words[first], words[second]).squeeze(1)
        of_pairs, of_others = logits[: len(a)], logits[len(a) :].reshape(matching, count)
        negatives = of_others[~is_excluded]
        loss = SIGMOID.loss(torch.cat((of_pairs, negatives)), torch.cat((labels, torch.zeros_like(negatives))))
        candidates = torch.cat((of_pairs[:matching].unsqueeze(1), of_others.masked_fill(is_excluded, -1e9)), dim=1)
        right = torch.zeros_like(row[:, 0])  # the first of the candidates
        return loss + CONTRAST * nn.functional.cross_entropy(candidates, right)

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
