"""One request as a route sees it."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from artifact.errors import InvalidInput
from service.engine.served import ServedClassifier
from service.settings import Settings
from service.tasks.timing import Timing
from service.wire import departure
from service.wire.call import TIMEOUT, Call, named
from tests.support.calls import call, receive_of
from tests.support.models import classifier

TIMING = Timing(decode=0.5, queue=1.0, compute=2.0)


@pytest.fixture
def asked() -> Iterator[Call]:
    """A request to an engine with a classifier."""
    made = call(models=[classifier(version=3)], receive=receive_of(b"body", leaves=False))
    yield made
    made.engine.close()


def model_of(asked: Call) -> ServedClassifier:
    return asked.models.classifier(None)


def sample(asked: Call, name: str, **labels: str) -> float | None:
    return asked.metrics.registry.get_sample_value(name, {"model": "mood", **labels})


async def test_request_is_shown() -> None:
    shown = call(b"body", headers={"x-a": "1"}, path_params={"name": "b"})
    assert (shown.path, shown.path_params) == ("/asked", {"name": "b"})
    assert (shown.header("x-a"), shown.header("x-b")) == ("1", None)
    assert await shown.request.body() == b"body"


@pytest.mark.parametrize(
    ("header", "seconds"), [(None, 30.0), ("1", 0.001), (" 500 ", 0.5), ("30001", 30.0), ("999999999", 30.0)]
)
async def test_deadline_is_the_earlier_of_the_client_and_the_server(header: str | None, seconds: float) -> None:
    headers = {} if header is None else {TIMEOUT: header}
    before = asyncio.get_running_loop().time()
    shown = call(headers=headers, settings=Settings(deadline_s=30))
    deadline = shown.deadline
    assert before + seconds <= deadline <= asyncio.get_running_loop().time() + seconds
    assert shown.deadline == deadline


@pytest.mark.parametrize("header", ["0", "000", "-1", "1.5", "", "x", "1000000000", "²"])
async def test_wrong_deadline_is_named(header: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        _ = call(headers={TIMEOUT: header}).deadline
    assert caught.value.errors == [("x-request-timeout-ms", "must be a positive number of milliseconds")]


async def test_answer_names_the_model_before_the_outcome(asked: Call) -> None:
    async def work() -> tuple[int, Timing]:
        assert sample(asked, "longdoc_requests_in_flight") == 1
        return 7, TIMING

    response = await asked.answer(model_of(asked), work(), lambda outcome: {"outcome": outcome})
    assert json.loads(bytes(response.body)) == {"model": "mood", "version": 3, "outcome": 7}
    assert named(model_of(asked)) == {"model": "mood", "version": 3}
    assert sample(asked, "longdoc_requests_in_flight") == 0


async def test_stages_are_recorded(asked: Call) -> None:
    async def work() -> tuple[None, Timing]:
        return None, TIMING

    await asked.answer(model_of(asked), work(), lambda _: {})
    assert asked.server_timing == {"queue": 1.0, "compute": 2.0}
    assert asked.work is not None
    assert (asked.work.manifest.name, asked.work.timing, asked.work.started) == ("mood", TIMING, 0.0)
    assert asked.work.started < asked.work.computed <= asked.work.finished
    for stage, seconds in (("decode", 0.5), ("queue", 1.0), ("compute", 2.0)):
        assert sample(asked, f"longdoc_request_{stage}_seconds_sum") == seconds
    assert sample(asked, "longdoc_request_encode_seconds_sum") == asked.work.finished - asked.work.computed
    total = sample(asked, "longdoc_request_duration_seconds_sum", task="text-classification")
    assert total == asked.work.finished - asked.work.started


async def test_work_that_fails_is_recorded_nowhere(asked: Call) -> None:
    async def work() -> tuple[None, Timing]:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await asked.answer(model_of(asked), work(), lambda _: {})
    assert asked.work is None
    assert sample(asked, "longdoc_request_queue_seconds_count") == 0
    assert sample(asked, "longdoc_requests_in_flight") == 0


async def test_work_ends_when_the_client_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(departure, "WATCH_AFTER_S", 0)
    left = call(models=[classifier()], receive=receive_of(b""))
    with pytest.raises(ClientDisconnect):
        await left.run(model_of(left), work())
    assert sample(left, "longdoc_requests_in_flight") == 0
    left.engine.close()
