"""Requests in flight of a model; pairs of vectors scored by the head of a matcher."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from artifact.errors import InferenceFailed, LongdocError, NonFiniteOutput
from artifact.loading import LoadedModel
from service.batching.admission import limited
from service.engine.engine import Engine
from service.engine.served import ServedMatcher
from service.errors import DeadlineExceeded, ShuttingDown
from service.metrics import Metrics
from service.settings import Settings
from tests.support.models import head_of, matcher
from tests.support.waiting import PATIENCE_S

A = np.array([[2, 0], [0, 1]], np.float32)
B = np.array([[1, 1], [1, 0]], np.float32)
"""Pairs whose dot products are 2 and 0."""


@asynccontextmanager
async def served(model: LoadedModel, metrics: Metrics | None = None) -> AsyncIterator[tuple[ServedMatcher, Engine]]:
    engine = Engine([model], Settings(), metrics or Metrics())
    try:
        yield engine.models.matcher(None), engine
    finally:
        head_of(model).gate.set()
        engine.close()


def soon() -> float:
    return asyncio.get_running_loop().time() + PATIENCE_S


async def test_pairs_are_scored() -> None:
    async with served(matcher()) as (model, _):
        assert await model.score(A, B, soon()) == pytest.approx([0.75, 0.5], abs=1e-6)


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
            await twins.score(vectors, B, soon())
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
            await twins.score(A, B, deadline)
    labels = {"model": "twins", "reason": reason}
    assert metrics.registry.get_sample_value("longdoc_requests_rejected_total", labels) == 1


async def test_closed_engine_scores_nothing() -> None:
    async with served(matcher()) as (model, engine):
        engine.close()
        with pytest.raises(ShuttingDown):
            await model.score(A, B, soon())


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
