"""Accuracy by length, measured with the shipped classifier on made-up reviews."""

from pathlib import Path

from artifact.loading import load_export
from artifact.local import Model
from artifact.manifest import version_folder
from benchmarks.models.document_length import measure_model
from tests.support.paths import EXPORTS
from tests.support.reviews import review, write_reviews

EXPORT = EXPORTS / "imdb-s3"
GOOD, BAD = "A wonderful, moving film. ", "A dull, awful waste of time. "
REVIEWS = [
    (GOOD, 1),
    (BAD, 1),
    (30 * BAD, 0),
    (20 * GOOD + 300 * BAD, 0),
    (200 * BAD + 400 * GOOD, 1),
    (200 * GOOD + 400 * BAD, 1),
]


def test_answers_are_counted_by_length_and_by_first_bytes(tmp_path: Path) -> None:
    rows = [review(text, label, "test") for text, label in REVIEWS]
    found = measure_model(EXPORT, write_reviews(tmp_path, [review(GOOD), review(BAD, 0), *rows]))
    texts, labels = [text for text, _ in REVIEWS], [label for _, label in REVIEWS]
    model = Model(load_export(version_folder(EXPORT), device="cpu"))
    names = ["negative", "positive"]

    def right(documents: list[str], on_overflow: str = "windows") -> list[bool]:
        answers = model.classify(documents, on_overflow=on_overflow)  # type: ignore[call-overload]
        return [names.index(answer["label"]) == label for answer, label in zip(answers, labels, strict=True)]

    by_windows, by_head = right(texts), right(texts, "head")
    assert by_windows != by_head
    assert (found["documents"], found["model"]) == ("imdb", str(EXPORT))
    for row in found["lengths"]:
        inside = [row["above"] < len(text) <= (row["to"] or len(text)) for text in texts]
        counts = [sum(inside), *(sum(map(bool.__and__, inside, of)) for of in (by_windows, by_head))]
        assert [row["documents"], row["windows"], row["head"]] == counts
    assert sum(row["documents"] for row in found["lengths"]) == len(REVIEWS)
    assert found["prefixes"] == [
        {"bytes": length, "correct": sum(right([text[:length] for text in texts]))} for length in (1024, 4096, 16384)
    ]
