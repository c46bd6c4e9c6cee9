"""Training of a matcher's tower."""

import numpy as np
import torch

from model.config.recipes import find_recipe, load_recipe
from model.config.run import MatchingRun
from model.data.pairs import Pairs
from model.nn.tower import TowerMatcher
from model.tasks.lexical import Choice
from model.tasks.lexical_matching import CHOICE, HAS_TOWER, LexicalMatchingTask
from model.tasks.tower import TowerLearner

SIZE = 6


def learner() -> TowerLearner:
    """Forty documents in two windows each; a pair matches if both have the same signs."""
    settings = (
        *(f"model.lexical_view.{key}" for key in ("dim=6", "tower.dim=4", "tower.hidden_dim=8")),
        "training.batch_size=16",
    )
    config = load_recipe(find_recipe("pairs"), list(settings))
    assert isinstance(config, MatchingRun)
    task = LexicalMatchingTask(config, {CHOICE: Choice(1, 1.0, 0.0)._asdict(), HAS_TOWER: True})
    generator = np.random.default_rng(0)
    signs = generator.choice((-1.0, 1.0), (40, 1))
    windows = (signs[:, None] + generator.normal(0, 0.5, (40, 2, SIZE))).astype(np.float32)
    index = generator.integers(40, size=(400, 2))
    table = np.concatenate([index, (signs[index[:, :1]] == signs[index[:, 1:]]).reshape(-1, 1)], axis=1)
    splits = {"train": table[:300], "val": table[300:], "test": table[300:]}
    data = Pairs([b""] * 40, splits, folds=np.zeros(40, dtype=np.int64))
    return TowerLearner(task, data, data.table["train"], dict(enumerate(windows)))


def test_inputs_are_the_windows_of_the_documents_in_their_order() -> None:
    found = learner()
    windows, document = found.inputs([3, 1])
    assert torch.equal(windows, torch.from_numpy(np.concatenate([found.windows[3], found.windows[1]])))
    assert document.tolist() == [0, 0, 1, 1]


def test_tower_learns_which_documents_match() -> None:
    trained = learner()
    torch.manual_seed(0)
    model = trained.build()
    assert isinstance(model, TowerMatcher)
    trained.initialise(model, torch.device("cpu"))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(5):
        for batch in trained.batches(epoch):
            optimiser.zero_grad()
            trained.loss(model, batch).backward()
            optimiser.step()
    assert trained.validate(model.eval(), torch.device("cpu")) > 0.99
