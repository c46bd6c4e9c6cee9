"""Training of a matcher's tower. Used by `model.tasks.lexical_matching`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.data.pairs import Pairs
from model.nn.matcher import ViewsMatcher
from model.nn.tower import TowerMatcher
from model.tasks.graphs import module_functions
from model.tasks.link import Outputs
from model.tasks.matching import PairLearner, PairTask
from model.tasks.rows import run_on_windows


@dataclass(frozen=True)
class TowerLearner(PairLearner):
    """Pairs that train the tower, whose inputs are the vectors of the lexical view."""

    windows: Mapping[int, Outputs]
    """Document -> vectors of its windows (windows, P * D)."""

    def build(self) -> TowerMatcher:
        config = self.task.recipe.model.lexical_view
        assert config is not None
        return TowerMatcher(config)

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        assert isinstance(model, TowerMatcher)
        windows, _ = self.inputs(np.unique(self.train[:, :2]))
        model.tower.standardise(windows.to(device))

    def inputs(self, documents: Sequence[int] | NDArray[np.int64]) -> tuple[Tensor, ...]:
        """What the tower reads of documents.

        Shape:  vectors of the windows (W, P * D), place in `documents` of the document of each (W,).
        """
        parts = [self.windows[int(document)] for document in documents]
        document = torch.repeat_interleave(torch.tensor([len(part) for part in parts]))
        return torch.from_numpy(np.concatenate(parts)), document

    @torch.inference_mode()
    def validate(self, model: nn.Module, device: torch.device) -> float:
        assert isinstance(model, TowerMatcher)
        pairs = self.task.pairs(self.data, "val")
        needed, index = np.unique(pairs[:, :2], return_inverse=True)
        a, b = torch.from_numpy(index.reshape(-1, 2)).to(device).T
        vectors = model(*(part.to(device) for part in self.inputs(needed)))
        logits = model.head(vectors[a], vectors[b]).squeeze(1).cpu().numpy()
        return self.task.value(logits, self.data.targets(pairs))


def encodings_of_windows(
    task: PairTask, model: ViewsMatcher, data: Pairs, pairs: NDArray[np.int64], device: torch.device
) -> Mapping[int, Outputs]:
    """Encodings of the windows (windows, C) of each document of the pairs, as the exported encoder computes them."""
    documents = np.unique(pairs[:, :2]).tolist()
    encode = module_functions(task.graphs(model), device)[0]
    texts = [data.texts[i][: task.config.data.max_bytes] for i in documents]
    encoded = run_on_windows(encode, texts, task.length, task.overlap, task.recipe.model.buckets)
    model.cpu()
    return dict(zip(documents, encoded, strict=True))
