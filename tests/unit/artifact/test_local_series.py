"""Recordings classified in this process: every form of them, options, and errors that name the wrong value."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from artifact.errors import InvalidInput
from artifact.local import Model
from tests.support import recordings as reference
from tests.support.models import RATE, backend_of, classifier, forecaster, series_classifier

X: list[float | None] = [10, None, 12, 13]
Y: list[float | None] = [10, 12, 14, 9]
ARRAY = np.array([X, Y], np.float64)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(series_classifier())


@pytest.mark.parametrize(
    "recording",
    [
        {"y": Y, "x": X},
        [X, Y],
        (tuple(X), tuple(Y)),
        ARRAY,
        list(ARRAY),
        {"x": ARRAY[0], "y": Y},
        {"x": ARRAY[0].astype(np.float32), "y": np.array([10, 12, 14, 9])},
    ],
    ids=["names", "lists", "tuples", "array", "list of arrays", "arrays by name", "other types"],
)
def test_recording_gets_the_scores_of_the_reference(model: Model, recording: Any) -> None:
    found = model.classify(recording)
    assert found["label"] == "wave"
    assert found["score"] == pytest.approx(reference.score(X, Y), abs=1e-6)
    assert found["coverage"]["imputed"] == 1


@pytest.mark.parametrize("values", [X, ARRAY[0], [X], ARRAY[:1], {"only": X}])
def test_values_of_the_only_channel_may_come_alone(values: Any) -> None:
    found = Model(series_classifier(channels=["only"])).classify(values)
    assert found["score"] == pytest.approx(reference.score(X, X), abs=1e-6)


def test_several_recordings_are_a_list_of_mappings_and_share_batches() -> None:
    loaded = series_classifier()
    model = Model(loaded, threads=1)
    recordings = [{"x": X[:length], "y": Y[:length]} for length in (1, 4, 3)]
    found = model.classify(recordings)
    assert backend_of(loaded).batches == [3]
    assert found == [model.classify(recording) for recording in recordings]
    assert model.classify(recordings[:1]) == found[:1]


def test_options_apply(model: Model) -> None:
    recording = {"x": [10.0 + step % 5 for step in range(30)], "y": [12.0 - step % 4 for step in range(30)]}
    found = model.classify(recording, top_k=1, on_overflow="tail", detail=True, rate=RATE / 2)
    assert (len(found["scores"]), len(found["stretches"])) == (1, 16)
    assert (found["coverage"]["strategy"], found["coverage"]["resampled"]) == ("tail", True)
    assert "stretches" not in model.classify(recording)
    rate: Any = np.float32(RATE)
    assert model.classify(recording, rate=rate) == model.classify(recording)


@pytest.mark.parametrize(
    ("ask", "place", "message"),
    [
        (lambda model: model.classify({"x": X}), "series", "y is missing"),
        (lambda model: model.classify([X]), "series", "not 1"),
        (lambda model: model.classify([X, Y, Y]), "series", "not 3"),
        (lambda model: model.classify(X), "series", "not 1"),
        (lambda model: model.classify([]), "series", "at least 1 is needed"),
        (lambda model: model.classify({}), "series", "x is missing"),
        (lambda model: model.classify(5), "series", "must be a mapping from channels .* not int"),
        (lambda model: model.classify([X, "abcd"]), "series.1", "must be a sequence of numbers, not str"),
        (lambda model: model.classify([X, 5]), "series.1", "must be a sequence of numbers, not int"),
        (lambda model: model.classify({"x": X, "y": ["1"] * 4}), "series.y", "must contain numbers or None, not str"),
        (lambda model: model.classify({"x": X, "y": [10**400] * 4}), "series.y", "an integer that is too large"),
        (lambda model: model.classify({"x": X, "y": Y[:2]}), "series.y", "its length is 2, that of x 4"),
        (lambda model: model.classify(np.zeros((2, 3, 4))), "series.0", "numbers, not an array of 2 dimensions"),
        (lambda model: model.classify([{"x": X, "y": Y}, {"x": X}]), "series.1", "y is missing"),
        (lambda model: model.classify([{"x": X, "y": Y}, [X, Y]]), "series.1", "must be a mapping from channels"),
        (
            lambda model: model.classify([[X, Y], {"x": X, "y": Y}]),
            "series.0",
            "numbers or None, not list",
        ),
        (lambda model: model.classify([X, Y], rate=0), "rate", "must be a positive number"),
        (lambda model: model.classify([X, Y], rate="10"), "rate", "must be a number, not str"),
        (lambda model: model.classify([X, Y], rate=True), "rate", "must be a number, not bool"),
        (lambda model: model.classify([X, Y], top_k=0), "top_k", "must be at least 1"),
        (lambda model: model.classify([X, Y], on_overflow="cut"), "on_overflow", "must be one of windows"),
        (
            lambda model: model.classify([9 * [1.0]] * 2, on_overflow="error"),
            "series",
            "9 steps; the model reads 8",
        ),
    ],
)
def test_error_names_the_wrong_value(model: Model, ask: Callable[[Model], object], place: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        ask(model)
    assert [found for found, _ in caught.value.errors] == [place]


@pytest.mark.parametrize("documents", ["a text", b"bytes", ["a text"], [b"bytes"], ("a", "b")])
def test_documents_need_a_classifier_of_texts(model: Model, documents: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^gestures is for series-classification; it cannot classify documents$"):
        model.classify(documents)


def test_series_need_a_classifier_of_series() -> None:
    with pytest.raises(InvalidInput, match=r"^mood is for text-classification; it cannot classify series$"):
        Model(classifier()).classify({"x": X})
    with pytest.raises(InvalidInput, match=r"^rate: mood classifies texts, which have no rate; leave it out$"):
        Model(classifier()).classify("+", rate=10)
    with pytest.raises(InvalidInput, match=r"^naive is for forecasting; it cannot classify documents$"):
        Model(forecaster()).classify({"x": X})
