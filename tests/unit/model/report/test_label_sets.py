"""Sections about classifiers of any number of labels."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_recall_fscore_support

from model.report.content import Example, Note, Section, Table
from model.report.label_sets import sections, set_report
from model.tasks.predictions import LabelSetPredictions, Rival, Stretch

NAMES = ["grain", "trade", "corn"]


def predictions(count: int = 120) -> LabelSetPredictions:
    generator = np.random.default_rng(1)
    truth, scores, others = generator.random((3, count, len(NAMES)))
    texts = [b"x" * int(size) for size in generator.integers(1, 5_000, count)]
    rival = Rival("other", others, thresholds=np.array([0.3, 0.4, 0.5]))
    return LabelSetPredictions(
        NAMES, (truth > 0.6).astype(np.int64), scores, np.array([0.5, 0.6, 0.7]), texts, training=[7, 8, 9], rival=rival
    )


def section(found: LabelSetPredictions, title: str) -> Section:
    (kept,) = (part for part in sections(found, lambda _: ()) if part.title == title)
    return kept


def table(part: Section) -> Table:
    (found,) = (block for block in part.blocks if isinstance(block, Table))
    return found


def notes(part: Section) -> list[str]:
    return [block.text for block in part.blocks if isinstance(block, Note)]


def test_counts_thresholds_precision_recall_and_f1_are_those_of_scikit_learn() -> None:
    found = predictions()
    answers = found.scores >= [0.5, 0.6, 0.7]
    expected = precision_recall_fscore_support(found.truth, answers, zero_division=0)
    np.testing.assert_allclose(set_report(answers, found.truth == 1), expected[:3])
    assert found.rival is not None
    other = precision_recall_fscore_support(found.truth, found.rival.scores >= [0.3, 0.4, 0.5])
    shown = table(section(found, "Labels"))
    assert shown.head[1:5] == ["training", "test", "predicted", "threshold"]
    for i, row in enumerate(shown.rows):
        counts = [str(number) for number in (7 + i, expected[3][i], answers[:, i].sum())]
        assert [cell.text for cell in row[:4]] == [NAMES[i], *counts]
        values = [(0.5, 0.6, 0.7)[i], *(expected[metric][i] for metric in range(3)), other[2][i]]
        assert [cell.text for cell in row[4:]] == [f"{value:.4f}" for value in values]


def test_documents_with_exactly_their_labels_and_labels_that_are_never_predicted_are_told() -> None:
    found = predictions()
    right = ((found.scores >= found.thresholds) == found.truth).all(1).sum()
    assert notes(section(found, "Labels"))[0].startswith(f"{right} of 120 test documents have exactly their labels. ")
    never = section(replace(found, thresholds=np.array([0.5, 2, 0.7])), "Labels")
    assert "Never predicted: trade." in notes(never)


def test_f1_by_length_is_of_groups_of_similar_size() -> None:
    found = predictions()
    lengths, answers = np.array([len(text) for text in found.examples]), found.scores >= found.thresholds
    assert found.rival is not None
    others = found.rival.scores >= [0.3, 0.4, 0.5]
    rows = table(section(found, "F1 by length")).rows
    assert sum(int(row[1].text) for row in rows) == 120
    for name, _, own, other in rows:
        low, high = (int(part.replace(",", "")) for part in name.text.split(" to "))
        chosen = (low <= lengths) & (lengths <= high)
        for cell, part in ((own, answers), (other, others)):
            assert cell.text == f"{f1_score(found.truth[chosen], part[chosen], average='micro'):.4f}"


@pytest.mark.parametrize(
    ("truth", "title", "kept"),
    [
        ([0, 0, 1], "p: grain is wrong (90.0%, threshold 50.0%); labels: corn; answer: grain, corn", "0001"),
        ([1, 1, 1], "p: trade is missing (10.0%, threshold 60.0%); labels: grain, trade, corn; answer: grain", "0003"),
    ],
)
def test_worst_documents_show_the_stretches_that_spoke_for_the_wrong_answer(
    truth: list[int], title: str, kept: str
) -> None:
    text = b"000100020003"

    def explain(_: bytes) -> list[Stretch]:
        shares = ([2.0, 3, 0], [-1.0, 0, 0], [0.0, -1, 0])
        return [Stretch(4 * i, 4 * i + 4, np.array(share)) for i, share in enumerate(shares)]

    found = LabelSetPredictions(
        NAMES, np.array([truth]), np.array([[0.9, 0.1, 0.8]]), np.array([0.5, 0.6, 0.7]), [text], ["p"]
    )
    (example,) = (block for part in sections(found, explain) for block in part.blocks if isinstance(block, Example))
    assert example.title.startswith(title)
    assert [part.text for part in example.parts] == ["0001", "0002", "0003"]
    assert max(example.parts, key=lambda part: part.shade).text == kept


def test_right_answers_are_told() -> None:
    found = predictions()
    right = replace(found, truth=(found.scores >= found.thresholds).astype(np.int64))
    assert notes(section(right, "Most wrong")) == ["Every test document has exactly its labels."]
