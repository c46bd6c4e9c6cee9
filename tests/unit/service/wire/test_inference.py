"""Requests that run a model: response, metrics, cancellation."""

import json
from collections.abc import Callable, Iterator

import pytest

from artifact.tasks.base import Answer, Computation
from artifact.tasks.classification import Classification
from service.engine.served import ServedModel, Timing
from service.statistics import Duration
from service.wire.context import RequestContext
from service.wire.inference import model_fields, respond
from tests.support.contexts import context, receive_of
from tests.support.models import classifier

TIMING = Timing(decode=0.5, queue=1.0, compute=2.0)


@pytest.fixture
def asked() -> Iterator[RequestContext]:
    """A request to an engine with a classifier."""
    made = context(models=[classifier(version=3)], receive=receive_of(b"body", leaves=False))
    yield made
    made.runtime.close()


def model_of(asked: RequestContext) -> ServedModel[Classification]:
    return asked.runtime.models.choose(Classification, None)


def sample(asked: RequestContext, name: str, **labels: str) -> float | None:
    return asked.runtime.metrics.registry.get_sample_value(name, {"model": "mood", **labels})


def computed(outcome: int = 0, check: Callable[[], object] = lambda: None) -> Computation[int]:
    """A computation without steps."""
    check()
    yield from ()
    return Answer(outcome, [])


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let computations have the stages of TIMING."""

    async def run_timed(*_: object, **__: object) -> tuple[int, Timing]:
        return 0, TIMING

    monkeypatch.setattr(ServedModel, "run", run_timed)


async def test_response_has_the_model_before_the_results(asked: RequestContext) -> None:
    def is_in_flight() -> None:
        assert sample(asked, "longdoc_requests_in_flight") == 1

    response = await respond(asked, model_of(asked), computed(7, is_in_flight), lambda outcome: {"outcome": outcome})
    assert json.loads(bytes(response.body)) == {"model": "mood", "version": 3, "outcome": 7}
    assert model_fields(model_of(asked)) == {"model": "mood", "version": 3}
    assert sample(asked, "longdoc_requests_in_flight") == 0


@pytest.mark.usefixtures("timed")
async def test_stages_are_recorded(asked: RequestContext) -> None:
    await respond(asked, model_of(asked), computed(), lambda _: {})
    assert asked.server_timing == {"queue": 1.0, "compute": 2.0}
    inference = asked.inference
    assert inference is not None
    assert (inference.manifest.name, inference.timing, asked.started) == ("mood", TIMING, 0.0)
    assert asked.started < asked.computed <= inference.finished
    for stage, seconds in (("decode", 0.5), ("queue", 1.0), ("compute", 2.0)):
        assert sample(asked, f"longdoc_request_{stage}_seconds_sum") == seconds
    assert sample(asked, "longdoc_request_encode_seconds_sum") == inference.finished - asked.computed
    total = sample(asked, "longdoc_request_duration_seconds_sum", task="text-classification")
    assert total == inference.finished - asked.started
    statistics = model_of(asked).metrics.statistics
    assert (statistics.success.count, statistics.success.seconds) == (1, total)
    assert (statistics.decode, statistics.queue, statistics.compute) == (
        Duration(1, 0.5),
        Duration(1, 1.0),
        Duration(1, 2.0),
    )
    assert statistics.fail == Duration()


async def test_duration_begins_when_the_client_has_sent_the_body(asked: RequestContext) -> None:
    assert await asked.body.read() == b"body"
    await respond(asked, model_of(asked), computed(), lambda _: {})
    assert asked.inference is not None
    assert asked.body.read_at is not None
    total = sample(asked, "longdoc_request_duration_seconds_sum", task="text-classification")
    assert total == asked.inference.finished - asked.body.read_at


async def test_failed_work_is_recorded_only_as_a_failure(asked: RequestContext) -> None:
    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await respond(asked, model_of(asked), computed(check=fail), lambda _: {})
    assert asked.inference is None
    statistics = model_of(asked).metrics.statistics
    assert (statistics.success.count, statistics.fail.count) == (0, 1)
    assert statistics.fail.seconds > 0
    assert sample(asked, "longdoc_request_queue_seconds_count") == 0
    assert sample(asked, "longdoc_requests_in_flight") == 0
