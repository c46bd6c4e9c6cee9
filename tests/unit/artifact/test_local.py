"""Models in this process: answers equal those computed row by row, and errors name the wrong value."""

import os
import select
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import artifact
from artifact.arrays import Array
from artifact.backends.base import Tensors
from artifact.errors import BadExport, InferenceFailed, InvalidInput, NonFiniteOutput
from artifact.exports import version_folder
from artifact.local import Document, Model
from tests.support.models import Backend, backend_of, classifier, forecaster, matcher
from tests.support.offline import Offline, OfflineForecaster, OfflineMatcher, agree, document, same_score
from tests.support.paths import EXPORTS
from tests.support.waiting import PATIENCE_S

SHORT, LONG = "A good film, even so.", document(9000).decode()
QUERY = "Parsing with a grammar of few rules."


@pytest.fixture(scope="module")
def labels() -> Model:
    return artifact.load(EXPORTS / "imdb-s3", device="cpu")


@pytest.fixture(scope="module")
def row_by_row() -> Offline:
    return Offline(version_folder(EXPORTS / "imdb-s3"))


@pytest.fixture(scope="module")
def pairs() -> Model:
    return artifact.load(EXPORTS / "aan", device="cpu")


@pytest.fixture(scope="module")
def pair_by_pair() -> OfflineMatcher:
    return OfflineMatcher(version_folder(EXPORTS / "aan"))


@pytest.fixture(scope="module")
def series() -> Model:
    return artifact.load(str(version_folder(EXPORTS / "ettm2")), device="cpu")


@pytest.fixture(scope="module")
def window_by_window() -> OfflineForecaster:
    return OfflineForecaster(version_folder(EXPORTS / "ettm2"))


def test_document_gets_the_scores_computed_row_by_row(labels: Model, row_by_row: Offline) -> None:
    found = labels.classify(SHORT)
    assert agree(found, row_by_row(SHORT.encode()))
    assert found == labels.classify(SHORT.encode())
    assert found["coverage"] == {
        "bytes_total": len(SHORT),
        "bytes_used": len(SHORT),
        "strategy": "whole",
        "windows": 1,
        "known": row_by_row.known(SHORT.encode()),
    }


def test_documents_of_all_lengths_are_classified_in_order(labels: Model, row_by_row: Offline) -> None:
    documents: list[str | bytes] = [LONG, b"\xff\x00", SHORT, document(300), document(5000)]
    found = labels.classify(documents)
    assert [result["coverage"]["windows"] for result in found] == [3, 1, 1, 1, 2]
    for given, result in zip(documents, found, strict=True):
        assert agree(result, row_by_row(given.encode() if isinstance(given, str) else given))


def test_options_equal_those_of_the_server(labels: Model, row_by_row: Offline) -> None:
    found = labels.classify(LONG, top_k=1, on_overflow="tail", detail=True)
    expected = row_by_row(LONG.encode(), "tail")
    assert (len(found["scores"]), found["label"]) == (1, max(expected, key=expected.__getitem__))
    assert found["score"] == pytest.approx(max(expected.values()), abs=1e-5)
    assert [(window["start"], window["end"]) for window in found["windows"]] == [(9000 - 4096, 9000)]


def test_pairs_get_the_scores_computed_pair_by_pair(pairs: Model, pair_by_pair: OfflineMatcher) -> None:
    given: list[tuple[Document, Document]] = [(QUERY, SHORT), (LONG, QUERY), (QUERY.encode(), QUERY)]
    found = pairs.score(given)
    expected = [pair_by_pair(QUERY, SHORT), pair_by_pair(LONG, QUERY), pair_by_pair(QUERY, QUERY)]
    assert all(map(same_score, [result["score"] for result in found], expected))
    assert [(result["coverage"]["a"]["windows"], result["coverage"]["b"]["windows"]) for result in found] == [
        (1, 1),
        (3, 1),
        (1, 1),
    ]


def test_documents_are_ranked_by_their_scores(pairs: Model, pair_by_pair: OfflineMatcher) -> None:
    documents = [SHORT, QUERY, "A grammar of many rules."]
    found = pairs.rank(QUERY, documents)
    expected = [pair_by_pair(QUERY, text) for text in documents]
    assert [result["index"] for result in found] == sorted(range(3), key=lambda index: -expected[index])
    for result in found:
        assert same_score(result["score"], expected[result["index"]])
    assert pairs.rank(QUERY, documents, top_n=2) == found[:2]


@pytest.mark.parametrize("top_n", [0, -1])
def test_top_n_below_one_is_rejected(pairs: Model, top_n: int) -> None:
    with pytest.raises(InvalidInput, match=rf"top_n: must be at least 1, not {top_n}"):
        pairs.rank(QUERY, [SHORT, LONG], top_n=top_n)


def test_unknown_strategy_is_rejected_even_for_a_short_document(labels: Model, pairs: Model) -> None:
    wrong: Any = "widnows"
    words = "on_overflow: must be one of windows, head, tail, head_tail, error, not 'widnows'"
    for ask in (
        lambda: labels.classify(SHORT, on_overflow=wrong),
        lambda: pairs.score([(SHORT, QUERY)], on_overflow=wrong),
        lambda: pairs.rank(QUERY, [SHORT], on_overflow=wrong),
    ):
        with pytest.raises(InvalidInput, match=words):
            ask()


def test_series_is_forecast_by_name_and_by_position(series: Model, window_by_window: OfflineForecaster) -> None:
    channels = window_by_window.manifest.channels
    columns = window_by_window.series(120)
    by_position = series.forecast(columns)
    assert window_by_window.agree(by_position["forecast"], window_by_window(columns))
    by_name = series.forecast(dict(reversed(list(zip(channels, columns, strict=True)))))
    assert list(by_name["forecast"]) == list(reversed(channels))
    assert [by_name["forecast"][name] for name in channels] == by_position["forecast"]
    assert by_name["coverage"] == by_position["coverage"]


def test_requested_horizon_and_bands_are_returned(series: Model, window_by_window: OfflineForecaster) -> None:
    columns = window_by_window.series(96)
    index = 3
    level = float(window_by_window.levels[index])
    found = series.forecast(columns, horizon=24, quantiles=[level])
    expected = [column[:24] for column in window_by_window(columns, index)]
    assert list(found["quantiles"]) == [str(level)]
    assert window_by_window.agree(found["quantiles"][str(level)], expected)
    assert {len(column) for column in found["forecast"]} == {24}


@pytest.mark.parametrize(
    ("ask", "place"),
    [
        (lambda model: model.classify("+", top_k=0), "top_k"),
        (lambda model: model.classify(["+", ""]), "inputs.1"),
        (lambda model: model.classify(17 * "+", on_overflow="error"), "inputs.0"),
        (lambda model: model.classify([]), "inputs"),
        (lambda model: model.score([]), "pairs"),
        (lambda model: model.rank("++", []), "documents"),
        (lambda model: model.score([("++", "")]), "pairs.0.1"),
        (lambda model: model.rank("", ["++"]), "query"),
        (lambda model: model.rank("++", ["++", ""]), "documents.1"),
        (lambda model: model.forecast([[1, 2, 3, 4]] * 2, horizon=4), "horizon"),
        (lambda model: model.forecast([[1, 2, 3, 4]] * 2, quantiles=[0.01]), "quantiles"),
        (lambda model: model.forecast([[1, 2, 3, 4]]), "series"),
        (lambda model: model.forecast({"load": [1, 2, 3, 4], "wind": [1, 2, 3, 4]}), "series"),
    ],
)
def test_error_names_the_wrong_value(ask: Callable[[Model], object], place: str) -> None:
    of_place = {"top_k": classifier, "inputs": classifier, "pairs": matcher, "query": matcher, "documents": matcher}
    model = Model(of_place.get(place.split(".")[0], forecaster)())
    with pytest.raises(InvalidInput) as caught:
        ask(model)
    assert [found for found, _ in caught.value.errors] == [place]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: model.classify("+"), "naive is for forecasting; it cannot classify documents"),
        (lambda model: model.score([("++", "++")]), "naive is for forecasting; it cannot compare documents"),
        (lambda model: model.rank("++", ["++"]), "naive is for forecasting; it cannot compare documents"),
    ],
)
def test_model_of_another_task_is_rejected(ask: Callable[[Model], object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ask(Model(forecaster()))
    for loaded in (classifier(), matcher()):
        with pytest.raises(InvalidInput, match="it cannot forecast series"):
            Model(loaded).forecast([[1, 2, 3, 4]] * 2)


def test_non_finite_output_is_an_error() -> None:
    rows = Backend("logits", lambda inputs: np.full((len(inputs["lengths"]), 2), np.nan))
    with pytest.raises(NonFiniteOutput):
        Model(replace(classifier(), backend=rows)).classify("+")
    head = Backend("logits", lambda inputs: np.full((len(inputs["a"]), 1), np.inf))
    with pytest.raises(NonFiniteOutput):
        Model(replace(matcher(), head=head)).score([("++", "++")])


def test_failure_of_the_backend_is_an_error() -> None:
    def fail(inputs: Tensors) -> Array:
        del inputs
        raise RuntimeError("broken")

    with pytest.raises(InferenceFailed, match="the backend failed on this input"):
        Model(replace(classifier(), backend=Backend("logits", fail))).classify("+")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_process_can_compute() -> None:
    """The threads of the parent process do not run in the child."""
    model = Model(classifier())
    expected = model.classify("++-")["label"]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, model.classify("++-")["label"].encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        assert select.select([answer], [], [], PATIENCE_S)[0], "no answer"
        assert answer.read() == expected
    os.waitpid(child, 0)


def test_batches_may_be_computed_in_one_thread() -> None:
    loaded = classifier()
    threads = set[str]()
    answer = backend_of(loaded).run

    def run(inputs: Tensors, limit_s: float | None = None) -> dict[str, Array]:
        threads.add(threading.current_thread().name)
        return answer(inputs, limit_s)

    backend_of(loaded).run = run  # type: ignore[method-assign]
    Model(loaded, threads=1).classify(100 * ["+++ and more"])
    assert len(backend_of(loaded).batches) == 7
    assert len(threads) == 1


def test_rows_of_one_bucket_are_computed_together() -> None:
    """On a CPU a batch has 16 rows of the longest bucket, and 32 rows of a bucket half as long."""
    loaded = classifier()
    model = Model(loaded)
    documents = ["+" if number % 2 else 12 * "-" for number in range(70)]
    found = model.classify(documents)
    assert sorted(backend_of(loaded).batches) == [3, 3, 16, 16, 32]
    assert [result["label"] for result in found] == ["negative", "positive"] * 35


def test_rows_of_one_bucket_are_spread_over_the_threads_if_they_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = classifier()
    model = Model(loaded, threads=3)
    monkeypatch.setattr("artifact.local.PART_BYTES", 4 * loaded.row_lengths[0])
    for count, batches in ((13, [3, 5, 5]), (9, [4, 5]), (7, [7])):
        backend_of(loaded).batches.clear()
        model.classify(count * ["+"])
        assert sorted(backend_of(loaded).batches) == batches


@pytest.mark.parametrize(
    ("ask", "place", "words"),
    [
        (lambda model: model.classify(5), "inputs", r"must be a document \(str or bytes\) or a sequence .*, not int"),
        (lambda model: model.classify(None), "inputs", "a sequence of documents, not NoneType"),
        (lambda model: model.classify({"+", "-"}), "inputs", "a sequence of documents, not set"),
        (lambda model: model.classify(np.array("+")), "inputs", "a sequence of documents, not ndarray"),
        (lambda model: model.classify(text for text in "+-"), "inputs", "a sequence of documents, not generator"),
        (lambda model: model.classify([5]), "inputs.0", "must be str or bytes, not int"),
        (lambda model: model.classify("\ud800"), "inputs.0", "lone surrogate"),
        (lambda model: model.classify("+", top_k=1.0), "top_k", "must be an integer, not float"),
        (lambda model: model.classify("+", top_k=True), "top_k", "must be an integer, not bool"),
    ],
)
def test_error_names_a_document_of_the_wrong_type(ask: Callable[[Model], object], place: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        ask(Model(classifier()))
    assert [found for found, _ in caught.value.errors] == [place]


@pytest.mark.parametrize(
    ("ask", "place", "words"),
    [
        (lambda model: model.score(("one text", "another")), "pairs.0", "must be a pair of documents, not str"),
        (lambda model: model.score([("a text", "b text", "c text")]), "pairs.0", "must be two documents, not 3"),
        (lambda model: model.score([{"a": "text", "b": "text"}]), "pairs.0", "must be a pair of documents, not dict"),
        (lambda model: model.score("text"), "pairs", "must be a sequence of pairs of documents, not str"),
        (lambda model: model.rank("query", "text"), "documents", "must be a sequence of documents, not str"),
        (lambda model: model.rank("query", ["text"], top_n=1.0), "top_n", "must be an integer, not float"),
        (lambda model: model.rank(None, ["text"]), "query", "must be str or bytes, not NoneType"),
    ],
)
def test_error_names_a_pair_of_the_wrong_type(ask: Callable[[Model], object], place: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        ask(Model(matcher()))
    assert [found for found, _ in caught.value.errors] == [place]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (["1"] * 4, "must contain numbers or None, not str"),
        ("1111", "must be a sequence of numbers, not str"),
        ([True] * 4, "must contain numbers or None, not bool"),
        (np.array([True] * 4), "must contain numbers or None, not bool"),
        (5, "must be a sequence of numbers, not int"),
        ([1, 2, 3, 10**400], "contains an integer that is too large"),
    ],
)
def test_error_names_a_channel_of_the_wrong_type(column: Any, words: str) -> None:
    model = Model(forecaster())
    with pytest.raises(InvalidInput, match=words) as caught:
        model.forecast([[1, 2, 3, 4], column])
    assert [found for found, _ in caught.value.errors] == ["series.1"]
    with pytest.raises(InvalidInput, match="horizon: must be an integer, not float"):
        model.forecast([[1, 2, 3, 4]] * 2, horizon=1.0)  # type: ignore[arg-type]  # rejected


@pytest.mark.parametrize(
    ("series", "options", "place", "words"),
    [
        (5, {}, "series", "must be a mapping from channels to values, or a sequence .*, not int"),
        (None, {}, "series", "a sequence with the values of each channel, not NoneType"),
        ("1111", {}, "series", "a sequence with the values of each channel, not str"),
        ([{1.0, 2.0}] * 2, {}, "series.0", "must be a sequence of numbers, not set"),
        ([[1, 2, 3, 4]] * 2, {"quantiles": 0.5}, "quantiles", "must be a sequence of numbers, not float"),
        ([[1, 2, 3, 4]] * 2, {"quantiles": ["0.5"]}, "quantiles", "must be a number, not str"),
        ([[1, 2, 3, 4]] * 2, {"frequency": 12}, "frequency", "must be str, such as 1h or 1mo, not int"),
    ],
)
def test_error_names_a_series_of_the_wrong_type(series: Any, options: Any, place: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        Model(forecaster()).forecast(series, **options)
    assert [found for found, _ in caught.value.errors] == [place]


class Column(list[Any]):
    """A column of a data frame after rows were dropped: its first value has another index than 0."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return super().__getitem__(index)
        raise KeyError(index)


def test_columns_of_data_frames_are_accepted() -> None:
    assert Model(classifier()).classify(Column(["++", "-"])) == Model(classifier()).classify(["++", "-"])
    assert Model(matcher()).rank("++", Column(["++", "--"])) == Model(matcher()).rank("++", ["++", "--"])
    pairs = [("++", "--"), ("--", "++")]
    assert Model(matcher()).score(Column(pairs)) == Model(matcher()).score(pairs)
    series: Any = {name: Column([1.0, None, 3.0]) for name in ("load", "temperature")}
    columns = list(series.values())
    assert Model(forecaster()).forecast(Column(columns)) == Model(forecaster()).forecast(columns)


def test_bytes_like_objects_and_arrays_are_accepted() -> None:
    model = Model(classifier())
    assert model.classify(bytearray(b"++-")) == model.classify(b"++-")
    series: Any = Model(forecaster())  # an array is a sequence at run time, but not for the type checker
    columns = [[1.0, 2.0, 3.0, 4.0]] * 2
    assert series.forecast(np.array(columns)) == series.forecast(columns)
    assert series.forecast(columns, horizon=np.int64(1)) == series.forecast(columns, horizon=1)


@pytest.mark.parametrize(("option", "value"), [("device", "gpu"), ("device", "CUDA"), ("format", "ONNX")])
def test_unknown_device_and_format_are_rejected(option: str, value: str) -> None:
    with pytest.raises(BadExport, match=f"{option} '{value}' is none of"):
        artifact.load(EXPORTS / "ili", **{option: value})  # type: ignore[arg-type]  # rejected


def test_unknown_folder_is_rejected(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(BadExport, match="is not an export") as caught:
            artifact.load(folder)
        assert caught.value.reason == "missing"
