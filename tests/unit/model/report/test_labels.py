"""Sections about classifiers."""

import base64
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from model.report import labels
from model.report.content import Example, Note, Picture, Section, Table
from model.report.labels import class_report, sections
from model.tasks.predictions import LabelPredictions, Rival, Stretch


def predictions(classes: int = 3, count: int = 120) -> LabelPredictions:
    generator = np.random.default_rng(1)
    scores, others = generator.dirichlet(np.ones(classes), (2, count))
    texts = [b"x" * int(size) for size in generator.integers(1, 5_000, count)]
    names = [f"class {number}" for number in range(classes)]
    truth = generator.integers(0, classes, count)
    return LabelPredictions(names, truth, scores, texts, "bytes", rival=Rival("other", others))


def section(found: LabelPredictions, title: str) -> Section:
    (kept,) = (part for part in sections(found, lambda _: ()) if part.title == title)
    return kept


def table(part: Section) -> Table:
    (found,) = (block for block in part.blocks if isinstance(block, Table))
    return found


def notes(part: Section) -> list[str]:
    return [block.text for block in part.blocks if isinstance(block, Note)]


def test_precision_recall_and_f1_are_those_of_scikit_learn() -> None:
    found = predictions()
    answers = found.scores.argmax(axis=1)
    expected = precision_recall_fscore_support(found.truth, answers, zero_division=0)
    np.testing.assert_allclose(class_report(found.scores, found.truth), expected[:3])
    rows = [[cell.text for cell in row] for row in table(section(found, "Classes")).rows]
    for place, row in enumerate(rows):
        assert row[:3] == [f"class {place}", str(expected[3][place]), str((answers == place).sum())]
        assert row[3:6] == [f"{expected[metric][place]:.4f}" for metric in range(3)]
    assert found.rival is not None
    other = precision_recall_fscore_support(found.truth, found.rival.scores.argmax(axis=1))
    assert [row[6] for row in rows] == [f"{value:.4f}" for value in other[2]]


def test_difference_to_the_baseline_has_the_standard_error_of_pairs() -> None:
    found = predictions()
    assert found.rival is not None
    ours, others = (scores.argmax(axis=1) == found.truth for scores in (found.scores, found.rival.scores))
    difference = ours.astype(float) - others
    expected = f"{100 * difference.mean():+.1f} ± {100 * difference.std() / np.sqrt(120):.1f} points"
    assert expected in notes(section(found, "Classes"))[0]


def test_confusion_is_that_of_scikit_learn_and_of_many_classes_its_largest_counts() -> None:
    found = predictions()
    expected = confusion_matrix(found.truth, found.scores.argmax(axis=1))
    rows = [[int(cell.text) for cell in row[1:]] for row in table(section(found, "Confusion")).rows]
    assert rows == expected.tolist()
    many = predictions(classes=40, count=2_000)
    expected = confusion_matrix(many.truth, many.scores.argmax(axis=1), labels=range(40))
    np.fill_diagonal(expected, 0)
    counts = [int(row[2].text) for row in table(section(many, "Confusion")).rows]
    assert counts == sorted(expected.ravel().tolist(), reverse=True)[: len(counts)]


def test_class_that_is_never_predicted_is_named() -> None:
    found = predictions()
    scores = found.scores * [1, 1, 0]
    warned = section(replace(found, scores=scores), "Classes")
    assert "Never predicted: class 2." in notes(warned)


def test_accuracy_by_length_is_of_groups_of_similar_size() -> None:
    found = predictions()
    right, lengths = found.scores.argmax(axis=1) == found.truth, np.array([len(text) for text in found.examples])
    rows = table(section(found, "Accuracy by length")).rows
    assert sum(int(row[1].text) for row in rows) == 120
    for name, count, accuracy, _ in rows:
        low, high = (int(part.replace(",", "")) for part in name.text.split(" to "))
        chosen = (low <= lengths) & (lengths <= high)
        assert int(count.text) == chosen.sum() == pytest.approx(24, abs=2)
        assert accuracy.text == f"{right[chosen].mean():.4f}"
    alike = replace(found, examples=[b"same"] * 120)
    assert [row[0].text for row in table(section(alike, "Accuracy by length")).rows] == ["4 to 4"]


def test_worst_documents_show_the_stretches_that_spoke_for_the_answer() -> None:
    text = b"".join(b"%04d" % number for number in range(10))
    shares = {3: 5.0, 7: 4.0, 1: 3.0, 9: 2.0, 5: 1.0}

    def explain(document: bytes) -> list[Stretch]:
        assert document == text
        return [Stretch(4 * i, 4 * i + 4, np.array([shares.get(i, 0.0), 0.0])) for i in range(10)]

    scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    found = LabelPredictions(["a", "b"], np.array([1, 1, 1]), scores, [text, text, text], "bytes", ["p", "q", "r"])
    examples = [block for part in sections(found, explain) for block in part.blocks if isinstance(block, Example)]
    assert [example.title for example in examples] == [
        "p: label b (10.0%), answer a (90.0%)",
        "q: label b (40.0%), answer a (60.0%)",
    ]
    assert [part.text for part in examples[0].parts] == ["0001", "0003", "0007", "0009"]
    assert [part.shade for part in examples[0].parts] == [0.6, 1.0, 0.8, 0.4]
    assert examples[0].statement == "The 4 of 10 stretches, in 40 bytes, that speak most for the answer."


def test_worst_recordings_are_drawn_around_the_stretch_that_spoke_for_the_answer() -> None:
    values = np.random.default_rng(0).standard_normal((4_000, 2))

    def explain(_: object) -> list[Stretch]:
        shares = {3: -1.0, 30: 2.0, 31: 0.5}
        return [Stretch(100 * i, 100 * i + 100, np.array([shares.get(i, 0.0), 0.0])) for i in range(40)]

    scores = np.array([[0.9, 0.1]])
    found = LabelPredictions(["a", "b"], np.array([1]), scores, [values], "steps", ["p"])
    (worst,) = (part for part in sections(found, explain) if part.title == "Most wrong")
    (picture,) = (block for block in worst.blocks if isinstance(block, Picture))
    assert picture.caption == (
        "p: label b (10.0%), answer a (90.0%); steps 2,550 to 3,550 of 4,000; blue parts speak for the answer, orange "
        "ones against it"
    )
    drawn = base64.b64decode(picture.address.partition(",")[2]).decode()
    assert [shade for shade in ("0.35", "0.0875") if f"opacity: {shade}" in drawn] == ["0.35", "0.0875"]
    assert "fill: #ff7f0e" not in drawn, "the stretch that speaks against the answer is not in these steps"


def test_recordings_without_stretches_are_drawn_from_their_beginning() -> None:
    values, scores = np.zeros((1_200, 9)), np.array([[0.9, 0.1]])
    found = LabelPredictions(["a", "b"], np.array([1]), scores, [values], "steps")
    (picture,) = (block for block in section(found, "Most wrong").blocks if isinstance(block, Picture))
    assert picture.caption.endswith("; steps 0 to 1,000 of 1,200; the first 6 channels")


def test_long_documents_without_stretches_are_cut_with_a_statement() -> None:
    found = LabelPredictions(["a", "b"], np.array([0]), np.array([[0.0, 1.0]]), [b"long " * 1_000], "bytes")
    (example,) = (block for block in section(found, "Most wrong").blocks if isinstance(block, Example))
    assert len(example.parts[0].text) == labels.MOST_BYTES
    assert example.statement == "The first 1,200 of 5,000 bytes."
    right = replace(found, truth=np.array([1]))
    assert notes(section(right, "Most wrong")) == ["No test example is classified wrongly."]
