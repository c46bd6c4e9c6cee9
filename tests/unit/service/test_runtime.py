"""What requests share, from the start to the end of a server."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from artifact.errors import BadExport
from artifact.loading import LoadedModel
from artifact.tasks.classification import Classification
from service import runtime as runtimes
from service.metrics import Metrics
from service.runtime import Runtime
from service.settings import Settings
from tests.support.contexts import runtime_with
from tests.support.models import backend_of, classifier
from tests.support.waiting import PATIENCE_S, wait_until_async


async def infer(runtime: Runtime) -> None:
    """Compute one row."""
    batcher = runtime.models["mood"].batcher
    await batcher.infer([b"+"], asyncio.get_running_loop().time() + PATIENCE_S)


def test_models_are_loaded_with_their_defaults_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[object, object]]()

    def load_models(
        settings: Settings, metrics: Metrics, required: Sequence[str] | None
    ) -> tuple[list[LoadedModel], dict[Path, BadExport]]:
        assert isinstance(metrics, Metrics)
        asked.append((settings, required))
        return [classifier(), classifier("other")], {}

    monkeypatch.setattr(runtimes, "load_models", load_models)
    (tmp_path / "defaults.json").write_text('{"text-classification": "other"}')
    settings, metrics = Settings(exports=tmp_path, aliases={"lost": "none"}), Metrics()
    with pytest.raises(BadExport, match="'none', which is not among the exports: mood, other"):
        Runtime.load(settings, metrics)
    asked.clear()
    runtime = Runtime.load(settings, metrics, ["mood"])
    assert asked == [(settings, ["mood"])]
    assert (runtime.settings, runtime.metrics) == (settings, metrics)
    assert list(runtime.models) == ["mood", "other"]
    assert runtime.models.choose(Classification, None).manifest.name == "other"
    runtime.close()


def test_runtime_without_models_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(BadExport):
        Runtime.load(Settings(exports=tmp_path))


async def test_requests_in_flight_are_answered_before_the_end() -> None:
    model = classifier()
    runtime = runtime_with(model)
    backend_of(model).gate.clear()
    async with runtime.running():
        asked = asyncio.create_task(infer(runtime))
        await wait_until_async(lambda: runtime.engine.is_computing)
        asyncio.get_running_loop().call_soon(backend_of(model).gate.set)
    assert asked.done()
    assert not runtime.engine.is_ready


async def test_requests_in_flight_are_no_longer_waited_for_once_the_server_must_stop() -> None:
    model = classifier()
    runtime = runtime_with(model, settings=Settings(drain_timeout_s=PATIENCE_S))
    backend_of(model).gate.clear()
    async with runtime.running():
        asked = asyncio.create_task(infer(runtime))
        await wait_until_async(lambda: runtime.engine.is_computing)
        asyncio.get_running_loop().call_later(0, runtime.must_stop_now.set)
    assert not asked.done()
    backend_of(model).gate.set()
    await asyncio.wait([asked])


@pytest.mark.parametrize("must_stop_now", [False, True])
async def test_requests_in_flight_are_waited_for_until_a_limit_or_not_at_all(
    caplog: pytest.LogCaptureFixture, *, must_stop_now: bool
) -> None:
    model, limit_s = classifier(), PATIENCE_S if must_stop_now else 0.001
    runtime = runtime_with(model, settings=Settings(drain_timeout_s=limit_s))
    backend_of(model).gate.clear()
    with caplog.at_level(logging.ERROR):
        async with runtime.running():
            asked = asyncio.create_task(infer(runtime))
            await wait_until_async(lambda: runtime.engine.is_computing)
            if must_stop_now:
                runtime.must_stop_now.set()
    assert not asked.done()
    assert ("drain_timeout_s = 0.001" in caplog.text) is not must_stop_now
    backend_of(model).gate.set()
    await asyncio.wait([asked])


async def test_everything_is_closed_if_the_block_fails() -> None:
    runtime = runtime_with(classifier())
    with pytest.raises(ValueError, match="outside"):
        async with runtime.running():
            raise ValueError("outside")
    assert not runtime.engine.is_ready


@pytest.mark.parametrize("reload_s", [0, 0.001])
async def test_exports_are_reloaded_while_the_server_runs_if_the_setting_says_so(
    monkeypatch: pytest.MonkeyPatch, reload_s: float
) -> None:
    runtime = runtime_with(classifier(), settings=Settings(reload_s=reload_s))
    began, ended = asyncio.Event(), list[bool]()

    async def run() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    monkeypatch.setattr(runtime.reloader, "run", run)
    async with runtime.running():
        if reload_s:
            await asyncio.wait_for(began.wait(), PATIENCE_S)
        await asyncio.sleep(0)
        assert began.is_set() is bool(reload_s)
    await asyncio.sleep(0)
    assert ended == [True] * bool(reload_s)


@pytest.mark.parametrize("is_shared", [False, True])
async def test_gauges_of_a_worker_are_updated_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_shared: bool
) -> None:
    """Without shared files they are computed at each scrape."""
    metrics, samples = Metrics(tmp_path if is_shared else None), list[int]()
    monkeypatch.setattr(metrics, "sample", lambda: samples.append(1))
    monkeypatch.setattr(runtimes, "SAMPLE_S", 0)
    runtime = runtime_with(metrics=metrics)
    async with runtime.running():
        if is_shared:
            await wait_until_async(lambda: len(samples) > 2)
        await asyncio.sleep(0)
    count = len(samples)
    assert bool(count) is is_shared
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(samples) == count
