"""One request as a route sees it."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from artifact.errors import InvalidInput
from service.batching.admission import ClientLimit
from service.engine.served import ServedClassifier
from service.settings import Settings
from service.statistics import Duration
from service.tasks.timing import Timing
from service.wire import disconnect
from service.wire.call import TIMEOUT_HEADER, Call, model_fields
from tests.support.calls import call, receive_of
from tests.support.models import classifier

TIMING = Timing(decode=0.5, queue=1.0, compute=2.0)


@pytest.fixture
def classify_call() -> Iterator[Call]:
    """A request to an engine with a classifier."""
    made = call(models=[classifier(version=3)], receive=receive_of(b"body", leaves=False))
    yield made
    made.engine.close()


def model_of(classify_call: Call) -> ServedClassifier:
    return classify_call.models.classifier(None)


def sample(classify_call: Call, name: str, **labels: str) -> float | None:
    return classify_call.metrics.registry.get_sample_value(name, {"model": "mood", **labels})


async def test_call_has_the_fields_of_the_request() -> None:
    shown = call(b"body", headers={"x-a": "1"}, path_params={"name": "b"})
    assert (shown.path, shown.path_params) == ("/asked", {"name": "b"})
    assert (shown.header("x-a"), shown.header("x-b")) == ("1", None)
    assert await shown.body.read() == b"body"


@pytest.mark.parametrize(
    ("header", "seconds"), [(None, 30.0), ("1", 0.001), (" 500 ", 0.5), ("30001", 30.0), ("999999999", 30.0)]
)
async def test_deadline_is_the_earlier_of_client_and_server(header: str | None, seconds: float) -> None:
    headers = {} if header is None else {TIMEOUT_HEADER: header}
    before = asyncio.get_running_loop().time()
    shown = call(headers=headers, settings=Settings(deadline_s=30))
    deadline = shown.deadline
    assert before + seconds <= deadline <= asyncio.get_running_loop().time() + seconds
    assert shown.deadline == deadline
    assert isinstance(deadline, ClientLimit) == (seconds < 30)


@pytest.mark.parametrize("header", ["0", "000", "-1", "1.5", "", "x", "1000000000", "²"])
async def test_error_names_the_wrong_deadline(header: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        _ = call(headers={TIMEOUT_HEADER: header}).deadline
    assert caught.value.errors == [("x-request-timeout-ms", "must be a positive number of milliseconds")]


async def test_response_has_the_model_before_the_results(classify_call: Call) -> None:
    async def work() -> tuple[int, Timing]:
        assert sample(classify_call, "longdoc_requests_in_flight") == 1
        return 7, TIMING

    response = await classify_call.answer(model_of(classify_call), work(), lambda outcome: {"outcome": outcome})
    assert json.loads(bytes(response.body)) == {"model": "mood", "version": 3, "outcome": 7}
    assert model_fields(model_of(classify_call)) == {"model": "mood", "version": 3}
    assert sample(classify_call, "longdoc_requests_in_flight") == 0


async def test_stages_are_recorded(classify_call: Call) -> None:
    async def work() -> tuple[None, Timing]:
        return None, TIMING

    await classify_call.answer(model_of(classify_call), work(), lambda _: {})
    assert classify_call.server_timing == {"queue": 1.0, "compute": 2.0}
    assert classify_call.inference is not None
    assert (classify_call.inference.manifest.name, classify_call.inference.timing, classify_call.inference.started) == (
        "mood",
        TIMING,
        0.0,
    )
    assert classify_call.inference.started < classify_call.inference.computed <= classify_call.inference.finished
    for stage, seconds in (("decode", 0.5), ("queue", 1.0), ("compute", 2.0)):
        assert sample(classify_call, f"longdoc_request_{stage}_seconds_sum") == seconds
    assert (
        sample(classify_call, "longdoc_request_encode_seconds_sum")
        == classify_call.inference.finished - classify_call.inference.computed
    )
    total = sample(classify_call, "longdoc_request_duration_seconds_sum", task="text-classification")
    assert total == classify_call.inference.finished - classify_call.inference.started
    statistics = model_of(classify_call).metrics.statistics
    assert (statistics.success.count, statistics.success.seconds) == (1, total)
    assert (statistics.decode, statistics.queue, statistics.compute) == (
        Duration(1, 0.5),
        Duration(1, 1.0),
        Duration(1, 2.0),
    )
    assert statistics.fail == Duration()


async def test_duration_begins_when_the_client_has_sent_the_body(classify_call: Call) -> None:
    async def work() -> tuple[None, Timing]:
        return None, TIMING

    assert await classify_call.body.read() == b"body"
    await classify_call.answer(model_of(classify_call), work(), lambda _: {})
    assert classify_call.inference is not None
    assert classify_call.body.read_at is not None
    total = sample(classify_call, "longdoc_request_duration_seconds_sum", task="text-classification")
    assert total == classify_call.inference.finished - classify_call.body.read_at


async def test_model_is_ready_while_it_accepts_requests_and_the_server_runs() -> None:
    classify_call = call(models=[classifier(), classifier("other")])
    mood, other = (classify_call.models.named(name) for name in ("mood", "other"))
    mood.batcher.close()
    assert (classify_call.is_ready(mood), classify_call.is_ready(other)) == (False, True)
    classify_call.engine.begin_drain()
    assert not classify_call.is_ready(other)
    classify_call.engine.close()


async def test_failed_work_is_recorded_only_as_a_failure(classify_call: Call) -> None:
    async def work() -> tuple[None, Timing]:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await classify_call.answer(model_of(classify_call), work(), lambda _: {})
    assert classify_call.inference is None
    statistics = model_of(classify_call).metrics.statistics
    assert (statistics.success.count, statistics.fail.count) == (0, 1)
    assert statistics.fail.seconds > 0
    assert sample(classify_call, "longdoc_request_queue_seconds_count") == 0
    assert sample(classify_call, "longdoc_requests_in_flight") == 0


async def test_disconnect_cancels_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(disconnect, "WATCH_AFTER_S", 0)
    left = call(models=[classifier()], receive=receive_of(b""))
    with pytest.raises(ClientDisconnect):
        await left.run(model_of(left), work())
    assert sample(left, "longdoc_requests_in_flight") == 0
    assert model_of(left).metrics.statistics.fail.count == 1
    left.engine.close()
