"""The engine: models served, replaced, drained and crashed."""

import asyncio
import logging
from pathlib import Path

import numpy as np
import pytest

from artifact.errors import BadExport, InvalidInput
from artifact.loading import LoadedModel
from artifact.tasks.classification import Classification, ClassifierManifest
from artifact.tasks.forecasting import Forecasting
from artifact.tasks.matching import Matching
from service.engine.engine import Engine
from service.engine.served import AnyModel
from service.errors import NotReady, Overloaded, ShuttingDown
from service.metrics import Metrics
from service.settings import Settings
from service.statistics import Duration
from tests.support.models import backend_of, classifier, forecaster, matcher
from tests.support.waiting import PATIENCE_S

TASK = "text-classification"


class Running:
    """An engine and its metrics, closed at the end of the block."""

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


def ask(model: AnyModel, row: bytes = b"+") -> asyncio.Task[list[float]]:
    """Start computing one row; the task returns its outputs."""

    async def infer() -> list[float]:
        outcome = await model.batcher.infer([row], asyncio.get_running_loop().time() + PATIENCE_S)
        return [round(float(number), 6) for number in outcome.outputs[0].ravel()]

    return asyncio.create_task(infer())


async def turn() -> None:
    """Let the ready tasks run."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_each_model_is_served_for_its_task() -> None:
    async with Running(classifier(), matcher(), forecaster()) as running:
        models = running.engine.models
        assert {name: type(model.task) for name, model in models.items()} == {
            "mood": Classification,
            "twins": Matching,
            "naive": Forecasting,
        }
        assert await ask(models["mood"], b"+") == [0, 0.693147]
        assert await ask(models["twins"], b"++-") == [2, 1]


async def test_model_is_listed_in_the_metrics() -> None:
    async with Running(classifier(version=3)) as running:
        labels = {"version": "3", "task": TASK, "format": "onnx", "device": "cpu", "precision": "float32"}
        assert running.sample("longdoc_model_info", model="mood", sha256="0" * 64, **labels) == 1
        assert running.sample("longdoc_model_load_seconds", model="mood") == 0.5
        assert running.sample("longdoc_model_ready", model="mood") == 1


@pytest.mark.usefixtures("one_slot")
async def test_new_version_is_served_and_running_requests_finish_with_the_old_one() -> None:
    old, new = classifier(version=1), classifier(version=2)
    async with Running(old) as running:
        engine = running.engine
        backend_of(old).gate.clear()
        begun = ask(engine.models["mood"])
        await turn()
        engine.put(new)
        assert engine.remove("mood", 1).manifest.version == 1
        assert [model.manifest.version for model in engine.models.served] == [2]
        engine.release_removed()
        assert engine.is_computing
        backend_of(old).gate.set()
        assert await begun == [0, 0.693147]
        assert await ask(engine.models["mood"]) == [0, 0.693147]
        assert (backend_of(old).batches, backend_of(new).batches) == ([1], [1])


@pytest.mark.usefixtures("one_slot")
async def test_each_version_has_its_own_queue() -> None:
    old, new = classifier(version=1), classifier(version=2)
    async with Running(old, settings=Settings(max_queue_rows=1)) as running:
        engine = running.engine
        engine.put(new)
        first, second = engine.models.named("mood@1"), engine.models.named("mood@2")
        assert engine.models["mood"] is second
        backend_of(old).gate.clear()
        backend_of(new).gate.clear()
        waiting = [ask(model) for model in (first, second) for _ in range(2)]  # one is computed and one waits for each
        await turn()
        assert (first.batcher.waiting_rows, second.batcher.waiting_rows) == (1, 1)
        assert running.sample("longdoc_queue_depth", model="mood") == 2
        for backend in map(backend_of, (old, new)):
            backend.gate.set()
        await asyncio.gather(*waiting)
        assert (sum(backend_of(old).batches), sum(backend_of(new).batches)) == (2, 2)


async def test_each_version_of_a_matcher_has_its_own_cache() -> None:
    async with Running(matcher(version=1), matcher(version=2)) as running:
        old, new = running.engine.models.choose(Matching, "twins@1"), running.engine.models.choose(Matching, "twins@2")
        assert old.cache is not None
        assert new.cache is not None
        old.cache.put(b"key", np.zeros(2, np.float32))
        assert (len(old.cache.find([b"key"])), len(new.cache.find([b"key"]))) == (1, 0)
        assert running.sample("longdoc_encoding_cache_bytes", model="twins") == old.cache.size > 0


async def test_readiness_and_drain_cover_every_version() -> None:
    model = classifier(version=1)
    async with Running(model, classifier(version=2)) as running:
        engine = running.engine
        backend_of(model).gate.clear()
        begun = ask(engine.models.named("mood@1"))
        await turn()
        draining = asyncio.create_task(engine.drain())
        await turn()
        assert (draining.done(), engine.is_computing) == (False, True)
        backend_of(model).gate.set()
        await asyncio.wait_for(draining, PATIENCE_S)
        assert await begun == [0, 0.693147]
    async with Running(classifier(version=1), classifier(version=2)) as running:
        assert running.engine.is_ready
        running.engine.models.named("mood@1").batcher.close()
        assert not running.engine.is_ready
        assert running.sample("longdoc_model_ready", model="mood") == 0


async def test_request_is_admitted_while_any_version_of_its_task_can_accept_it() -> None:
    """The version is not known before the body has been read."""
    async with Running(classifier(version=1), classifier(version=2)) as running:
        models = running.engine.models
        models.named("mood@2").batcher.close()
        assert running.engine.rejection([TASK], 10) is None
        models.named("mood@1").batcher.close()
        assert isinstance(running.engine.rejection([TASK], 10), ShuttingDown)


async def test_removed_default_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    models = [classifier(version=1), classifier(version=2), classifier("other")]
    async with Running(*models, settings=Settings(default_classifier="mood@1")) as running:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            running.engine.remove("mood", 2)
            assert caplog.messages == []
            running.engine.remove("mood", 1)
            assert caplog.messages == [
                "text-classification: requests without a model go to other (it was the only model of its task)"
            ]


@pytest.mark.parametrize("at_start", [True, False])
async def test_defaults_of_the_file_that_are_not_served_are_told(
    caplog: pytest.LogCaptureFixture, *, at_start: bool
) -> None:
    """Once each, with the models that are."""
    defaults: dict[str, str] = {"text-classification": "moood", "text-matching": "twins", "forecasting": "naive"}
    settings = Settings(exports=Path("somewhere"))
    engine = Engine([classifier(), matcher()], settings, Metrics(), defaults if at_start else {})
    if not at_start:
        engine.use_defaults(defaults)
        engine.use_defaults(dict(defaults))
    engine.close()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "somewhere/defaults.json: text-classification: there is no model 'moood' for this task; there are: mood",
        "somewhere/defaults.json: forecasting: there is no model 'naive' for this task; there are: none",
    ]


async def test_defaults_that_the_settings_do_not_select_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    defaults: dict[str, str] = {"text-classification": "mood", "text-matching": "none", "forecasting": "naive@2"}
    Engine([classifier()], Settings(models=("mood", "none")), Metrics(), defaults).close()
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "there is no model 'none' for this task" in told


async def test_defaults_of_the_file_may_change(caplog: pytest.LogCaptureFixture) -> None:
    first: dict[str, str] = {"text-classification": "mood"}
    engine = Engine([classifier(), classifier("other")], Settings(), Metrics(), first)
    caplog.set_level(logging.INFO)
    caplog.clear()
    engine.use_defaults({"text-classification": "other"})
    assert engine.models.choose(Classification, None).manifest.name == "other"
    engine.use_defaults({})
    with pytest.raises(InvalidInput, match="name a model"):
        engine.models.choose(Classification, None)
    engine.use_defaults(first)
    assert engine.models.choose(Classification, None).manifest.name == "mood"
    engine.close()
    assert caplog.messages == [
        "text-classification: requests without a model go to other (defaults.json)",
        "text-classification: requests must name a model (mood, other), because neither default_classifier nor "
        "defaults.json names a served one",
        "text-classification: requests without a model go to mood (defaults.json)",
    ]


async def test_version_of_another_task_is_refused() -> None:
    async with Running(classifier()) as running:
        with pytest.raises(
            BadExport, match="mood/2 is for forecasting; mood is served for text-classification"
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
            "text-classification: requests must name a model (mood, other), because neither default_classifier nor "
            "defaults.json names a served one"
        ]
        caplog.clear()
        async with Running(*models, settings=Settings(default_classifier="mood")) as running:
            running.engine.put(classifier("third"))
    assert caplog.records == []


async def test_draining_engine_is_not_ready_but_accepts_requests() -> None:
    async with Running(classifier()) as running:
        engine = running.engine
        assert (engine.is_ready, engine.is_draining) == (True, False)
        engine.begin_drain()
        assert (engine.is_ready, engine.is_draining) == (False, True)
        assert await ask(engine.models["mood"]) == [0, 0.693147]


async def test_drain_waits_for_accepted_requests_and_rejects_new_ones() -> None:
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
        assert isinstance(engine.rejection([TASK], 10), ShuttingDown)
        assert (draining.done(), engine.is_computing) == (False, True)
        backend_of(model).gate.set()
        await asyncio.wait_for(draining, PATIENCE_S)
        assert await begun == [0, 0.693147]
        assert not engine.is_computing


async def test_model_is_served_while_it_accepts_requests_and_the_server_runs() -> None:
    async with Running(classifier(), classifier("other")) as running:
        engine = running.engine
        mood, other = engine.models["mood"], engine.models["other"]
        mood.batcher.close()
        assert (engine.is_serving(mood), engine.is_serving(other)) == (False, True)
        engine.begin_drain()
        assert not engine.is_serving(other)


async def test_backend_crash_ends_readiness() -> None:
    model = classifier()
    async with Running(model, forecaster()) as running:
        engine = running.engine
        backend_of(model).error = SystemExit()
        with pytest.raises(NotReady, match="the server must be restarted"):
            await ask(engine.models["mood"])
        assert engine.crashed.is_set()
        assert not engine.is_ready
        assert running.sample("longdoc_model_ready", model="mood") == 0
        assert running.sample("longdoc_model_ready", model="naive") == 1


@pytest.mark.usefixtures("one_slot")
async def test_request_is_rejected_unread_only_if_no_model_of_its_task_can_accept_it() -> None:
    full, free = classifier(), classifier("other")
    async with Running(full, free, settings=Settings(max_queue_rows=1)) as running:
        engine = running.engine
        backend_of(full).gate.clear()
        waiting = [ask(engine.models["mood"]), ask(engine.models["mood"])]  # one is computed, one waits
        await turn()
        assert engine.rejection([TASK], 10) is None
        assert engine.rejection(["forecasting"], 10) is None
        engine.models["other"].batcher.close()
        assert isinstance(engine.rejection([TASK], 10), Overloaded)
        assert running.sample("longdoc_requests_rejected_total", model="mood", reason="overloaded") == 1
        failures = {name: model.metrics.statistics.fail for name, model in engine.models.items()}
        assert failures == {"mood": Duration(1, 0.0), "other": Duration()}
        backend_of(full).gate.set()
        await asyncio.gather(*waiting)


async def test_model_that_the_request_asks_for_decides_if_it_is_known() -> None:
    async with Running(classifier(), classifier("other")) as running:
        engine, models = running.engine, running.engine.models
        models["mood"].batcher.close()
        assert isinstance(engine.rejection([TASK], 10, lambda: models["mood"]), ShuttingDown)
        assert engine.rejection([TASK], 10, lambda: models["other"]) is None
        failures = {name: model.metrics.statistics.fail for name, model in models.items()}
        assert failures == {"mood": Duration(1, 0.0), "other": Duration()}


async def test_model_is_asked_for_only_if_the_models_differ() -> None:
    def asked() -> AnyModel | None:
        raise AssertionError("both models accept or reject the request")

    async with Running(classifier(), classifier("other")) as running:
        assert running.engine.rejection([TASK], 10, asked) is None
        for model in running.engine.models.values():
            model.batcher.close()
        assert isinstance(running.engine.rejection([TASK], 10, asked), ShuttingDown)


async def test_request_rejected_unread_counts_for_the_default_model() -> None:
    settings = Settings(default_classifier="other")
    async with Running(classifier(), classifier("other"), settings=settings) as running:
        for model in running.engine.models.values():
            model.batcher.close()
        assert isinstance(running.engine.rejection([TASK], 10), ShuttingDown)
        failures = {name: model.metrics.statistics.fail for name, model in running.engine.models.items()}
        assert failures == {"mood": Duration(), "other": Duration(1, 0.0)}
