"""Requests in flight of a model; pairs of vectors scored by the head of a matcher."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from artifact.arrays import Floats
from artifact.documents import sigmoid
from artifact.errors import InferenceFailed, InvalidInput, LongdocError, NonFiniteOutput
from artifact.loading import LoadedModel
from artifact.series import Tails
from artifact.tasks.base import Answer, Computation, RunHead
from artifact.tasks.classification import Classification
from artifact.tasks.forecaster import ForecastOptions
from artifact.tasks.forecasting import Forecasting
from artifact.tasks.matching import LocatedText, Matching
from service.batching.admission import limited
from service.engine.engine import Engine
from service.engine.served import HEAD_PAIRS, ServedModel
from service.errors import DeadlineExceeded, Overloaded, ShuttingDown
from service.metrics import Metrics
from service.settings import Settings
from tests.support.models import backend_of, classifier, forecaster, head_of, matcher, serving
from tests.support.waiting import PATIENCE_S

A = np.array([[2, 0], [0, 1]], np.float32)
B = np.array([[1, 1], [1, 0]], np.float32)
"""Pairs whose dot products are 2 and 0."""


@asynccontextmanager
async def served(
    model: LoadedModel, metrics: Metrics | None = None
) -> AsyncIterator[tuple[ServedModel[Matching], Engine]]:
    engine = Engine([model], Settings(), metrics or Metrics())
    try:
        yield engine.models.choose(Matching, None), engine
    finally:
        head_of(model).gate.set()
        engine.close()


def head(a: Floats = A) -> Computation[list[float]]:
    """A computation of the head alone."""
    (logits,) = yield RunHead(a, B)
    return Answer(np.round(sigmoid(logits), 6).tolist(), [])


def pairs(count: int) -> Computation[list[float]]:
    """A computation of the head for some pairs, whose logits are 0, 1, ... 6, 0, 1, ..."""
    a, b = np.zeros((2, count, 2), np.float32)
    a[:, 0], b[:, 0] = 1, np.expm1(np.arange(count) % 7)
    (logits,) = yield RunHead(a, b)
    return Answer(np.round(logits.astype(np.float64), 4).tolist(), [])


def soon() -> float:
    return asyncio.get_running_loop().time() + PATIENCE_S


async def test_pairs_are_scored() -> None:
    async with served(matcher()) as (model, _):
        assert (await model.run(head(), soon()))[0] == [0.75, 0.5]


@pytest.mark.parametrize(
    ("fault", "error", "kind"),
    [(RuntimeError("broken"), InferenceFailed, "raised"), (None, NonFiniteOutput, "non_finite")],
)
async def test_error_in_the_head_is_raised_and_counted(
    fault: Exception | None, error: type[LongdocError], kind: str
) -> None:
    model, metrics = matcher(), Metrics()
    head_of(model).error = fault
    vectors = A if fault else np.full_like(A, np.nan)
    async with served(model, metrics) as (twins, _):
        with pytest.raises(error):
            await twins.run(head(vectors), soon())
    labels = {"model": "twins", "kind": kind}
    assert metrics.registry.get_sample_value("longdoc_inference_errors_total", labels) == 1


@pytest.mark.parametrize("reason", ["deadline", "client_deadline"])
async def test_scoring_past_the_deadline_is_an_error(reason: str) -> None:
    model, metrics = matcher(), Metrics()
    head_of(model).gate.clear()
    async with served(model, metrics) as (twins, _):
        now = asyncio.get_running_loop().time()
        deadline = now if reason == "deadline" else limited(now + PATIENCE_S, now)
        with pytest.raises(DeadlineExceeded, match="while the pairs were scored"):
            await twins.run(head(), deadline)
    labels = {"model": "twins", "reason": reason}
    assert metrics.registry.get_sample_value("longdoc_requests_rejected_total", labels) == 1


async def test_late_request_does_not_score_its_other_pairs() -> None:
    model = matcher()
    head_of(model).gate.clear()
    async with served(model) as (twins, _):
        with pytest.raises(DeadlineExceeded):
            await twins.run(pairs(3 * HEAD_PAIRS), asyncio.get_running_loop().time())
        head_of(model).gate.set()
        await twins.run(pairs(1), soon())
    assert len(head_of(model).batches) <= 2


async def test_pairs_are_scored_in_parts_and_keep_their_order() -> None:
    async with served(matcher()) as (twins, _):
        found, _ = await twins.run(pairs(2 * HEAD_PAIRS + 1), soon())
        assert found == [float(number % 7) for number in range(2 * HEAD_PAIRS + 1)]


async def test_pairs_that_would_be_late_are_rejected_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, metrics = matcher(), Metrics()
    async with served(model, metrics) as (twins, engine):
        ticks = itertools.count()
        monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))  # each call takes a second
        await twins.run(pairs(1), soon())
        monkeypatch.undo()
        head_of(model).gate.clear()
        waiting = asyncio.create_task(twins.run(pairs(1), soon()))
        await asyncio.sleep(0)  # the task runs until it waits for the thread
        slots = twins.slots
        with pytest.raises(Overloaded, match=r"^scoring would take about 41\.0 s, and the deadline is in ") as caught:
            await twins.run(pairs(41 * slots - 1), asyncio.get_running_loop().time() + 60)
        assert caught.value.retry_after_s == 1
        head_of(model).gate.set()
        await waiting
        assert len((await twins.run(pairs(41 * slots - 1), asyncio.get_running_loop().time() + 60))[0]) > 1
        assert engine.is_ready
    labels = {"model": "twins", "reason": "too_late"}
    assert metrics.registry.get_sample_value("longdoc_requests_rejected_total", labels) == 1


async def test_closed_engine_scores_nothing() -> None:
    async with served(matcher()) as (model, engine):
        engine.close()
        with pytest.raises(ShuttingDown):
            await model.run(head(), soon())


async def test_drain_waits_for_every_request_in_flight() -> None:
    """Also for one that computes nothing, such as an upload between two lines."""
    metrics = Metrics()
    async with served(matcher(), metrics) as (model, _):
        assert model.is_idle
        await asyncio.wait_for(model.drain(), PATIENCE_S)
        with model.in_flight:
            with model.in_flight:
                draining = asyncio.create_task(model.drain())
                await asyncio.sleep(0)
                assert metrics.registry.get_sample_value("longdoc_requests_in_flight", {"model": "twins"}) == 2
            await asyncio.sleep(0)
            assert (draining.done(), model.is_idle) == (False, False)
        await asyncio.wait_for(draining, PATIENCE_S)
        assert model.is_idle
        assert metrics.registry.get_sample_value("longdoc_requests_in_flight", {"model": "twins"}) == 0


async def test_request_that_fails_is_in_flight_no_more() -> None:
    async with served(matcher()) as (model, _):
        with pytest.raises(RuntimeError, match="fault"), model.in_flight:
            raise RuntimeError("fault")
        assert model.is_idle


async def test_documents_are_answered_in_order_and_counted() -> None:
    model = classifier()
    async with serving(model) as client:
        mood = client.engine.models.choose(Classification, None)
        documents = [b"++-", b"+++" + 22 * b"." + b"---", b"-"]
        found, timing = await mood.run(mood.task.classify(documents, "windows"), soon())
        assert [round(float(one.scores[1]), 6) for one in found] == [0.6, 0.5, 0.333333]
        assert sum(backend_of(model).batches) == 4
        assert client.count("longdoc_documents_total", model="mood") == 3
        assert min(timing.decode, timing.queue) >= 0
        assert timing.compute > 0
        await mood.run(mood.task.classify([28 * b"+", b"+"], "head"), soon())
        assert client.count("longdoc_documents_truncated_total", model="mood") == 1
        assert client.count("longdoc_bytes_dropped_total", model="mood") == 12


@pytest.mark.parametrize("items", [1, 1000])
async def test_error_of_an_input_is_raised_and_nothing_is_computed(items: int) -> None:
    """Many items are converted in a thread."""
    model = classifier()
    async with serving(model) as client:
        mood = client.engine.models.choose(Classification, None)
        with pytest.raises(InvalidInput) as caught:
            await mood.run(mood.task.classify([b"+", b""], "windows"), soon(), items=items)
        assert client.count("longdoc_documents_total", model="mood") == 0
    assert [place for place, _ in caught.value.errors] == ["inputs.1"]
    assert backend_of(model).batches == []


async def test_missed_deadline_is_an_error() -> None:
    model = classifier()
    backend_of(model).gate.clear()
    async with serving(model) as client:
        mood = client.engine.models.choose(Classification, None)
        with pytest.raises(DeadlineExceeded):
            await mood.run(mood.task.classify([b"+"], "windows"), asyncio.get_running_loop().time())
        backend_of(model).gate.set()


async def test_series_of_one_computation_are_one_request_of_the_batcher() -> None:
    """More rows than the queue limit are accepted, because the queue is empty."""
    async with serving(forecaster(), settings=Settings(max_queue_rows=3)) as client:
        naive = client.engine.models.choose(Forecasting, None)
        series = [Tails.of([[0, 0, 0, value], [0, 0, 0, -value]], 4) for value in range(40)]
        plans = [naive.task.plan(None, one, ForecastOptions(1)) for one in series]
        found, _ = await naive.run(naive.task.forecast(plans), soon())
        assert client.count("longdoc_documents_total", model="naive") == 40
    assert [one.values.tolist() for one in found] == [[[value, -value]] for value in range(40)]


@pytest.mark.parametrize(("size", "computed"), [(1_000_000, 2), (0, 4)])
async def test_texts_are_computed_once_if_there_is_a_cache(size: int, computed: int) -> None:
    model = matcher()
    pair = (LocatedText("a", b"++"), LocatedText("b", b"+-"))
    async with serving(model, settings=Settings(max_cache_bytes=size)) as client:
        twins = client.engine.models.choose(Matching, None)
        for _ in range(2):
            (scored,), _ = await twins.run(twins.task.score([pair], "windows", twins.cache), soon())
            assert round(scored.score, 6) == 0.75
        assert client.count("longdoc_encoding_cache_requests_total", model="twins", result="hit") == 4 - computed
        assert client.count("longdoc_documents_total", model="twins") == 4
    assert sum(backend_of(model).batches) == computed
    assert len(head_of(model).batches) == 2


async def test_documents_are_ranked_by_their_score_with_the_query() -> None:
    async with serving(matcher()) as client:
        twins = client.engine.models.choose(Matching, None)
        documents = [LocatedText(str(number), document) for number, document in enumerate((b"--", b"++", b"+."))]
        ranking, _ = await twins.run(twins.task.rank(LocatedText("query", b"++"), documents, "windows"), soon())
    assert [round(found, 6) for found in ranking.scores] == [0.5, 0.833333, 0.75]
    assert (ranking.query.bytes_total, [document.bytes_total for document in ranking.documents]) == (2, [2, 2, 2])
