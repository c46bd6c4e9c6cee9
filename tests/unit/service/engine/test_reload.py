"""The reloader with a folder of empty exports and backends that return their version."""

import asyncio
import errno
import gc
import json
import logging
import os
import re
import shutil
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import artifact.loading
import service.engine.folder
import service.engine.reload
from artifact.arrays import Array
from artifact.backends.base import Tensors
from artifact.errors import BadExport
from artifact.exports import parse_manifest, version_folder, versions_of
from artifact.loading import FoundVersions, LoadedModel, find_versions
from artifact.manifest import ExportManifest
from artifact.series import Calibration
from artifact.tasks.classification import Classification, ClassifierManifest
from artifact.tasks.forecasting import ForecasterManifest, Forecasting
from service.engine.engine import Engine
from service.engine.folder import LOAD_LIMIT_S, LOAD_TURN_S, SCAN_LIMIT_S
from service.engine.loading import RefusedExport
from service.engine.reload import Reloader, VersionState
from service.engine.selection import Default
from service.errors import ControlRefused, DeadlineExceeded, ModelNotFound, NotReady, Overloaded
from service.metrics import Metrics
from service.settings import Settings
from tests.support.paths import EXPORTS
from tests.support.waiting import PATIENCE_S, wait_until, wait_until_async

SAMPLES = {"text-classification": "imdb-s3", "forecasting": "ettm2"}


class Backend:
    """Returns the version of its model; waits until `released` is set."""

    device: Literal["cpu", "cuda"] = "cpu"

    def __init__(self, version: int) -> None:
        self.version = version
        self.released = threading.Event()
        self.released.set()

    def run(self, inputs: Tensors, limit_s: float | None = None) -> dict[str, Array]:
        del limit_s
        assert self.released.wait(PATIENCE_S)
        logits = np.full((len(inputs["lengths"]), 2), self.version, np.float32)
        return {"logits": logits, "contributions": logits[:, None]}


def manifest(task: str) -> ExportManifest:
    return parse_manifest(json.loads((version_folder(EXPORTS / SAMPLES[task]) / "manifest.json").read_text()))


MANIFESTS = {task: manifest(task) for task in SAMPLES}


class Exports:
    """A folder of exports; the content of each says what loading it does: a task, `bad`, `broken` or `hangs`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.loads: list[str] = []
        self.backends: dict[int, Backend] = {}
        self.mount = threading.Event()
        """Set to let hanging reads finish."""

    def put(self, place: str, content: str = "text-classification") -> Path:
        path = self.root / place / "manifest.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def load(self, folder: Path, **options: object) -> LoadedModel:
        assert options == {"format": "onnx", "device": "cpu", "precision": "float32"}
        place = f"{folder.parent.name}/{folder.name}"
        content = (folder / "manifest.json").read_text()
        self.loads.append(place)
        if content == "bad":
            raise BadExport(f"{place}: model.onnx has another hash", "hash")
        if content.startswith("hangs"):
            assert self.mount.wait(PATIENCE_S)
            if content.endswith("bad"):
                raise BadExport(f"{place}: model.onnx has another hash", "hash")
            content = "text-classification"
        if content == "broken":
            raise RuntimeError("a fault of ours")
        update = {"name": folder.parent.name, "version": int(folder.name)}
        backend = self.backends[int(folder.name)] = Backend(int(folder.name))
        manifest = MANIFESTS[content].model_copy(update=update)
        if content == Classification.name:
            assert isinstance(manifest, ClassifierManifest)
            return LoadedModel(Classification(manifest), backend, "onnx", 0.1)
        assert isinstance(manifest, ForecasterManifest)
        calibration = Calibration(np.array([0.1, 0.9]), np.zeros((2, 3, 2), np.float32), 9)
        return LoadedModel(Forecasting(manifest, calibration), backend, "onnx", 0.1)


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Exports:
    made = Exports(tmp_path / "exports")
    monkeypatch.setattr(service.engine.folder, "load_export", made.load)
    return made


@pytest.fixture
def settings(exports: Exports) -> Settings:
    return Settings.model_construct(exports=exports.root, backend="onnx", device="cpu", reload_s=0.01)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def engine(exports: Exports, settings: Settings, metrics: Metrics) -> AsyncIterator[Engine]:
    """An engine that serves version 2 of the model `a`."""
    folder = exports.put("a/2").parent
    made = Engine([exports.load(folder, format="onnx", device="cpu", precision="float32")], settings, metrics)
    exports.loads.clear()
    yield made
    made.close()


@pytest.fixture
def reloader(engine: Engine, settings: Settings, metrics: Metrics) -> Reloader:
    return Reloader(engine, settings, metrics)


def served(engine: Engine) -> dict[str, int]:
    return {name: model.manifest.version for name, model in engine.models.items()}


def announced(metrics: Metrics) -> list[tuple[str, str]]:
    samples = [sample for family in metrics.model_info.collect() for sample in family.samples]
    return sorted((sample.labels["model"], sample.labels["version"]) for sample in samples)


def refused(metrics: Metrics, model: str, reason: str) -> float:
    return metrics.registry.get_sample_value(
        "longdoc_exports_refused_total", {"model": model, "reason": reason}
    ) or 0.0  # fmt: skip


async def ask(engine: Engine, name: str = "a") -> float:
    outcome = await engine.models.choose(Classification, name).batcher.infer(
        [b"x"], asyncio.get_running_loop().time() + PATIENCE_S
    )
    return float(outcome.outputs[0][0])


async def test_higher_version_is_served(exports: Exports, engine: Engine, reloader: Reloader, metrics: Metrics) -> None:
    assert await ask(engine) == 2
    exports.put("a/9")
    exports.put("a/10")
    await reloader.check()
    assert exports.loads == ["a/10"]
    assert await ask(engine) == 10
    assert served(engine) == {"a": 10}
    assert announced(metrics) == [("a", "10")]
    assert engine.models.named("a", "10").manifest.version == 10
    with pytest.raises(ModelNotFound):
        engine.models.named("a", "2")


@pytest.mark.parametrize("place", ["a/1", "a/03", "a/.partial-3", "a/new", ".hidden/3", "b/0"])
async def test_only_higher_versions_are_loaded(
    exports: Exports, engine: Engine, reloader: Reloader, place: str
) -> None:
    exports.put(place)
    for _ in range(2):
        await reloader.check()
    assert exports.loads == []
    assert served(engine) == {"a": 2}


async def test_new_models_are_served_next_to_the_others(
    exports: Exports, engine: Engine, reloader: Reloader, metrics: Metrics
) -> None:
    exports.put("b/7")
    await reloader.check()
    await reloader.check()
    assert exports.loads == ["b/7"]
    assert served(engine) == {"a": 2, "b": 7}
    assert announced(metrics) == [("a", "2"), ("b", "7")]
    assert (await ask(engine), await ask(engine, "b")) == (2, 7)


async def test_new_models_are_served_only_if_the_settings_select_them(
    exports: Exports, engine: Engine, settings: Settings, metrics: Metrics
) -> None:
    exports.put("b/7")
    exports.put("c/1")
    reloader = Reloader(engine, settings.model_copy(update={"models": ("a", "c")}), metrics)
    await reloader.check()
    assert exports.loads == ["c/1"]
    assert served(engine) == {"a": 2, "c": 1}
    states = await reloader.index(asyncio.get_running_loop().time() + PATIENCE_S)
    assert [state.name for state in states] == ["a", "c"]


async def test_bad_version_is_rejected_once(
    exports: Exports, engine: Engine, reloader: Reloader, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    exports.put("a/3", "bad")
    for _ in range(3):
        await reloader.check()
    assert exports.loads == ["a/3"]
    assert refused(metrics, "a", "hash") == 1
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "refused: a/3: model.onnx has another hash"
    ]
    assert served(engine) == {"a": 2}
    assert announced(metrics) == [("a", "2")]
    assert await ask(engine) == 2


def complete_at_its_old_time(folder: Path) -> None:
    (folder / "model.onnx").write_text("complete")
    os.utime(folder / "model.onnx", (0, 0))


REPAIRS: dict[str, Callable[[Path], object]] = {
    "manifest": lambda folder: (folder / "manifest.json").write_text("text-classification"),
    "other file": lambda folder: (folder / "model.onnx").write_text("complete"),
    "file with its old time": complete_at_its_old_time,
    "file put in its place": lambda folder: (folder / "model.part").rename(folder / "model.onnx"),
    "folder put in its place": lambda folder: (
        folder.rename(folder.parent / ".old"),
        (folder.parent / ".new").rename(folder),
    ),
}


def tick(root: Path) -> None:
    """Wait until the clock of the file system, which has a coarse resolution, advances."""
    probe = root.parent / "probe"

    def changed() -> int:
        probe.write_text("")
        return probe.stat().st_ctime_ns

    before = changed()
    wait_until(lambda: changed() > before)


@pytest.mark.parametrize("repair", REPAIRS)
async def test_rejected_version_is_tried_again_after_any_change(
    exports: Exports, engine: Engine, reloader: Reloader, metrics: Metrics, repair: str
) -> None:
    folder = exports.put("a/3", "bad").parent
    (folder / "model.onnx").write_text("half")
    (folder / "model.part").write_text("complete")
    exports.put("a/.new", "bad")
    await reloader.check()
    tick(exports.root)
    REPAIRS[repair](folder)
    if repair != "manifest":
        await reloader.check()
        assert refused(metrics, "a", "hash") == 2
        tick(exports.root)
    exports.put("a/3")
    await reloader.check()
    assert exports.loads == ["a/3"] * (2 if repair == "manifest" else 3)
    assert await ask(engine) == 3


async def test_bad_version_does_not_prevent_loading_the_others(
    exports: Exports, engine: Engine, reloader: Reloader
) -> None:
    exports.put("a/3", "bad")
    exports.put("b/1")
    await reloader.check()
    exports.put("a/4")
    await reloader.check()
    assert served(engine) == {"a": 4, "b": 1}


async def test_version_of_another_task_is_rejected_once(
    exports: Exports, engine: Engine, reloader: Reloader, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    exports.put("a/3", "forecasting")
    for _ in range(2):
        await reloader.check()
    assert exports.loads == ["a/3"]
    assert refused(metrics, "a", "task") == 1
    assert "a/3 is for forecasting; a is served for text-classification" in caplog.text
    assert announced(metrics) == [("a", "2")]
    assert await ask(engine) == 2


async def test_exports_folder_may_be_missing_or_empty_for_a_while(
    exports: Exports, engine: Engine, reloader: Reloader
) -> None:
    away = exports.root.rename(exports.root.parent / "away")
    await reloader.check()
    exports.root.mkdir()
    await reloader.check()
    assert await ask(engine) == 2
    exports.root.rmdir()
    away.rename(exports.root)
    exports.put("a/3")
    await reloader.check()
    assert await ask(engine) == 3


async def test_internal_error_in_loading_rejects_only_that_export(
    exports: Exports, engine: Engine, reloader: Reloader, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    exports.put("a/3", "broken")
    exports.put("b/1")
    await reloader.check()
    await reloader.check()
    assert exports.loads == ["a/3", "b/1"]
    assert served(engine) == {"a": 2, "b": 1}
    assert refused(metrics, "a", "failed") == 1
    assert caplog.messages == ["a/3: loading failed", "refused: a/3: loading failed: RuntimeError"]
    assert "RuntimeError: a fault of ours" in caplog.text, "the traceback"
    assert states(await reloader.index(far()))["a/3"] == ("UNAVAILABLE", "a/3: loading failed: RuntimeError")
    tick(exports.root)
    exports.put("a/3")
    await reloader.check()
    assert served(engine) == {"a": 3, "b": 1}


async def test_internal_error_in_one_scan_does_not_stop_scanning(
    exports: Exports,
    engine: Engine,
    reloader: Reloader,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(_: Path) -> FoundVersions:
        raise RuntimeError("a fault of ours")

    exports.put("a/3")
    with monkeypatch.context() as patched:
        patched.setattr(service.engine.folder, "find_versions", find)
        running = asyncio.create_task(reloader.run())
        await wait_until_async(lambda: "a fault of ours" in caplog.text)
        assert await ask(engine) == 2
    await wait_until_async(lambda: served(engine) == {"a": 3})
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of folders that cannot be listed; simulated because root can list any."""
    names = set[str]()

    def list_versions(folder: Path) -> list[Path]:
        if folder.name in names:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return versions_of(folder)

    monkeypatch.setattr(artifact.loading, "versions_of", list_versions)
    return names


async def test_unreadable_folder_affects_only_its_model(
    exports: Exports, locked: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    async with following(exports, "latest", "a/2", metrics=metrics) as (engine, reloader):
        locked |= {"a", "c"}
        exports.put("c/1")
        await check_twice(reloader)
        exports.put("b/1")
        await check_twice(reloader)
        assert all_served(engine) == ["a/2", "b/1"], "what is served stays, though no version of it is found"
        why = {name: f"{name}: its folder cannot be listed: Permission denied" for name in "ac"}
        assert caplog.messages == [f"refused: {why['a']}", f"refused: {why['c']}"]
        assert (refused(metrics, "a", "unreadable"), refused(metrics, "c", "unreadable")) == (1, 1)
        assert await reloader.index(far()) == [
            VersionState("a", 2, "READY", ""),
            VersionState("a", None, "UNAVAILABLE", why["a"]),
            VersionState("b", 1, "READY", ""),
            VersionState("c", None, "UNAVAILABLE", why["c"]),
        ]
        with pytest.raises(NotReady, match=why["c"]):
            await reloader.load("c", far())
        locked.clear()
        await reloader.check()
        assert all_served(engine) == ["a/2", "b/1", "c/1"]


async def test_failed_scan_is_logged_once_until_it_succeeds_again(
    exports: Exports, reloader: Reloader, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [errno.EMFILE, errno.EMFILE, errno.EACCES, errno.EMFILE, 0, errno.EMFILE, errno.EMFILE]
    ended = asyncio.Event()

    def find(root: Path) -> FoundVersions:
        if (number := errors.pop(0) if errors else 0) != 0:
            raise OSError(number, os.strerror(number), root)
        if not errors:
            asyncio.run_coroutine_threadsafe(end(), loop)
        return FoundVersions({}, {})

    async def end() -> None:
        ended.set()

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(service.engine.folder, "find_versions", find)
    running = asyncio.create_task(reloader.run())
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    reasons = ["Too many open files", "Permission denied", "Too many open files", "Too many open files"]
    assert caplog.messages == [f"cannot check for new exports: {reason}" for reason in reasons]
    assert not any(record.exc_info for record in caplog.records)
    assert exports.loads == []


async def settle() -> None:
    """Run tasks until all of them wait."""
    for _ in range(6):
        await asyncio.sleep(0)


async def test_running_request_finishes_with_its_version(exports: Exports, engine: Engine, reloader: Reloader) -> None:
    """Queued requests and those of a version replaced twice finish too; drain waits for all of them."""
    exports.backends[2].released.clear()
    asked = {2: [asyncio.create_task(ask(engine)) for _ in range(20)]}
    await settle()
    for version in (3, 4):
        exports.put(f"a/{version}")
        await reloader.check()
        asked[version] = [asyncio.create_task(ask(engine)) for _ in range(20)]
        await settle()
    assert served(engine) == {"a": 4}
    draining = asyncio.create_task(engine.drain())
    await settle()
    assert not draining.done()
    assert not any(task.done() for task in asked[2])
    exports.backends[2].released.set()
    for version, tasks in asked.items():
        assert await asyncio.gather(*tasks) == [version] * 20
    await asyncio.wait_for(draining, PATIENCE_S)


async def test_replaced_model_is_freed(engine: Engine, reloader: Reloader, exports: Exports) -> None:
    gone = weakref.ref(exports.backends.pop(2))
    exports.put("a/3")
    await reloader.check()
    assert gone() is not None, "it may still have requests"
    await reloader.check()
    gc.collect()
    assert gone() is None
    assert served(engine) == {"a": 3}


async def test_second_model_of_a_task_does_not_change_the_default(
    engine: Engine, reloader: Reloader, exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    exports.put("a/3")
    await reloader.check()
    exports.put("b/1")
    await reloader.check()
    assert served(engine) == {"a": 3, "b": 1}
    assert engine.models.choose(Classification, None).manifest.name == "a"
    assert not [record for record in caplog.records if record.levelno == logging.WARNING]


async def test_valid_version_before_a_bad_one_is_served(exports: Exports, engine: Engine, reloader: Reloader) -> None:
    exports.put("a/3")
    exports.put("a/4", "bad")
    for _ in range(2):
        await reloader.check()
    assert exports.loads == ["a/4", "a/3"]
    assert served(engine) == {"a": 3}


def advance(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Make the clock of the event loop jump ahead."""
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + seconds)


async def time_out(
    monkeypatch: pytest.MonkeyPatch, reading: Coroutine[Any, Any, None], hangs: Callable[[], object], seconds: float
) -> None:
    """Await `reading`; once it hangs, this time passes on the clock of the event loop."""
    task = asyncio.create_task(reading)
    await wait_until_async(hangs)
    advance(monkeypatch, seconds)
    await task


async def check_until(reloader: Reloader, condition: Callable[[], bool]) -> None:
    """Check until a condition is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await reloader.check()


async def test_slow_load_does_not_block_the_others(
    exports: Exports,
    engine: Engine,
    reloader: Reloader,
    metrics: Metrics,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither those of the same check nor those of later ones; it is refused at its limit, and served if it ends."""
    exports.put("a/3", "hangs")
    exports.put("b/1")
    await time_out(monkeypatch, reloader.check(), lambda: exports.loads, LOAD_TURN_S)
    assert served(engine) == {"a": 2, "b": 1}
    exports.put("b/2")
    await reloader.check()
    assert served(engine) == {"a": 2, "b": 2}
    assert exports.loads == ["a/3", "b/1", "b/2"]
    assert refused(metrics, "a", "timeout") == 0
    assert reloader.is_reading
    advance(monkeypatch, LOAD_LIMIT_S)
    for _ in range(2):
        await reloader.check()
    refusal = f"refused: a/3: loading takes longer than {LOAD_LIMIT_S:g} s, and continues"
    assert [message for message in caplog.messages if "a/3" in message] == [refusal]
    assert refused(metrics, "a", "timeout") == 1
    exports.mount.set()
    await check_until(reloader, lambda: served(engine) == {"a": 3, "b": 2})
    assert exports.loads == ["a/3", "b/1", "b/2"]
    assert not reloader.is_reading


async def test_requested_load_that_is_slow_does_not_block_the_others(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with following(exports, "latest", "a/2") as (engine, reloader):
        exports.put("a/3", "hangs")
        loading = asyncio.create_task(reloader.load("a", far()))
        await wait_until_async(lambda: exports.loads)
        advance(monkeypatch, LOAD_TURN_S)
        exports.put("b/1")
        await reloader.check()
        await reloader.load("b", far())
        assert all_served(engine) == ["a/2", "b/1"]
        assert not loading.done()
        exports.mount.set()
        await loading
        assert all_served(engine) == ["a/3", "b/1"]


async def test_requested_load_that_ends_while_another_version_is_loaded_is_served(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with following(exports, "all", "a/2") as (engine, reloader):
        exports.put("a/4", "hangs")
        exports.put("a/3")
        slow = list[threading.Thread]()

        def load(folder: Path, **options: object) -> LoadedModel:
            if folder.name == "4":
                slow.append(threading.current_thread())
            else:
                exports.mount.set()
                slow[0].join(PATIENCE_S)
            return exports.load(folder, **options)

        monkeypatch.setattr(service.engine.folder, "load_export", load)
        await time_out(monkeypatch, reloader.load("a", far()), lambda: exports.loads, LOAD_TURN_S)
        assert all_served(engine) == ["a/4", "a/3", "a/2"]


async def test_unload_cancels_a_slow_load(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        exports.put("a/3", "hangs")
        loading = asyncio.create_task(reloader.load("a", far()))
        await wait_until_async(lambda: exports.loads)
        advance(monkeypatch, LOAD_TURN_S)
        await reloader.load("b", far())
        await reloader.unload("a", far())
        exports.mount.set()
        with pytest.raises(ControlRefused, match=r"^unloaded; versions that are served: none$"):
            await loading
        assert all_served(engine) == ["b/1"]


@pytest.mark.parametrize("is_removed", [True, False])
async def test_model_that_is_loaded_too_late_is_freed(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        exports.put("a/3", "hangs")
        await time_out(monkeypatch, reloader.check(), lambda: exports.loads, LOAD_TURN_S)
        if is_removed:
            remove(exports, "a/3")
        else:
            await reloader.unload("a", far())
        exports.mount.set()
        await wait_until_async(lambda: not reloader.is_reading)
        loaded = weakref.ref(exports.backends.pop(3))
        await reloader.check()
        gc.collect()
        assert loaded() is None
        assert all_served(engine) == ["a/2", "b/1"] if is_removed else ["b/1"]


async def test_export_that_changes_during_a_hanging_read_is_tried_again(
    exports: Exports, engine: Engine, reloader: Reloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which it is by its state from before the reading began."""
    exports.put("a/3", "hangs and is bad")
    await time_out(monkeypatch, reloader.check(), lambda: exports.loads, LOAD_TURN_S)
    tick(exports.root)
    exports.put("a/3")
    exports.mount.set()
    await check_until(reloader, lambda: served(engine) == {"a": 3})
    assert exports.loads == ["a/3", "a/3"]


async def test_previous_version_is_served_when_the_served_one_is_removed(
    engine: Engine, reloader: Reloader, exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    """The second scan without the version unloads it: a folder that is being replaced may be missing for a moment."""
    caplog.set_level(logging.INFO)
    exports.put("a/1")
    shutil.rmtree(exports.root / "a" / "2")
    await reloader.check()
    assert served(engine) == {"a": 2}
    await reloader.check()
    assert served(engine) == {"a": 1}
    assert caplog.messages[-2:] == ["a 1: serving", "a 2: no longer served, because its export was removed"]
    await reloader.check()
    assert exports.loads == ["a/1"]
    exports.put("a/2")
    await reloader.check()
    assert served(engine) == {"a": 2}


async def test_version_that_is_missing_for_one_scan_stays_served(
    engine: Engine, reloader: Reloader, exports: Exports
) -> None:
    exports.put("a/1")
    for _ in range(3):
        shutil.rmtree(exports.root / "a" / "2")
        await reloader.check()
        exports.put("a/2")
        await reloader.check()
    assert served(engine) == {"a": 2}
    assert exports.loads == []


async def test_model_without_exports_is_no_longer_served(
    engine: Engine, reloader: Reloader, metrics: Metrics, exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    exports.put("b/1")
    await reloader.check()
    assert engine.models.choose(Classification, None).manifest.name == "a"
    shutil.rmtree(exports.root / "a")
    await reloader.check()
    assert served(engine) == {"a": 2, "b": 1}
    await reloader.check()
    assert served(engine) == {"b": 1}
    assert announced(metrics) == [("b", "1")]
    metrics.sample()
    assert 'longdoc_queue_depth{model="a"}' not in metrics.expose().decode()
    assert engine.models.choose(Classification, None).manifest.name == "b"
    assert "a 2: no longer served, because its export was removed" in caplog.messages
    exports.put("a/3")
    await reloader.check()
    assert served(engine) == {"a": 3, "b": 1}


async def test_running_requests_of_a_removed_model_finish(engine: Engine, reloader: Reloader, exports: Exports) -> None:
    exports.put("b/1")
    await reloader.check()
    batcher = engine.models["a"].batcher
    exports.backends[2].released.clear()
    asked = asyncio.create_task(batcher.infer([b"x"], asyncio.get_running_loop().time() + PATIENCE_S))
    await asyncio.sleep(0)
    shutil.rmtree(exports.root / "a")
    for _ in range(3):
        await reloader.check()
    assert served(engine) == {"b": 1}
    exports.backends[2].released.set()
    assert [set(output.tolist()) for output in (await asked).outputs] == [{2}]


@pytest.mark.parametrize("is_empty", [True, False])
async def test_missing_or_empty_exports_folder_changes_nothing(
    engine: Engine, reloader: Reloader, exports: Exports, *, is_empty: bool
) -> None:
    """For example, a mount is lost."""
    shutil.rmtree(exports.root)
    if is_empty:
        exports.root.mkdir()
    for _ in range(3):
        await reloader.check()
    assert served(engine) == {"a": 2}


@asynccontextmanager
async def following(
    exports: Exports, policy: str, *places: str, metrics: Metrics | None = None
) -> AsyncIterator[tuple[Engine, Reloader]]:
    """An engine that serves versions of exports by a policy, and its reloader."""
    counted = metrics or Metrics()
    settings = Settings.model_construct(exports=exports.root, backend="onnx", device="cpu", version_policy=policy)
    folders = [exports.put(place).parent for place in places]
    engine = Engine(
        [exports.load(folder, format="onnx", device="cpu", precision="float32") for folder in folders],
        settings,
        counted,
    )
    exports.loads.clear()
    yield engine, Reloader(engine, settings, counted)
    engine.close()


def all_served(engine: Engine) -> list[str]:
    return [f"{model.manifest.name}/{model.manifest.version}" for model in engine.models.served]


async def check_twice(reloader: Reloader) -> None:
    """A version is unloaded after two scans in a row without its folder."""
    await reloader.check()
    await reloader.check()


def remove(exports: Exports, place: str) -> None:
    shutil.rmtree(exports.root / place)


async def test_all_versions_are_served_together(exports: Exports, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    metrics = Metrics()
    async with following(exports, "all", "a/2", metrics=metrics) as (engine, reloader):
        for place in ("a/1", "a/10", "b/1"):
            exports.put(place)
        await check_twice(reloader)
        assert exports.loads == ["a/10", "a/1", "b/1"]
        assert all_served(engine) == ["a/10", "a/2", "a/1", "b/1"]
        assert announced(metrics) == [("a", "1"), ("a", "10"), ("a", "2"), ("b", "1")]
        assert [await ask(engine, name) for name in ("a", "a@10", "a@2", "a@1")] == [10, 10, 2, 1]
    assert "a 10: serving in addition to 2, with its own memory" in caplog.messages
    assert "a 1: serving in addition to 10, 2, with its own memory" in caplog.messages
    assert "b 1: serving" in caplog.messages


async def test_unlisted_versions_are_not_loaded(exports: Exports) -> None:
    async with following(exports, "a:2,4", "a/2") as (engine, reloader):
        for place in ("a/1", "a/3", "a/4", "a/5", "b/1", "b/2"):
            exports.put(place)
        await check_twice(reloader)
        assert exports.loads == ["a/4", "b/2"]
        assert all_served(engine) == ["a/4", "a/2", "b/2"]


@pytest.mark.parametrize("policy", ["all", "a:1,2,3"])
async def test_removed_version_is_unloaded_and_the_others_stay(
    exports: Exports, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    """A request without a version falls back to the previous one, which is already loaded."""
    metrics = Metrics()
    async with following(exports, policy, "a/1", "a/2", "a/3", metrics=metrics) as (engine, reloader):
        remove(exports, "a/3")
        await reloader.check()
        assert await ask(engine) == 3, "it may be away for a moment"
        await reloader.check()
        assert (await ask(engine), all_served(engine)) == (2, ["a/2", "a/1"])
        assert announced(metrics) == [("a", "1"), ("a", "2")]
        assert caplog.messages == ["a 3: no longer served, because its export was removed"]
        with pytest.raises(ModelNotFound, match="a is served in versions 2, 1 only"):
            engine.models.named("a@3")
        remove(exports, "a/1")
        await check_twice(reloader)
        assert (all_served(engine), exports.loads) == (["a/2"], [])
        exports.put("a/3")
        await reloader.check()
        assert (all_served(engine), exports.loads) == (["a/3", "a/2"], ["a/3"])


async def test_damaged_version_is_rejected_while_the_others_are_served(exports: Exports) -> None:
    metrics = Metrics()
    async with following(exports, "all", "a/2", metrics=metrics) as (engine, reloader):
        exports.put("a/4", "bad")
        exports.put("a/3")
        exports.put("a/1", "bad")
        exports.put("a/5", "forecasting")
        await check_twice(reloader)
        assert exports.loads == ["a/5", "a/4", "a/3", "a/1"]
        assert all_served(engine) == ["a/3", "a/2"]
        assert (refused(metrics, "a", "hash"), refused(metrics, "a", "task")) == (2, 1)


@pytest.mark.parametrize("policy", ["latest", "all"])
async def test_last_version_stays_while_no_other_can_be_served(exports: Exports, policy: str) -> None:
    async with following(exports, policy, "a/2") as (engine, reloader):
        exports.put("a/3", "bad")
        remove(exports, "a/2")
        await check_twice(reloader)
        assert all_served(engine) == ["a/2"]
        exports.put("a/1")
        await reloader.check()
        assert all_served(engine) == ["a/1"]


async def test_model_is_unloaded_when_no_listed_version_is_left(exports: Exports) -> None:
    async with following(exports, "a:2", "a/2", "b/1") as (engine, reloader):
        exports.put("a/3")
        remove(exports, "a/2")
        await check_twice(reloader)
        assert (all_served(engine), exports.loads) == (["b/1"], [])


async def test_memory_of_an_unloaded_version_is_freed(exports: Exports) -> None:
    async with following(exports, "all", "a/1", "a/2") as (_, reloader):
        gone = weakref.ref(exports.backends.pop(2))
        remove(exports, "a/2")
        await check_twice(reloader)
        await reloader.check()
        gc.collect()
        assert gone() is None


def far() -> float:
    """Return a deadline that does not pass."""
    return asyncio.get_running_loop().time() + PATIENCE_S


async def test_unloaded_model_is_served_again_when_it_is_loaded(
    exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    metrics = Metrics()
    async with following(exports, "all", "a/1", "a/2", "b/1", metrics=metrics) as (engine, reloader):
        for _ in range(2):  # the second call finds nothing to do
            await reloader.unload("a", far())
            exports.put("a/3")
            await check_twice(reloader)
            assert all_served(engine) == ["b/1"]
        assert announced(metrics) == [("b", "1")]
        assert exports.loads == []
        remove(exports, "a/1")
        await reloader.load("a", far())
        assert all_served(engine) == ["b/1", "a/3", "a/2"]
        assert exports.loads == ["a/3", "a/2"]
        await reloader.load("a", far())
        assert exports.loads == ["a/3", "a/2"], "what is served already stays"
    assert [message for message in caplog.messages if re.search("on request|load requested", message)] == [
        "a 2: unloaded on request", "a 1: unloaded on request", "a: load requested", "a: load requested",
    ]  # fmt: skip


async def test_load_scans_at_once(exports: Exports) -> None:
    async with following(exports, "latest", "a/2") as (engine, reloader):
        exports.put("a/3")
        exports.put("b/1")
        await reloader.load("a", far())
        assert (all_served(engine), exports.loads) == (["a/3"], ["a/3"])


@pytest.mark.parametrize(
    ("policy", "left", "message"),
    [
        ("latest", ["a/2"], "a/4: model.onnx has another hash; a/3: model.onnx has another hash"),
        ("all", ["a/2", "a/1"], "a/4: model.onnx has another hash; a/3: model.onnx has another hash"),
        ("a:2,3", ["a/2"], "a/3: model.onnx has another hash"),
    ],
)
async def test_load_names_versions_that_cannot_be_served(
    exports: Exports, policy: str, left: list[str], message: str
) -> None:
    """Every load reports the error, although a scan tries a version only once."""
    async with following(exports, policy, "a/2") as (engine, reloader):
        exports.put("a/1")
        exports.put("a/3", "bad")
        exports.put("a/4", "bad")
        await reloader.check()
        numbers = ", ".join(place.removeprefix("a/") for place in left)
        for _ in range(2):
            with pytest.raises(ControlRefused) as caught:
                await reloader.load("a", far())
            assert str(caught.value) == f"{message}; versions that are served: {numbers}"
            assert all_served(engine) == left


async def test_load_retries_a_rejected_version(exports: Exports) -> None:
    """Its files are unchanged, but the versions of the other task are unloaded."""
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        exports.put("a/3", "forecasting")
        await reloader.check()
        assert all_served(engine) == ["a/2", "b/1"]
        await reloader.unload("a", far())
        await reloader.load("a", far())
        assert all_served(engine) == ["b/1", "a/3"]
        assert exports.loads == ["a/3", "a/3"]


async def test_load_frees_replaced_versions_without_scans(exports: Exports) -> None:
    """A load frees the versions that the previous load replaced."""
    async with following(exports, "latest", "a/2") as (_, reloader):
        gone = weakref.ref(exports.backends.pop(2))
        exports.put("a/3")
        for _ in range(2):
            await reloader.load("a", far())
        gc.collect()
        assert gone() is None


async def test_failed_load_cancels_the_unloading(exports: Exports) -> None:
    """The model is served once it is repaired."""
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        await reloader.unload("a", far())
        exports.put("a/2", "bad")
        with pytest.raises(ControlRefused, match=r"a/2: model\.onnx has another hash; versions that are served: none"):
            await reloader.load("a", far())
        tick(exports.root)
        exports.put("a/2")
        await reloader.check()
        assert all_served(engine) == ["b/1", "a/2"]


@pytest.mark.parametrize("name", ["none", "a@2", "..", "", "c"])
async def test_missing_model_cannot_be_loaded(exports: Exports, name: str) -> None:
    async with following(exports, "c:7", "a/2", "b/1") as (_, reloader):
        exports.put("c/1")
        with pytest.raises(
            ModelNotFound, match=r"no export of that name is selected by version_policy; there are: a, b$"
        ):
            await reloader.load(name, far())
        assert exports.loads == []


@pytest.mark.parametrize("name", ["none", "a@2", ""])
async def test_unserved_model_cannot_be_unloaded(exports: Exports, name: str) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        with pytest.raises(ModelNotFound, match="no model of that name is served; there are: a, b"):
            await reloader.unload(name, far())
        assert all_served(engine) == ["a/2", "b/1"]


async def test_unload_waits_for_running_requests(exports: Exports) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        exports.backends[2].released.clear()
        running = [asyncio.create_task(ask(engine, "a")) for _ in range(5)]
        await settle()
        unloading = asyncio.create_task(reloader.unload("a", far()))
        await settle()
        assert all_served(engine) == ["b/1"]
        assert not unloading.done()
        exports.backends[2].released.set()
        await unloading
        assert await asyncio.gather(*running) == [2] * 5


async def test_unload_takes_effect_even_if_its_wait_times_out(exports: Exports) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        exports.backends[2].released.clear()
        running = asyncio.create_task(ask(engine, "a"))
        await settle()
        with pytest.raises(DeadlineExceeded, match="the model is unloaded; requests in flight have not finished yet"):
            await reloader.unload("a", asyncio.get_running_loop().time())
        await check_twice(reloader)
        assert all_served(engine) == ["b/1"]
        exports.backends[2].released.set()
        assert await running == 2


async def unload_repeatedly(reloader: Reloader) -> asyncio.Task[None]:
    """Unload a model with a request in flight: two calls reach their deadline; return a third, which waits."""
    for _ in range(2):
        with pytest.raises(DeadlineExceeded, match="requests in flight have not finished yet"):
            await reloader.unload("a", asyncio.get_running_loop().time())
    unloading = asyncio.create_task(reloader.unload("a", far()))
    await settle()
    assert not unloading.done()
    return unloading


async def test_repeated_unload_waits_again(exports: Exports) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        exports.backends[2].released.clear()
        running = asyncio.create_task(ask(engine, "a"))
        await settle()
        unloading = await unload_repeatedly(reloader)
        exports.backends[2].released.set()
        await unloading
        assert running.done()


@asynccontextmanager
async def scanning(exports: Exports, reloader: Reloader) -> AsyncIterator[None]:
    """A scan that loads the export z/9 until the end of the block."""
    exports.put("z/9", "hangs")
    task = asyncio.create_task(reloader.check())
    await wait_until_async(lambda: "z/9" in exports.loads)
    yield
    exports.mount.set()
    await task


async def test_load_continues_after_its_deadline(exports: Exports) -> None:
    async with following(exports, "latest", "a/2") as (engine, reloader):
        async with scanning(exports, reloader):
            exports.put("a/3")
            with pytest.raises(DeadlineExceeded, match="the model is not loaded yet; loading continues"):
                await reloader.load("a", asyncio.get_running_loop().time())
            assert all_served(engine) == ["a/2"]
        await wait_until_async(lambda: all_served(engine) == ["a/3", "z/9"])


async def test_waiting_loads_of_a_model_are_merged_and_limited(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(service.engine.reload, "MAX_LOADS", 2)
    async with following(exports, "latest", "a/2", "b/1") as (_, reloader):
        async with scanning(exports, reloader):
            waiting = [asyncio.create_task(reloader.load(name, far())) for name in ("a", "b", "a", "b", "a")]
            await settle()
            with pytest.raises(Overloaded, match="2 models wait to be loaded"):
                await reloader.load("c", far())
        await asyncio.gather(*waiting)
        assert [message for message in caplog.messages if "requested" in message] == [
            "a: load requested", "b: load requested",
        ]  # fmt: skip


async def test_unload_cancels_a_waiting_load(exports: Exports) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        async with scanning(exports, reloader):
            loading = asyncio.create_task(reloader.load("a", far()))
            await settle()
            await reloader.unload("a", far())
        with pytest.raises(ControlRefused, match=r"^unloaded; versions that are served: none$"):
            await loading
        assert all_served(engine) == ["b/1", "z/9"]


async def test_index_does_not_wait_for_loading_exports(exports: Exports) -> None:
    async with following(exports, "latest", "a/2") as (_, reloader), scanning(exports, reloader):
        found = states(await reloader.index(far()))
        assert found == {"a/2": ("READY", ""), "z/9": ("UNAVAILABLE", "being loaded")}


class Mount:
    """A folder of exports whose listing waits until the test sets `released`."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.scans = 0

    def find(self, root: Path) -> FoundVersions:
        self.scans += 1
        assert self.released.wait(PATIENCE_S)
        return find_versions(root)


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Mount:
    made = Mount()
    monkeypatch.setattr(service.engine.folder, "find_versions", made.find)
    return made


async def test_requests_for_the_index_share_a_scan_and_wait_until_their_deadline(
    exports: Exports, mount: Mount
) -> None:
    async with following(exports, "latest", "a/2") as (_, reloader):
        waiting = [asyncio.create_task(reloader.index(far())) for _ in range(20)]
        with pytest.raises(DeadlineExceeded, match="the folder of exports has not been listed in time"):
            await reloader.index(asyncio.get_running_loop().time())
        mount.released.set()
        for found in await asyncio.gather(*waiting):
            assert states(found) == {"a/2": ("READY", "")}
        assert mount.scans == 1
        await reloader.index(far())
        assert mount.scans == 2


async def test_load_scans_again_after_a_scan_that_started_before_it(exports: Exports, mount: Mount) -> None:
    async with following(exports, "latest", "a/2") as (_, reloader):
        index = asyncio.create_task(reloader.index(far()))
        await settle()
        loading = asyncio.create_task(reloader.load("a", far()))
        await settle()
        mount.released.set()
        await asyncio.gather(index, loading)
        assert mount.scans == 2


async def test_folder_that_does_not_respond_is_reported(
    exports: Exports, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with following(exports, "latest", "a/2") as (_, reloader):
        message = f"^the folder of exports cannot be read: no answer in {SCAN_LIMIT_S:g} s$"
        with pytest.raises(NotReady, match=message):
            await time_out(monkeypatch, reloader.load("a", far()), lambda: mount.scans, SCAN_LIMIT_S)
        with pytest.raises(NotReady, match=message):
            await reloader.load("a", far())
        with pytest.raises(OSError, match="no answer"):
            await reloader.check()
        assert states(await reloader.index(asyncio.get_running_loop().time())) == {"a/2": ("READY", "")}
        assert reloader.is_reading
        mount.released.set()
        await wait_until_async(lambda: not reloader.is_reading)
        assert mount.scans == 1
        await reloader.load("a", far())


async def test_unreadable_folder_is_reported(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(root: Path) -> FoundVersions:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), root)

    async with following(exports, "latest", "a/2") as (_, reloader):
        monkeypatch.setattr(service.engine.folder, "find_versions", find)
        with pytest.raises(NotReady, match=r"^the folder of exports cannot be read: Too many open files$"):
            await reloader.load("a", far())
        assert states(await reloader.index(far())) == {"a/2": ("READY", "")}


async def test_unload_cancels_a_running_load(exports: Exports) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        exports.put("a/3", "hangs")
        loading = asyncio.create_task(reloader.load("a", far()))
        await wait_until_async(lambda: exports.loads)
        await reloader.unload("a", far())
        exports.mount.set()
        with pytest.raises(ControlRefused, match=r"^unloaded; versions that are served: none$"):
            await loading
        assert all_served(engine) == ["b/1"]


async def test_model_may_be_unloaded_while_a_scan_finds_it_removed(exports: Exports) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        shutil.rmtree(exports.root / "a")
        await reloader.check()
        exports.put("c/1", "hangs")
        scanning = asyncio.create_task(reloader.check())
        await wait_until_async(lambda: exports.loads)
        await reloader.unload("a", far())
        exports.mount.set()
        await scanning
        assert all_served(engine) == ["b/1", "c/1"]


async def test_load_of_an_export_that_hangs_is_told(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    async with following(exports, "latest", "a/2") as (engine, reloader):
        exports.put("a/3", "hangs")
        message = f"^a/3: loading takes longer than {LOAD_LIMIT_S:g} s, and continues; versions that are served: 2$"
        late = asyncio.get_running_loop().time() + 2 * LOAD_LIMIT_S
        with pytest.raises(ControlRefused, match=message):
            await time_out(monkeypatch, reloader.load("a", late), lambda: exports.loads, LOAD_LIMIT_S)
        assert all_served(engine) == ["a/2"]
        exports.mount.set()
        await check_until(reloader, lambda: all_served(engine) == ["a/3"])


def states(found: list[VersionState]) -> dict[str, tuple[str, str]]:
    return {f"{state.name}/{state.version}": (state.state, state.reason) for state in found}


async def test_index_lists_the_folder_with_reasons_for_unserved_versions(exports: Exports) -> None:
    async with following(exports, "b:2,3", "a/2", "b/3", "b/2", "c/1") as (engine, reloader):
        for place, content in (("a/1", ""), ("a/3", "bad"), ("b/1", ""), ("c/2", "text-classification")):
            exports.put(place, content)
        await reloader.check()
        exports.put("a/4")
        await reloader.unload("c", far())
        engine.models.named("b@2").batcher.close()
        remove(exports, "b/3")
        found = await reloader.index(far())
        policy = "not selected by version_policy b:2,3"
        assert states(found) == {
            "a/4": ("UNAVAILABLE", "not loaded yet"),
            "a/3": ("UNAVAILABLE", "a/3: model.onnx has another hash"),
            "a/2": ("READY", ""),
            "a/1": ("UNAVAILABLE", policy),
            "b/3": ("READY", ""),
            "b/2": ("UNAVAILABLE", "it does not accept requests"),
            "b/1": ("UNAVAILABLE", policy),
            "c/2": ("UNAVAILABLE", "unloaded"),
            "c/1": ("UNAVAILABLE", "unloaded"),
        }
        assert [(state.name, state.version) for state in found] == [
            *(("a", 4), ("a", 3), ("a", 2), ("a", 1)), *(("b", 3), ("b", 2), ("b", 1)), *(("c", 2), ("c", 1)),
        ]  # fmt: skip


def put_defaults(exports: Exports, content: str) -> None:
    (exports.root / "defaults.json").write_text(content)


async def test_defaults_that_two_checks_in_a_row_find_are_applied(
    exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    """An editor may remove the file, or write it in parts."""
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        task = "text-classification"
        put_defaults(exports, json.dumps({task: "a"}))
        await reloader.check()
        assert engine.models.default(task) is None
        await reloader.check()
        assert engine.models.default(task) == Default("a", "defaults.json")
        for content in ("", "{"):
            put_defaults(exports, content)
            await reloader.check()
            put_defaults(exports, json.dumps({task: "a"}))
            await reloader.check()
        caplog.clear()
        put_defaults(exports, json.dumps({task: "c"}))
        exports.put("c/1")
        await check_twice(reloader)
        assert engine.models.default(task) == Default("c", "defaults.json")
        assert caplog.messages == []


async def test_name_in_changed_defaults_that_is_not_served_is_told_once(
    exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (_, reloader):
        await check_twice(reloader)
        caplog.clear()
        put_defaults(exports, json.dumps({"text-classification": "c"}))
        for _ in range(4):
            await reloader.check()
        assert caplog.messages == [
            f"{exports.root}/defaults.json: text-classification: there is no model 'c' for this task; there are: a, b"
        ]


async def test_defaults_that_cannot_be_read_are_told_once_and_change_nothing(
    exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        put_defaults(exports, json.dumps({"text-classification": "b"}))
        await check_twice(reloader)
        caplog.clear()
        put_defaults(exports, "{")
        for _ in range(4):
            await reloader.check()
        assert engine.models.choose(Classification, None).manifest.name == "b"
        (message,) = caplog.messages
        assert message.startswith(f"{exports.root}/defaults.json: Invalid JSON")
        assert message.endswith("; the defaults do not change")


async def test_unloading_waits_for_a_request_that_computes_nothing(exports: Exports) -> None:
    async with following(exports, "latest", "a/2", "b/1") as (engine, reloader):
        gone = weakref.ref(exports.backends.pop(2))
        with engine.models["a"].in_flight:
            unloading = await unload_repeatedly(reloader)
        await unloading
        gc.collect()
        assert gone() is None


async def test_paths_of_the_server_are_told_to_nobody(exports: Exports, engine: Engine, metrics: Metrics) -> None:
    folder = exports.put("a/3").parent
    error = BadExport(f"a/3: model.onnx cannot be loaded: Load model from {folder}/model.onnx failed", "backend")
    settings = Settings.model_construct(exports=exports.root, backend="onnx", device="cpu")
    reloader = Reloader(engine, settings, metrics, {folder: RefusedExport((0, 0), error)})
    told = states(await reloader.index(far()))["a/3"][1]
    assert told == "a/3: model.onnx cannot be loaded: Load model from a/3/model.onnx failed"
