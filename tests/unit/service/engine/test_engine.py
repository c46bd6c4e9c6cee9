"""The engine: models served, replaced, drained and crashed."""

import asyncio
import logging

import pytest

from artifact.errors import BadExport
from artifact.loading import LoadedModel
from artifact.manifest import ClassifierManifest
from service.engine.engine import Engine
from service.engine.served import ServedClassifier, ServedForecaster, ServedMatcher, ServedModel
from service.errors import NotReady, Overloaded, ShuttingDown
from service.metrics import Metrics
from service.settings import Settings
from tests.support.models import backend_of, classifier, forecaster, matcher
from tests.support.waiting import PATIENCE_S

TASK = "text-classification"


class Running:
    """An engine that ends with a block; its metrics."""

    def __init__(self, *models: LoadedModel, settings: Settings | None = None) -> None:
        self.models = models
        self.settings = settings or Settings()
        self.metrics = Metrics()

    async def __aenter__(self) -> "Running":
        self.engine = Engine(self.models, self.settings, self.metrics)
        return self

    async def __aexit__(self, *_: object) -> None:
        for model in self.models:
            backend_of(model).gate.set()
        self.engine.close()

    def sample(self, name: str, **labels: str) -> float | None:
        self.metrics.sample()
        return self.metrics.registry.get_sample_value(name, labels)


def ask(model: ServedModel, row: bytes = b"+") -> asyncio.Task[list[float]]:
    """Outputs of one row."""

    async def infer() -> list[float]:
        outcome = await model.batcher.infer([row], asyncio.get_running_loop().time() + PATIENCE_S)
        return [round(float(number), 6) for number in outcome.outputs[0].ravel()]

    return asyncio.create_task(infer())


async def turn() -> None:
    """Let the tasks that are ready go on."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_each_model_is_served_for_its_task() -> None:
    async with Running(classifier(), matcher(), forecaster()) as running:
        models = running.engine.models
        assert {name: type(model) for name, model in models.items()} == {
            "mood": ServedClassifier,
            "twins": ServedMatcher,
            "naive": ServedForecaster,
        }
        assert await ask(models["mood"], b"+") == [0, 0.693147]
        assert await ask(models["twins"], b"++-") == [2, 1]


async def test_model_is_announced() -> None:
    async with Running(classifier(version=3)) as running:
        labels = {"version": "3", "task": TASK, "format": "onnx", "device": "cpu", "precision": "float32"}
        assert running.sample("longdoc_model_info", model="mood", sha256="0" * 64, **labels) == 1
        assert running.sample("longdoc_model_load_seconds", model="mood") == 0.5
        assert running.sample("longdoc_model_ready", model="mood") == 1


@pytest.mark.usefixtures("one_slot")
async def test_new_version_is_served_and_requests_that_have_begun_end_with_the_old_one() -> None:
    old, new = classifier(version=1), classifier(version=2)
    async with Running(old) as running:
        engine = running.engine
        backend_of(old).gate.clear()
        begun = ask(engine.models["mood"])
        await turn()
        engine.put(new)
        assert engine.models["mood"].manifest.version == 2
        engine.forget_replaced()
        assert engine.is_computing
        backend_of(old).gate.set()
        assert await begun == [0, 0.693147]
        assert await ask(engine.models["mood"]) == [0, 0.693147]
        assert (backend_of(old).batches, backend_of(new).batches) == ([1], [1])


async def test_version_of_another_task_is_refused() -> None:
    async with Running(classifier()) as running:
        with pytest.raises(
            BadExport, match="mood/2 does forecasting; mood is served for text-classification"
        ) as caught:
            running.engine.put(forecaster("mood", version=2))
        assert caught.value.reason == "task"
        assert isinstance(running.engine.models["mood"].manifest, ClassifierManifest)


async def test_several_models_of_a_task_need_a_name_unless_one_is_the_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    models = [classifier(), classifier("other"), forecaster()]
    with caplog.at_level(logging.WARNING):
        async with Running(*models):
            pass
        assert [record.getMessage() for record in caplog.records] == [
            "text-classification: requests have to name one of mood, other, unless default_classifier or "
            "defaults.json does"
        ]
        caplog.clear()
        async with Running(*models, settings=Settings(default_classifier="mood")) as running:
            running.engine.put(classifier("third"))
    assert caplog.records == []


async def test_readiness_ends_when_the_drain_begins_but_requests_are_taken() -> None:
    async with Running(classifier()) as running:
        engine = running.engine
        assert (engine.is_ready, engine.is_draining) == (True, False)
        engine.begin_drain()
        assert (engine.is_ready, engine.is_draining) == (False, True)
        assert await ask(engine.models["mood"]) == [0, 0.693147]


async def test_drain_waits_for_what_was_accepted_and_takes_no_more() -> None:
    model = classifier()
    async with Running(model) as running:
        engine = running.engine
        backend_of(model).gate.clear()
        begun = ask(engine.models["mood"])
        await turn()
        draining = asyncio.create_task(engine.drain())
        await turn()
        with pytest.raises(ShuttingDown):
            await ask(engine.models["mood"])
        assert isinstance(engine.refusal(TASK, 10, 0), ShuttingDown)
        assert (draining.done(), engine.is_computing) == (False, True)
        backend_of(model).gate.set()
        await asyncio.wait_for(draining, PATIENCE_S)
        assert await begun == [0, 0.693147]
        assert not engine.is_computing


async def test_crash_of_the_backend_ends_readiness() -> None:
    model = classifier()
    async with Running(model, forecaster()) as running:
        engine = running.engine
        backend_of(model).error = SystemExit()
        with pytest.raises(NotReady, match="the server has to be restarted"):
            await ask(engine.models["mood"])
        assert engine.crashed.is_set()
        assert not engine.is_ready
        assert running.sample("longdoc_model_ready", model="mood") == 0
        assert running.sample("longdoc_model_ready", model="naive") == 1


@pytest.mark.usefixtures("one_slot")
async def test_request_is_refused_unread_only_if_no_model_of_its_task_can_take_it() -> None:
    full, free = classifier(), classifier("other")
    async with Running(full, free, settings=Settings(max_queue_rows=1)) as running:
        engine = running.engine
        backend_of(full).gate.clear()
        waiting = [ask(engine.models["mood"]), ask(engine.models["mood"])]  # one computes, one waits
        await turn()
        assert engine.refusal(TASK, 10, 0) is None
        assert engine.refusal("forecasting", 10, 0) is None
        engine.models["other"].batcher.close()
        assert isinstance(engine.refusal(TASK, 10, 0), Overloaded)
        assert running.sample("longdoc_requests_rejected_total", model="mood", reason="overloaded") == 1
        backend_of(full).gate.set()
        await asyncio.gather(*waiting)
