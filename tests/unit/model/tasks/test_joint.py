"""Training of a matcher's joint view."""

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from artifact.documents import ID_UNIT, WORD_FIELDS
from model.config.recipes import find_recipe, load_recipe
from model.config.run import MatchingRun
from model.data.pairs import Pairs
from model.nn.joint import JointView
from model.tasks.joint import JointLearner, words_of
from model.tasks.lexical import Choice
from model.tasks.lexical_matching import CHOICE, LexicalMatchingTask

NUM_WORDS, NUM_NGRAMS = 6, 30


def learner(*others: str) -> JointLearner:
    """Forty documents of some words; a pair matches if both have one of the last ten words, which are unknown."""
    settings = (
        *others,
        f"model.lexical_view.num_ngrams={NUM_NGRAMS}",
        *(f"model.joint_view.{key}" for key in (f"num_words={NUM_WORDS}", "dim=16", "training.batch_size=16")),
    )
    config = load_recipe(find_recipe("pairs"), list(settings))
    assert isinstance(config, MatchingRun)
    task = LexicalMatchingTask(config, {CHOICE: Choice(1, 1.0, 0.0)._asdict()}).with_joint()
    generator = np.random.default_rng(0)
    rare, words = generator.integers(100, 110, 40), dict[int, np.ndarray]()
    for document in range(40):
        keys = [*np.sort(generator.choice(np.arange(1, NUM_NGRAMS), NUM_WORDS - 1, replace=False)), rare[document]]
        rows = [(key * 2**-24, key * (key < 100) * ID_UNIT, -key * 2**-24) for key in keys]
        words[document] = np.array(rows, np.float32)
    index = generator.integers(40, size=(600, 2))
    table = np.concatenate([index, (rare[index[:, :1]] == rare[index[:, 1:]]).reshape(-1, 1)], axis=1)
    splits = {"train": table[:500], "val": table[500:], "test": table[500:]}
    data = Pairs([b""] * 40, splits, folds=np.zeros(40, dtype=np.int64))
    return JointLearner(task, data, data.table["train"], words, np.full(NUM_NGRAMS, 0.2))


def test_inputs_are_the_words_of_the_documents_in_their_order() -> None:
    found = learner()
    (words,) = found.inputs([3, 1])
    assert words.numpy().tolist() == [found.words[3].tolist(), found.words[1].tolist()]


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_loss_has_negatives_of_other_pairs_that_match_unless_they_are_known_to(count: int) -> None:
    trained = learner(f"model.joint_view.in_batch_negatives={count}")
    torch.manual_seed(0)
    model = trained.build().eval()
    last = model.out[3]
    assert isinstance(last, torch.nn.Linear)
    torch.nn.init.normal_(last.weight)
    words, *_ = trained.inputs(range(8))
    a, b, labels = (
        torch.tensor([0, 1, 2, 3, 4, 5]),
        torch.tensor([5, 6, 7, 0, 1, 2]),
        torch.tensor([1.0, 1, 1, 0, 0, 0]),
    )
    is_known = torch.eye(3, dtype=torch.bool)
    is_known[2, 0] = True
    added = {1: [(0, 6), (1, 7)], 2: [(0, 7), (1, 5), (2, 6)]}
    pairs = [*zip(a.tolist(), b.tolist(), labels.tolist(), strict=True)]
    for shift in range(1, min(count, 2) + 1):
        pairs += [(*pair, 0.0) for pair in added[shift]]
    logits = {(i, j): model(words[i : i + 1], words[j : j + 1])[0, 0] for i, j, _ in pairs}
    losses = [binary_cross_entropy_with_logits(logits[i, j], torch.tensor(y)) for i, j, y in pairs]
    contrast = []
    for i, j, _ in pairs[:3]:
        negatives = [logits[first, second] for first, second, _ in pairs[6:] if first == i]
        contrast.append(torch.stack([logits[i, j], *negatives]).logsumexp(0) - logits[i, j])
    expected = torch.stack(losses).mean() + torch.stack(contrast).mean()
    assert trained.loss(model, (words, a, b, labels, is_known)).item() == pytest.approx(expected.item(), rel=1e-5)


def test_words_are_those_of_all_windows() -> None:
    rows = np.array([[0.5, 9, 2, -7, 0, 0, 0], [0.5, 4, 1, 1, 9, 3, 8]], np.float32)
    assert words_of({7: rows}, 2)[7].tolist() == [[4, 1, 1], [9, 3, 8]]
    assert words_of({7: rows}, 2)[7].shape == (2, WORD_FIELDS)


def test_joint_view_learns_which_documents_share_a_rare_word() -> None:
    trained = learner()
    torch.manual_seed(0)
    model = trained.build()
    assert isinstance(model, JointView)
    trained.initialise(model, torch.device("cpu"))
    assert model.idf[1] == 1
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(8):
        for batch in trained.batches(epoch):
            optimiser.zero_grad()
            trained.loss(model, batch).backward()
            optimiser.step()
    assert trained.validate(model.eval(), torch.device("cpu")) > 0.95
