"""Concurrent requests get the same answers as single ones: every task and protocol, several workers, TorchScript."""

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.offline import Columns, Offline, OfflineForecaster, OfflineMatcher, agree, documents, same_score
from tests.support.server import Server
from tests.support.waiting import wait_until

EACH = 6
"""Number of different requests of each kind."""
ROUNDS = 3
FLAGS = {"one process": (), "two workers": ("--workers", "2"), "torchscript": ("--backend", "torchscript")}


@dataclass(frozen=True)
class Expectation:
    """A request, and a check whether a response equals the answer to that request alone."""

    path: str
    body: dict[str, Any]
    is_right: Callable[[Any], bool]


@pytest.fixture(scope="module", params=FLAGS)
def several(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of each kind; no deadline can pass, however slow the machine is."""
    flags = ("--drain-delay-s", "0", "--default-forecaster", "ettm2", "--deadline-s", "3600")
    with Server(tmp_path_factory.mktemp("several") / "log", *flags, *FLAGS[request.param]) as server:
        wait_until(lambda: server.text().count("listening on") == (2 if request.param == "two workers" else 1))
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.text()


@pytest.fixture(scope="module")
def expectations(offline: Offline, matcher: OfflineMatcher, forecaster: OfflineForecaster) -> list[Expectation]:
    """Requests of every kind with the answers computed offline."""
    found = []
    texts = [document.decode() for document in documents(2 * EACH, 9000)]
    for number in range(EACH):
        text, other = texts[2 * number : 2 * number + 2]
        found += [
            _labels(offline, text),
            _classified(offline, text),
            _scored(matcher, text, other),
            _ranked(matcher, other, texts[: 2 + number]),
            *_forecast(forecaster, forecaster.series(forecaster.manifest.context_length + 5 * number, number)),
        ]
    return found


def _labels(offline: Offline, text: str) -> Expectation:
    expected = pytest.approx(offline(text.encode()), abs=1e-5)
    return Expectation(
        "/predict", {"inputs": text}, lambda answer: {found["label"]: found["score"] for found in answer} == expected
    )


def _classified(offline: Offline, text: str) -> Expectation:
    expected = offline(text.encode())
    return Expectation("/v1/classify", {"inputs": text}, lambda answer: agree(answer["results"][0], expected))


def _scored(matcher: OfflineMatcher, a: str, b: str) -> Expectation:
    expected = matcher(a, b)
    return Expectation("/predict", {"inputs": [a, b]}, lambda answer: same_score(answer[0]["score"], expected))


def _ranked(matcher: OfflineMatcher, query: str, texts: Sequence[str]) -> Expectation:
    expected = [matcher(query, text) for text in texts]

    def is_right(answer: Any) -> bool:
        return all(same_score(found["score"], expected[found["index"]]) for found in answer)

    return Expectation("/rerank", {"query": query, "texts": texts}, is_right)


def _forecast(forecaster: OfflineForecaster, series: Columns) -> Iterator[Expectation]:
    """Requests of KServe's route and of the native route."""
    expected, horizon = forecaster(series), forecaster.manifest.horizon
    given = {"type": "multivariate_time_series", "name": "x", "series": series, "frequency": "15min"}
    yield Expectation(
        "/v1/timeseries/forecast",
        {"model": "ettm2", "inputs": [given], "options": {"horizon": horizon}},
        lambda answer: forecaster.agree(answer["outputs"][0]["content"][0]["mean_forecast"], expected),
    )
    yield Expectation("/v1/forecast", {"series": series}, lambda answer: forecaster.agree(answer["forecast"], expected))


def test_concurrent_requests_get_the_answers_of_single_requests(
    several: Server, expectations: list[Expectation]
) -> None:
    order = expectations * ROUNDS
    random.Random(5).shuffle(order)

    async def check(client: httpx.AsyncClient, request: Expectation) -> None:
        response = await client.post(request.path, json=request.body)
        assert response.status_code == 200, response.text
        assert request.is_right(json.loads(response.text)), (request.path, response.text)

    async def scenario() -> None:
        async with several.async_client() as client:
            await asyncio.gather(*(check(client, request) for request in order))

    asyncio.run(scenario())
