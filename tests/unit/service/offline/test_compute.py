"""Inputs -> results, for `predict` and `batch`."""

import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pytest

from artifact.errors import InputError
from artifact.local import Model
from artifact.tables.reading import Field
from service.offline.compute import (
    CHUNK,
    OPERATIONS,
    PredictOptions,
    choose_fields,
    choose_operation,
    compute_each,
    prepare,
    results,
)
from tests.support.models import backend_of, classifier, forecaster, matcher, series_classifier


def test_task_is_the_models_unless_another_is_asked_for() -> None:
    models = [made().task for made in (classifier, matcher, forecaster)]
    assert [choose_operation(task) for task in models] == ["classify", "score", "forecast"]
    assert choose_operation(models[1], "rank") == "rank"
    for model, asked, message in (
        (models[0], "rank", "--task rank: mood can classify"),
        (models[1], "classify", "--task classify: twins can score or rank"),
    ):
        with pytest.raises(InputError, match=f"^{message}$"):
            choose_operation(model, asked)


def test_fields_may_have_other_names() -> None:
    names = PredictOptions(text_column=("q", "d"))
    assert choose_fields("rank", names, matcher().task) == (Field("q"), Field("d", "a list of strings"))
    assert choose_fields("rank", PredictOptions(), matcher().task) == OPERATIONS["rank"].fields


def test_row_of_a_classifier_of_series_is_a_recording() -> None:
    fields = choose_fields("classify", PredictOptions(), series_classifier().task)
    assert fields == (Field("series", "a series"),)
    assert choose_fields("classify", PredictOptions(text_column=("s",)), series_classifier().task)[0].name == "s"
    model = Model(series_classifier())
    compute = prepare(model, "classify", fields, PredictOptions(top=1, rate=5.0))
    rows: list[Any] = [{"x": [9, 10], "y": [11, 12]}, {"y": [1], "x": [2]}, [[9, 10], [11, 12]]]
    expected = [model.classify(row, top_k=1, rate=5.0) for row in rows]
    assert compute([(row,) for row in rows]) == expected
    assert compute([(row,) for row in rows[:2]]) == expected[:2]


def test_errors_of_a_ranking_name_the_fields() -> None:
    fields = choose_fields("rank", PredictOptions(text_column=("q", "d")), matcher().task)
    compute = prepare(Model(matcher()), "rank", fields, PredictOptions())
    rows: list[tuple[Any, ...]] = [(b"++", [b"++", b""]), (b"", [b"++"]), (b"++", [])]
    details = [result["error"]["detail"] for result in compute_each(compute, rows)]
    assert [detail.partition(":")[0] for detail in details] == ["d.1", "q", "d"]


def test_invalid_row_is_found_by_halving() -> None:
    """Of eight rows, the halves without it are computed at once: four, two and one row."""
    model = classifier()
    compute = prepare(Model(model), "classify", OPERATIONS["classify"].fields, PredictOptions(top=1))
    found = compute_each(compute, [(text,) for text in (b"+", b"-", b"", b"+", b"+", b"-", b"-", b"+")])
    labels = [result.get("label", "error") for result in found]
    assert labels == [
        {"+": "positive", "-": "negative", "": "error"}[sign] for sign in ("+", "-", "", "+", "+", "-", "-", "+")
    ]
    assert sorted(backend_of(model).batches) == [1, 2, 4]
    assert all(len(result["scores"]) == 1 for result in found if "scores" in result)


def test_rows_are_read_while_earlier_ones_are_computed() -> None:
    """If the rows end with an error, it is raised after all results."""
    has_read_on, count = threading.Event(), 2 * CHUNK + 3
    found = list[Any]()

    def rows() -> Iterator[tuple[str, tuple[int]]]:
        for number in range(count):
            if number == CHUNK + 1:
                has_read_on.set()
            yield f"row {number}", (number,)
        raise InputError("the file is cut off")

    def compute(values: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        assert has_read_on.wait(60)
        return [{"twice": 2 * number} for (number,) in values]

    def use() -> None:
        for result in results(rows(), compute):
            found.append(result)

    with pytest.raises(InputError, match="the file is cut off"):
        use()
    assert found == [(f"row {number}", {"twice": 2 * number}) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, CHUNK, 2 * CHUNK, 2 * CHUNK + 1])
def test_any_number_of_rows_is_computed(count: int) -> None:
    rows = ((f"row {number}", (number,)) for number in range(count))
    found = list(results(rows, lambda values: [{"value": number} for (number,) in values]))
    assert found == [(f"row {number}", {"value": number}) for number in range(count)]


def test_reader_that_stops_early_does_not_wait_for_rows_that_are_computed() -> None:
    """As `predict | head` does."""
    may_end, computed = threading.Event(), list[int]()

    def compute(values: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        if computed:
            assert may_end.wait(60)
        computed.append(len(values))
        return [{} for _ in values]

    found = results(((str(number), (number,)) for number in range(4 * CHUNK)), compute)
    assert next(iter(found)) == ("0", {})
    assert isinstance(found, Generator)
    found.close()
    assert computed == [CHUNK]
    may_end.set()
