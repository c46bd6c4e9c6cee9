"""Sections about matchers."""

import numpy as np
import pytest

from model.report.content import Example, Note, Table
from model.report.pairs import MOST_POINTS, rates_of, sections
from model.tasks.link import area_under_roc
from model.tasks.predictions import PairPredictions, Rival


@pytest.mark.parametrize(("count", "digits"), [(50, 1), (50, 8), (5_000, 8)])
def test_roc_curve_has_the_area_under_it(count: int, digits: int) -> None:
    generator = np.random.default_rng(count)
    truth = generator.integers(0, 2, count)
    scores = (generator.random(count) + 0.3 * truth).round(digits)
    rates = rates_of(scores, truth)
    assert rates.shape[1] <= MOST_POINTS + 1
    assert rates[:, 0].tolist() == [0, 0]
    assert rates[:, -1].tolist() == [1, 1]
    assert np.trapezoid(rates[1], rates[0]) == pytest.approx(area_under_roc(scores, truth), abs=1e-9 + count / 1e6)


def test_worst_pairs_are_those_far_on_the_wrong_side() -> None:
    truth, scores = np.array([1, 1, 1, 0, 0, 0]), np.array([0.9, 0.1, 0.4, 0.6, 0.95, 0.2])
    texts = [(f"a{row}".encode(), b"b" * 501) for row in range(6)]
    found = PairPredictions(truth, scores, texts, rival=Rival("cosine", scores[::-1], 0.3))
    blocks = [block for part in sections(found) for block in part.blocks]
    examples = [block for block in blocks if isinstance(block, Example)]
    assert [example.title for example in examples] == [
        "test pair 2: label 1, score 0.100",
        "test pair 3: label 1, score 0.400",
        "test pair 5: label 0, score 0.950",
        "test pair 4: label 0, score 0.600",
    ]
    assert [part.text for part in examples[0].parts] == ["a1", "b" * 500]
    (table,) = (block for block in blocks if isinstance(block, Table))
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["model", "0.5000", "3", "3", "0.3333", "0.3333", "0.3333"],
        ["cosine", "0.3000", "3", "3", "0.5000", "0.5000", "0.6667"],
    ]


def test_pairs_on_the_right_side_are_no_errors() -> None:
    found = PairPredictions(np.array([0, 1]), np.array([0.25, 0.75]), [(b"a", b"b")] * 2)
    *_, last = sections(found)
    assert last.blocks == [Note("No test pair is on the wrong side of the threshold.")]


def test_labels_on_one_side_have_no_roc_curve() -> None:
    found = PairPredictions(np.array([0.5, 1]), np.array([0.25, 0.75]), [(b"a", b"b")] * 2)
    ranking, *_ = sections(found)
    assert ranking.blocks == [Note("There is no ROC curve: all labels are on one side of 0.5.")]
