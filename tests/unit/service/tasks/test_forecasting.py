"""Forecasting series with the batcher."""

import asyncio

import pytest
from service.tasks.forecasting import forecast

from artifact.errors import InvalidInput
from artifact.series import Tails
from service.settings import Settings
from tests.support.models import backend_of, forecaster, serving
from tests.support.waiting import PATIENCE_S


def soon() -> float:
    return asyncio.get_running_loop().time() + PATIENCE_S


async def test_series_is_forecast_with_bands() -> None:
    async with serving(forecaster()) as client:
        naive = client.engine.models.forecaster(None)
        series = Tails.of([[9, 1, 2, 3, 4], [9, 5, 6, 7, 8]], 4)
        (found,), timing = await forecast(naive, [series], horizon=2, levels=[0.1, 0.9], deadline=soon())
        assert client.count("longdoc_documents_total", model="naive") == 1
    assert found.values.tolist() == [[4, 8], [4, 8]]
    assert {level: values.tolist() for level, values in found.quantiles.items()} == {
        0.1: [[2, 6], [2, 6]],
        0.9: [[8, 12], [8, 12]],
    }
    assert (found.window.observations_total, found.window.observations_used, found.quantiles_reliable) == (10, 8, True)
    assert timing.compute > 0


async def test_error_names_the_wrong_channel_and_nothing_is_computed() -> None:
    model = forecaster()
    async with serving(model) as client:
        naive = client.engine.models.forecaster(None)
        wrong = Tails.of([[1, 2, 3, 4], [None, None, 1, 1e12]], 4)
        with pytest.raises(InvalidInput) as caught:
            await forecast(naive, [wrong], horizon=1, levels=[], deadline=soon())
        assert client.count("longdoc_documents_total", model="naive") == 0
    assert [place for place, _ in caught.value.errors] == ["series.heat.3"]
    assert backend_of(model).batches == []


async def test_series_of_one_call_are_one_request_of_the_batcher() -> None:
    """More rows than the queue limit are accepted, because the queue is empty."""
    model = forecaster()
    async with serving(model, settings=Settings(max_queue_rows=3)) as client:
        naive = client.engine.models.forecaster(None)
        series = [Tails.of([[0, 0, 0, value], [0, 0, 0, -value]], 4) for value in range(40)]
        found, _ = await forecast(naive, series, horizon=1, levels=[], deadline=soon())
        assert client.count("longdoc_documents_total", model="naive") == 40
    assert [answer.values.tolist() for answer in found] == [[[value, -value]] for value in range(40)]


async def test_location_of_an_error_is_renamed() -> None:
    async with serving(forecaster()) as client:
        naive = client.engine.models.forecaster(None)
        series = [Tails.of([[1, 2, 3, 4]] * 2, 4), Tails.of([[1, 2, 3, 4], [1]], 4)]
        with pytest.raises(InvalidInput, match=r"^2nd.series: all channels must be equally long, not 1, 4 values"):
            await forecast(
                naive, series, horizon=1, levels=[], deadline=soon(), rename=lambda at, place: f"{at + 1}nd.{place}"
            )
