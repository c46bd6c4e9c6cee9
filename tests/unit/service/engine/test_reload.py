"""The reloader with a folder of empty exports and models in memory."""

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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import artifact.loading
import service.engine.folder
import service.engine.loading
import service.engine.reload
from artifact.errors import BadExport
from artifact.exports import versions_of
from artifact.loading import FoundVersions, LoadedModel, find_versions
from service.engine.engine import Engine
from service.engine.folder import SCAN_LIMIT_S
from service.engine.loading import SLOW_LOAD_S, RefusedExport
from service.engine.reload import LOAD_TURN_S, Reloader, VersionState
from service.engine.selection import Default
from service.errors import ControlRefused, DeadlineExceeded, ModelNotFound, NotReady, Overloaded
from service.metrics import Metrics
from service.settings import Settings
from tests.support.models import Backend, backend_of, classifier, forecaster
from tests.support.waiting import PATIENCE_S, wait_until, wait_until_async

TASK = "text-classification"


@dataclass
class Following:
    """An engine that follows the folder of exports."""

    engine: Engine
    reloader: Reloader
    metrics: Metrics

    @property
    def served(self) -> list[str]:
        return [f"{model.manifest.name}/{model.manifest.version}" for model in self.engine.models.served]

    @property
    def announced(self) -> list[str]:
        samples = [sample for family in self.metrics.model_info.collect() for sample in family.samples]
        return sorted(f"{sample.labels['model']}/{sample.labels['version']}" for sample in samples)

    def refused(self, model: str, reason: str) -> float:
        labels = {"model": model, "reason": reason}
        return self.metrics.registry.get_sample_value("longdoc_exports_refused_total", labels) or 0.0

    async def check(self, times: int = 1) -> None:
        for _ in range(times):
            await self.reloader.check()

    async def load(self, name: str) -> None:
        await self.reloader.load(name, far())

    async def unload(self, name: str) -> None:
        await self.reloader.unload(name, far())

    async def states(self) -> dict[str, str]:
        """Why each version is not ready, or ""."""
        return {f"{state.name}/{state.version}": state.reason for state in await self.reloader.index(far())}

    async def ask(self, name: str = "a") -> None:
        await self.engine.models.named(name).batcher.infer([b"+"], far())


class Exports:
    """A folder of exports; the content of each says what loading it does: it `hangs` first, is `bad` or `broken`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.loads: list[str] = []
        self.backends: dict[str, Backend] = {}
        self.mount = threading.Event()
        """Set to let hanging loads continue."""
        self.engines: list[Engine] = []

    def follow(self, *places: str, policy: str = "latest", **changes: object) -> Following:
        """Create an engine that serves some exports, and follows the folder by a version policy."""
        given = {"exports": self.root, "device": "cpu", "reload_s": 0.01, "version_policy": policy, **changes}
        settings, metrics = Settings.model_validate(given), Metrics()
        models = [self.load(self.put(place), format="onnx", device="cpu", precision="float32") for place in places]
        self.loads.clear()
        engine = Engine(models, settings, metrics)
        self.engines.append(engine)
        return Following(engine, Reloader(engine, settings, metrics), metrics)

    def put(self, place: str, content: str = "") -> Path:
        folder = self.root / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_text(content)
        return folder

    def remove(self, place: str) -> None:
        shutil.rmtree(self.root / place)

    def load(self, folder: Path, **options: object) -> LoadedModel:
        assert options == {"format": "onnx", "device": "cpu", "precision": "float32"}
        place, content = f"{folder.parent.name}/{folder.name}", (folder / "manifest.json").read_text()
        self.loads.append(place)
        if "hangs" in content:
            assert self.mount.wait(PATIENCE_S)
        if "bad" in content:
            raise BadExport(f"{place}: model.onnx has another hash", "hash")
        if "broken" in content:
            raise RuntimeError("a fault of ours")
        model = (forecaster if "forecaster" in content else classifier)(folder.parent.name, int(folder.name))
        self.backends[place] = backend_of(model)
        return model


@pytest.fixture
async def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Exports]:
    made = Exports(tmp_path / "exports")
    monkeypatch.setattr(service.engine.loading, "load_export", made.load)
    yield made
    made.mount.set()
    for engine in made.engines:
        engine.close()


def now() -> float:
    return asyncio.get_running_loop().time()


def far() -> float:
    """A deadline that does not pass."""
    return now() + PATIENCE_S


async def settle() -> None:
    """Run tasks until all of them wait."""
    for _ in range(6):
        await asyncio.sleep(0)


def advance(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Make the clock of the event loop jump ahead."""
    loop = asyncio.get_running_loop()
    before = loop.time
    monkeypatch.setattr(loop, "time", lambda: before() + seconds)


async def time_out(
    monkeypatch: pytest.MonkeyPatch, reading: Coroutine[Any, Any, None], hangs: Callable[[], object], seconds: float
) -> None:
    """Await `reading`; once it hangs, this time passes on the clock of the event loop."""
    task = asyncio.create_task(reading)
    await wait_until_async(hangs)
    advance(monkeypatch, seconds)
    await task


def tick(root: Path) -> None:
    """Wait until the clock of the file system, which has a coarse resolution, advances."""
    probe = root.parent / "probe"

    def changed() -> int:
        probe.write_text("")
        return probe.stat().st_ctime_ns

    before = changed()
    wait_until(lambda: changed() > before)


def is_freed(reference: weakref.ref[Backend]) -> bool:
    gc.collect()
    return reference() is None


# Which versions are served


async def test_higher_version_replaces_the_served_one(exports: Exports) -> None:
    running = exports.follow("a/2")
    exports.put("a/9")
    exports.put("a/10")
    await running.check()
    assert (exports.loads, running.served, running.announced) == (["a/10"], ["a/10"], ["a/10"])
    with pytest.raises(ModelNotFound):
        running.engine.models.named("a", "2")


@pytest.mark.parametrize("place", ["a/1", "a/03", "a/.partial-3", "a/new", ".hidden/3", "b/0"])
async def test_only_higher_versions_are_loaded(exports: Exports, place: str) -> None:
    running = exports.follow("a/2")
    exports.put(place)
    await running.check(2)
    assert (exports.loads, running.served) == ([], ["a/2"])


async def test_new_models_are_served_next_to_the_others(exports: Exports) -> None:
    running = exports.follow("a/2")
    exports.put("b/7")
    await running.check(2)
    assert exports.loads == ["b/7"]
    assert running.served == running.announced == ["a/2", "b/7"]
    default = running.engine.models.default(TASK)
    assert default is not None
    assert default.name == "a", "a second model of a task does not change the default"


async def test_new_models_are_served_only_if_the_settings_select_them(exports: Exports) -> None:
    running = exports.follow("a/2", models=("a", "c"))
    exports.put("b/7")
    exports.put("c/1")
    await running.check()
    assert (exports.loads, running.served) == (["c/1"], ["a/2", "c/1"])
    assert list(await running.states()) == ["a/2", "c/1"]


async def test_all_versions_are_served_together(exports: Exports, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    running = exports.follow("a/2", policy="all")
    for place in ("a/1", "a/10", "b/1"):
        exports.put(place)
    await running.check(2)
    assert exports.loads == ["a/10", "a/1", "b/1"]
    assert running.served == ["a/10", "a/2", "a/1", "b/1"]
    assert running.announced == sorted(running.served)
    assert [message for message in caplog.messages if "serving" in message] == [
        "a 10: serving in addition to 2, with its own memory",
        "a 1: serving in addition to 10, 2, with its own memory",
        "b 1: serving",
    ]


async def test_only_listed_versions_are_loaded(exports: Exports) -> None:
    running = exports.follow("a/2", policy="a:2,4")
    for place in ("a/1", "a/3", "a/4", "a/5", "b/1", "b/2"):
        exports.put(place)
    await running.check(2)
    assert (exports.loads, running.served) == (["a/4", "b/2"], ["a/4", "a/2", "b/2"])
    exports.remove("a/4")
    exports.remove("a/2")
    await running.check(2)
    assert running.served == ["b/2"], "no listed version is left"


# Which exports are refused


async def test_bad_export_is_refused_once_and_the_others_are_served(
    exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    running = exports.follow("a/2")
    exports.put("a/4", "bad")
    exports.put("b/1")
    await running.check(3)
    assert exports.loads == ["a/4", "b/1"]
    assert running.refused("a", "hash") == 1
    assert caplog.messages == ["refused: a/4: model.onnx has another hash"]
    assert running.served == running.announced == ["a/2", "b/1"]
    exports.put("a/3")
    await running.check()
    assert running.served == ["a/3", "b/1"], "the highest valid version"


async def test_bad_versions_are_refused_beside_the_others(exports: Exports) -> None:
    running = exports.follow("a/2", policy="all")
    for place, content in (("a/5", "forecaster"), ("a/4", "bad"), ("a/3", ""), ("a/1", "bad")):
        exports.put(place, content)
    await running.check(2)
    assert exports.loads == ["a/5", "a/4", "a/3", "a/1"]
    assert running.served == ["a/3", "a/2"]
    assert (running.refused("a", "hash"), running.refused("a", "task")) == (2, 1)


async def test_version_of_another_task_is_refused_once(exports: Exports, caplog: pytest.LogCaptureFixture) -> None:
    running = exports.follow("a/2")
    exports.put("a/3", "forecaster")
    await running.check(2)
    assert (exports.loads, running.served, running.announced) == (["a/3"], ["a/2"], ["a/2"])
    assert running.refused("a", "task") == 1
    assert caplog.messages == [f"refused: a/3 is for forecasting; a is served for {TASK}"]


async def test_unexpected_error_refuses_only_that_export(exports: Exports, caplog: pytest.LogCaptureFixture) -> None:
    running = exports.follow("a/2")
    exports.put("a/3", "broken")
    exports.put("b/1")
    await running.check(2)
    assert (exports.loads, running.served) == (["a/3", "b/1"], ["a/2", "b/1"])
    assert running.refused("a", "failed") == 1
    assert caplog.messages == ["a/3: loading failed", "refused: a/3: loading failed: RuntimeError"]
    assert "RuntimeError: a fault of ours" in caplog.text, "the traceback"
    assert (await running.states())["a/3"] == "a/3: loading failed: RuntimeError"


def complete_at_its_old_time(folder: Path) -> None:
    (folder / "model.onnx").write_text("complete")
    os.utime(folder / "model.onnx", (0, 0))


REPAIRS: dict[str, Callable[[Path], object]] = {
    "other file": lambda folder: (folder / "model.onnx").write_text("complete"),
    "file with its old time": complete_at_its_old_time,
    "file put in its place": lambda folder: (folder / "model.part").rename(folder / "model.onnx"),
    "folder put in its place": lambda folder: (
        folder.rename(folder.parent / ".old"),
        (folder.parent / ".new").rename(folder),
    ),
}


@pytest.mark.parametrize("repair", REPAIRS)
async def test_refused_version_is_tried_again_after_any_change(exports: Exports, repair: str) -> None:
    running = exports.follow("a/2")
    folder = exports.put("a/3", "bad")
    (folder / "model.onnx").write_text("half")
    (folder / "model.part").write_text("complete")
    exports.put("a/.new", "bad")
    await running.check()
    tick(exports.root)
    REPAIRS[repair](folder)
    await running.check()
    assert running.refused("a", "hash") == 2
    tick(exports.root)
    exports.put("a/3")
    await running.check()
    assert (exports.loads, running.served) == (["a/3"] * 3, ["a/3"])


async def test_paths_of_the_server_are_told_to_nobody(exports: Exports) -> None:
    running, folder = exports.follow("a/2"), exports.put("a/3")
    error = BadExport(f"a/3: model.onnx cannot be loaded: Load model from {folder}/model.onnx failed", "backend")
    settings = Settings(exports=exports.root)
    running.reloader = Reloader(running.engine, settings, running.metrics, {folder: RefusedExport((0, 0), error)})
    told = (await running.states())["a/3"]
    assert told == "a/3: model.onnx cannot be loaded: Load model from a/3/model.onnx failed"


# Removed versions


async def test_previous_version_is_served_when_the_served_one_is_removed(
    exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    """After two checks without its folder: one that is being replaced may be missing for a moment."""
    caplog.set_level(logging.INFO)
    running = exports.follow("a/2")
    exports.put("a/1")
    for _ in range(3):
        exports.remove("a/2")
        await running.check()
        exports.put("a/2")
        await running.check()
    assert (exports.loads, running.served) == ([], ["a/2"])
    exports.remove("a/2")
    await running.check(2)
    assert running.served == ["a/1"]
    assert caplog.messages[-2:] == ["a 1: serving", "a 2: no longer served, because its export was removed"]
    await running.check()
    assert exports.loads == ["a/1"]
    exports.put("a/2")
    await running.check()
    assert running.served == ["a/2"]


@pytest.mark.parametrize("policy", ["all", "a:1,2,3"])
async def test_removed_version_is_unloaded_and_the_others_stay(
    exports: Exports, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    running = exports.follow("a/1", "a/2", "a/3", policy=policy)
    exports.remove("a/3")
    await running.check()
    assert running.served == ["a/3", "a/2", "a/1"]
    await running.check()
    assert running.served == ["a/2", "a/1"]
    assert running.announced == ["a/1", "a/2"]
    assert caplog.messages == ["a 3: no longer served, because its export was removed"]
    exports.remove("a/1")
    await running.check(2)
    assert (running.served, exports.loads) == (["a/2"], [])
    exports.put("a/3")
    await running.check()
    assert (running.served, exports.loads) == (["a/3", "a/2"], ["a/3"])


@pytest.mark.parametrize("policy", ["latest", "all"])
async def test_last_version_stays_while_no_other_can_be_served(exports: Exports, policy: str) -> None:
    running = exports.follow("a/2", policy=policy)
    exports.put("a/3", "bad")
    exports.remove("a/2")
    await running.check(2)
    assert running.served == ["a/2"]
    exports.put("a/1")
    await running.check()
    assert running.served == ["a/1"]


async def test_model_without_exports_is_no_longer_served(exports: Exports, caplog: pytest.LogCaptureFixture) -> None:
    running = exports.follow("a/2")
    exports.put("b/1")
    exports.backends["a/2"].gate.clear()
    asked = asyncio.create_task(running.ask())
    await running.check()
    exports.remove("a")
    await running.check()
    assert running.served == ["a/2", "b/1"]
    await running.check(2)
    assert running.served == running.announced == ["b/1"]
    running.metrics.sample()
    assert 'longdoc_queue_depth{model="a"}' not in running.metrics.expose().decode()
    assert running.engine.models.default(TASK) == Default("b", "it was the only model of its task")
    assert "a 2: no longer served, because its export was removed" in caplog.messages
    exports.backends["a/2"].gate.set()
    await asked
    exports.put("a/3")
    await running.check()
    assert running.served == ["b/1", "a/3"]


@pytest.mark.parametrize("is_empty", [True, False])
async def test_missing_or_empty_folder_of_exports_changes_nothing(exports: Exports, *, is_empty: bool) -> None:
    """For example, a mount is lost."""
    running = exports.follow("a/2")
    away = exports.root.rename(exports.root.parent / "away")
    if is_empty:
        exports.root.mkdir()
    await running.check(3)
    assert running.served == ["a/2"]
    if is_empty:
        exports.root.rmdir()
    away.rename(exports.root)
    exports.put("a/3")
    await running.check()
    assert running.served == ["a/3"]


async def test_requests_of_replaced_versions_finish(exports: Exports) -> None:
    """Queued ones too, and those of a version replaced twice; the drain waits for all of them."""
    running = exports.follow("a/2")
    exports.backends["a/2"].gate.clear()
    old = [asyncio.create_task(running.ask()) for _ in range(20)]
    await settle()
    for version in (3, 4):
        exports.put(f"a/{version}")
        await running.check()
    assert running.served == ["a/4"]
    draining = asyncio.create_task(running.engine.drain())
    await settle()
    assert not draining.done()
    assert not any(task.done() for task in old)
    exports.backends["a/2"].gate.set()
    await asyncio.gather(*old)
    await asyncio.wait_for(draining, PATIENCE_S)
    assert sum(exports.backends["a/2"].batches) == 20


@pytest.mark.parametrize("policy", ["latest", "all"])
async def test_memory_of_a_removed_version_is_freed(exports: Exports, policy: str) -> None:
    running = exports.follow("a/2", policy=policy)
    gone = weakref.ref(exports.backends.pop("a/2"))
    exports.put("a/3")
    exports.remove("a/2")
    await running.check(2 if policy == "all" else 1)
    assert not is_freed(gone), "it may still have requests"
    await running.check()
    assert is_freed(gone)


# Folders that cannot be read, and mounts that do not answer


async def test_unexpected_error_in_one_check_does_not_stop_the_checks(
    exports: Exports, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(_: Path) -> FoundVersions:
        raise RuntimeError("a fault of ours")

    running = exports.follow("a/2")
    exports.put("a/3")
    with monkeypatch.context() as patched:
        patched.setattr(service.engine.folder, "find_versions", find)
        checking = asyncio.create_task(running.reloader.run())
        await wait_until_async(lambda: "a fault of ours" in caplog.text)
        await running.ask()
    await wait_until_async(lambda: running.served == ["a/3"])
    checking.cancel()


async def test_failed_scan_is_logged_once_until_it_succeeds_again(
    exports: Exports, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [errno.EMFILE, errno.EMFILE, errno.EACCES, errno.EMFILE, 0, errno.EMFILE, errno.EMFILE]

    def find(root: Path) -> FoundVersions:
        if (number := errors.pop(0) if errors else 0) != 0:
            raise OSError(number, os.strerror(number), root)
        return FoundVersions({}, {})

    monkeypatch.setattr(service.engine.folder, "find_versions", find)
    running = exports.follow("a/2")
    checking = asyncio.create_task(running.reloader.run())
    await wait_until_async(lambda: len(caplog.messages) == 4)
    checking.cancel()
    reasons = ["Too many open files", "Permission denied", "Too many open files", "Too many open files"]
    assert caplog.messages == [f"cannot check for new exports: {reason}" for reason in reasons]
    assert not any(record.exc_info for record in caplog.records)
    assert exports.loads == []


async def test_model_folder_that_cannot_be_listed_affects_only_its_model(
    exports: Exports, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = {"a", "c"}

    def list_versions(folder: Path) -> list[Path]:
        if folder.name in locked:  # simulated because root can list any folder
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return versions_of(folder)

    running = exports.follow("a/2")
    monkeypatch.setattr(artifact.loading, "versions_of", list_versions)
    exports.put("c/1")
    await running.check(2)
    exports.put("b/1")
    await running.check(2)
    assert running.served == ["a/2", "b/1"], "what is served stays, though no version of it is found"
    why = {name: f"{name}: its folder cannot be listed: Permission denied" for name in "ac"}
    assert caplog.messages == [f"refused: {why['a']}", f"refused: {why['c']}"]
    assert (running.refused("a", "unreadable"), running.refused("c", "unreadable")) == (1, 1)
    assert await running.reloader.index(far()) == [
        VersionState("a", 2, ""),
        VersionState("a", None, why["a"]),
        VersionState("b", 1, ""),
        VersionState("c", None, why["c"]),
    ]
    with pytest.raises(NotReady, match=why["c"]):
        await running.load("c")
    locked.clear()
    await running.check()
    assert running.served == ["a/2", "b/1", "c/1"]


async def test_folder_that_cannot_be_listed_is_reported(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(root: Path) -> FoundVersions:
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), root)

    running = exports.follow("a/2")
    monkeypatch.setattr(service.engine.folder, "find_versions", find)
    with pytest.raises(NotReady, match=r"^the folder of exports cannot be read: Connection timed out$"):
        await running.load("a")
    assert await running.states() == {"a/2": ""}
    assert exports.loads == []


async def test_slow_load_does_not_block_the_others(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither those of the same check nor those of later ones; it is refused at its limit, and served if it ends."""
    running = exports.follow("a/2")
    exports.put("a/3", "hangs")
    exports.put("b/1")
    await time_out(monkeypatch, running.check(), lambda: exports.loads, LOAD_TURN_S)
    assert running.served == ["a/2", "b/1"]
    exports.put("b/2")
    await running.check()
    assert running.served == ["a/2", "b/2"]
    assert (running.refused("a", "timeout"), (await running.states())["a/3"]) == (0, "being loaded")
    assert running.reloader.is_reading
    advance(monkeypatch, SLOW_LOAD_S)
    await wait_until_async(lambda: running.refused("a", "timeout"))
    await running.check(2)
    why = f"a/3: loading takes longer than {SLOW_LOAD_S:g} s, and continues"
    assert [message for message in caplog.messages if "a/3" in message] == [f"refused: {why}"]
    assert (running.refused("a", "timeout"), (await running.states())["a/3"]) == (1, why)
    exports.mount.set()
    await wait_until_async(lambda: running.served == ["a/3", "b/2"])
    assert exports.loads == ["a/3", "b/1", "b/2"]
    await wait_until_async(lambda: not running.reloader.is_reading)


async def test_export_that_changes_during_a_slow_load_is_tried_again(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state is that from before the load began."""
    running = exports.follow("a/2")
    exports.put("a/3", "hangs, bad")
    await time_out(monkeypatch, running.check(), lambda: exports.loads, LOAD_TURN_S)
    tick(exports.root)
    exports.put("a/3")
    exports.mount.set()
    await wait_until_async(lambda: not running.reloader.is_reading)
    await running.check()
    assert (exports.loads, running.served) == (["a/3", "a/3"], ["a/3"])


@pytest.mark.parametrize(
    ("why", "served"), [("removed", ["a/2", "b/1"]), ("unloaded", ["b/1"]), ("replaced", ["a/4", "b/1"])]
)
async def test_model_that_is_loaded_too_late_is_freed(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, why: str, served: list[str]
) -> None:
    running = exports.follow("a/2", "b/1")
    exports.put("a/3", "hangs")
    await time_out(monkeypatch, running.check(), lambda: exports.loads, LOAD_TURN_S)
    if why == "removed":
        exports.remove("a/3")
        await running.check()
    elif why == "unloaded":
        await running.unload("a")
    else:
        exports.put("a/4")
        await running.check()
    exports.mount.set()
    await wait_until_async(lambda: not running.reloader.is_reading)
    assert running.served == served
    loaded = weakref.ref(exports.backends.pop("a/3"))
    await wait_until_async(lambda: is_freed(loaded))


async def test_lower_version_that_is_loaded_late_gives_way_to_a_higher_one(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = exports.follow("a/3")
    exports.put("a/2", "hangs")
    exports.remove("a/3")
    await running.check()
    await time_out(monkeypatch, running.check(), lambda: exports.loads, LOAD_TURN_S)
    exports.put("a/3")  # it is back before the next check
    exports.mount.set()
    await wait_until_async(lambda: not running.reloader.is_reading)
    await running.check()
    assert running.served == ["a/3"]


# Loading and unloading by request


async def test_unloaded_model_is_served_again_when_it_is_loaded(
    exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    running = exports.follow("a/1", "a/2", "b/1", policy="all")
    for _ in range(2):  # the second call finds nothing to do
        await running.unload("a")
        exports.put("a/3")
        await running.check(2)
        assert running.served == running.announced == ["b/1"]
    assert exports.loads == []
    exports.remove("a/1")
    await running.load("a")
    assert (running.served, exports.loads) == (["b/1", "a/3", "a/2"], ["a/3", "a/2"])
    await running.load("a")
    assert exports.loads == ["a/3", "a/2"], "what is served already stays"
    assert [message for message in caplog.messages if re.search("on request|load requested", message)] == [
        "a 2: unloaded on request", "a 1: unloaded on request", "a: load requested", "a: load requested",
    ]  # fmt: skip


async def test_load_scans_the_folder_and_frees_replaced_versions(exports: Exports) -> None:
    running = exports.follow("a/2")
    gone = weakref.ref(exports.backends.pop("a/2"))
    exports.put("a/3")
    exports.put("b/1")
    await running.load("a")
    assert (running.served, exports.loads) == (["a/3"], ["a/3"])
    await running.load("a")
    assert is_freed(gone)


@pytest.mark.parametrize(
    ("policy", "left", "failed"),
    [("latest", ["a/2"], [4, 3]), ("all", ["a/2", "a/1"], [4, 3]), ("a:2,3", ["a/2"], [3])],
)
async def test_load_names_versions_that_cannot_be_served(
    exports: Exports, policy: str, left: list[str], failed: list[int]
) -> None:
    """Every load reports the error, although a check tries a version only once."""
    running = exports.follow("a/2", policy=policy)
    exports.put("a/1")
    exports.put("a/3", "bad")
    exports.put("a/4", "bad")
    await running.check()
    reasons = "; ".join(f"a/{version}: model.onnx has another hash" for version in failed)
    numbers = ", ".join(place.removeprefix("a/") for place in left)
    for _ in range(2):
        with pytest.raises(ControlRefused) as caught:
            await running.load("a")
        assert str(caught.value) == f"{reasons}; versions that are served: {numbers}"
        assert running.served == left


async def test_load_retries_a_refused_version(exports: Exports) -> None:
    """Its files are unchanged, but the versions of the other task are unloaded."""
    running = exports.follow("a/2", "b/1")
    exports.put("a/3", "forecaster")
    await running.check()
    await running.unload("a")
    await running.load("a")
    assert (running.served, exports.loads) == (["b/1", "a/3"], ["a/3", "a/3"])


async def test_failed_load_cancels_the_unloading(exports: Exports) -> None:
    """The model is served once it is repaired."""
    running = exports.follow("a/2", "b/1")
    await running.unload("a")
    exports.put("a/2", "bad")
    with pytest.raises(ControlRefused, match=r"a/2: model\.onnx has another hash; versions that are served: none"):
        await running.load("a")
    tick(exports.root)
    exports.put("a/2")
    await running.check()
    assert running.served == ["b/1", "a/2"]


@pytest.mark.parametrize("name", ["none", "a@2", "..", "", "c"])
async def test_unknown_model_can_be_neither_loaded_nor_unloaded(exports: Exports, name: str) -> None:
    running = exports.follow("a/2", "b/1", policy="c:7")
    exports.put("c/1")
    with pytest.raises(ModelNotFound, match=r"no export of that name is selected by version_policy; there are: a, b$"):
        await running.load(name)
    with pytest.raises(ModelNotFound, match=r"no model of that name is served; there are: a, b$"):
        await running.unload(name)
    assert (exports.loads, running.served) == ([], ["a/2", "b/1"])


async def test_unload_waits_for_requests_in_flight(exports: Exports) -> None:
    """It takes effect even if its wait times out; a repeated one waits again."""
    running = exports.follow("a/2", "b/1")
    exports.backends["a/2"].gate.clear()
    asked = [asyncio.create_task(running.ask()) for _ in range(5)]
    await settle()
    for _ in range(2):
        with pytest.raises(DeadlineExceeded, match="the model is unloaded; requests in flight have not finished yet"):
            await running.reloader.unload("a", now())
        await running.check()
        assert running.served == ["b/1"]
    unloading = asyncio.create_task(running.unload("a"))
    await settle()
    assert not unloading.done()
    exports.backends["a/2"].gate.set()
    await unloading
    await asyncio.gather(*asked)


async def test_unload_waits_for_a_request_that_computes_nothing(exports: Exports) -> None:
    running = exports.follow("a/2", "b/1")
    gone = weakref.ref(exports.backends.pop("a/2"))
    with running.engine.models["a"].in_flight:
        unloading = asyncio.create_task(running.unload("a"))
        await settle()
        assert not unloading.done()
    await unloading
    assert is_freed(gone)


async def test_model_may_be_unloaded_while_a_check_finds_it_removed(exports: Exports) -> None:
    running = exports.follow("a/2", "b/1")
    exports.remove("a")
    await running.check()
    async with loading_another(exports, running):
        await running.unload("a")
    assert running.served == ["b/1", "z/9"]


@asynccontextmanager
async def loading_another(exports: Exports, running: Following) -> AsyncIterator[None]:
    """A check that loads the export z/9 until the end of the block."""
    exports.put("z/9", "hangs")
    task = asyncio.create_task(running.check())
    await wait_until_async(lambda: "z/9" in exports.loads)
    yield
    exports.mount.set()
    await task


async def test_load_continues_after_its_deadline(exports: Exports) -> None:
    running = exports.follow("a/2")
    async with loading_another(exports, running):
        exports.put("a/3")
        with pytest.raises(DeadlineExceeded, match="the model is not loaded yet; loading continues"):
            await running.reloader.load("a", now())
        assert running.served == ["a/2"]
    await wait_until_async(lambda: running.served == ["a/3", "z/9"])


async def test_waiting_loads_of_a_model_are_merged_and_limited(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(service.engine.reload, "MAX_LOADS", 2)
    running = exports.follow("a/2", "b/1")
    async with loading_another(exports, running):
        waiting = [asyncio.create_task(running.load(name)) for name in ("a", "b", "a", "b", "a")]
        await settle()
        with pytest.raises(Overloaded, match="2 models wait to be loaded"):
            await running.load("c")
    await asyncio.gather(*waiting)
    assert [message for message in caplog.messages if "requested" in message] == [
        "a: load requested", "b: load requested",
    ]  # fmt: skip


async def test_requested_load_that_is_slow_does_not_block_the_others(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = exports.follow("a/2")
    exports.put("a/3", "hangs")
    loading = asyncio.create_task(running.load("a"))
    await wait_until_async(lambda: exports.loads)
    advance(monkeypatch, LOAD_TURN_S)
    exports.put("b/1")
    await running.check()
    await running.load("b")
    assert running.served == ["a/2", "b/1"]
    assert not loading.done()
    exports.mount.set()
    await loading
    assert running.served == ["a/3", "b/1"]


async def test_requested_load_that_ends_while_another_version_is_loaded_is_served(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, slow = exports.follow("a/2", policy="all"), list[threading.Thread]()
    exports.put("a/4", "hangs")
    exports.put("a/3")

    def load(folder: Path, **options: object) -> LoadedModel:
        if folder.name == "4":
            slow.append(threading.current_thread())
        else:
            exports.mount.set()
            slow[0].join(PATIENCE_S)
        return exports.load(folder, **options)

    monkeypatch.setattr(service.engine.loading, "load_export", load)
    await time_out(monkeypatch, running.load("a"), lambda: exports.loads, LOAD_TURN_S)
    assert running.served == ["a/4", "a/3", "a/2"]


async def test_requested_load_that_hangs_is_told(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    running = exports.follow("a/2")
    exports.put("a/3", "hangs")
    loading = asyncio.create_task(running.reloader.load("a", now() + 3 * SLOW_LOAD_S))
    await wait_until_async(lambda: exports.loads)
    advance(monkeypatch, LOAD_TURN_S)
    await running.check()
    advance(monkeypatch, SLOW_LOAD_S)
    why = f"^a/3: loading takes longer than {SLOW_LOAD_S:g} s, and continues; versions that are served: 2$"
    with pytest.raises(ControlRefused, match=why):
        await loading
    with pytest.raises(ControlRefused, match=why):
        await running.load("a")
    exports.mount.set()
    await wait_until_async(lambda: running.served == ["a/3"])


@pytest.mark.parametrize("seconds", [0, LOAD_TURN_S])
async def test_unload_cancels_a_running_load(exports: Exports, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    running = exports.follow("a/2", "b/1")
    exports.put("a/3", "hangs")
    loading = asyncio.create_task(running.load("a"))
    await wait_until_async(lambda: exports.loads)
    advance(monkeypatch, seconds)
    await settle()
    await running.unload("a")
    exports.mount.set()
    with pytest.raises(ControlRefused, match=r"^unloaded; versions that are served: none$"):
        await loading
    assert running.served == ["b/1"]


async def test_unload_cancels_a_waiting_load(exports: Exports) -> None:
    running = exports.follow("a/2", "b/1")
    async with loading_another(exports, running):
        loading = asyncio.create_task(running.load("a"))
        await settle()
        await running.unload("a")
    with pytest.raises(ControlRefused, match=r"^unloaded; versions that are served: none$"):
        await loading
    assert running.served == ["b/1", "z/9"]


# The index


async def test_index_lists_the_folder_with_reasons_for_unserved_versions(exports: Exports) -> None:
    running = exports.follow("a/2", "b/3", "b/2", "c/1", policy="b:2,3")
    for place, content in (("a/1", ""), ("a/3", "bad"), ("b/1", ""), ("c/2", "")):
        exports.put(place, content)
    await running.check()
    exports.put("a/4")
    await running.unload("c")
    running.engine.models.named("b@2").batcher.close()
    exports.remove("b/3")
    policy = "not selected by version_policy b:2,3"
    assert list((await running.states()).items()) == [
        ("a/4", "not loaded yet"),
        ("a/3", "a/3: model.onnx has another hash"),
        ("a/2", ""),
        ("a/1", policy),
        ("b/3", ""),
        ("b/2", "it does not accept requests"),
        ("b/1", policy),
        ("c/2", "unloaded"),
        ("c/1", "unloaded"),
    ]


class Listing:
    """Listing the folder of exports waits until the test sets `released`."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.scans = 0

    def find(self, root: Path) -> FoundVersions:
        self.scans += 1
        assert self.released.wait(PATIENCE_S)
        return find_versions(root)


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listing]:
    made = Listing()
    monkeypatch.setattr(service.engine.folder, "find_versions", made.find)
    yield made
    made.released.set()


async def test_index_waits_until_its_deadline(exports: Exports, listing: Listing) -> None:
    running = exports.follow("a/2")
    waiting = asyncio.create_task(running.states())
    with pytest.raises(DeadlineExceeded, match="the folder of exports has not been listed in time"):
        await running.reloader.index(now())
    listing.released.set()
    assert await waiting == {"a/2": ""}


async def test_folder_that_does_not_answer_is_reported(
    exports: Exports, listing: Listing, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = exports.follow("a/2")
    message = f"^the folder of exports cannot be read: no answer in {SCAN_LIMIT_S:g} s$"
    with pytest.raises(NotReady, match=message):
        await time_out(monkeypatch, running.load("a"), lambda: listing.scans, SCAN_LIMIT_S)
    with pytest.raises(NotReady, match=message):
        await running.load("a")
    with pytest.raises(OSError, match="no answer"):
        await running.check()
    assert await running.states() == {"a/2": ""}
    assert (running.reloader.is_reading, listing.scans) == (True, 1)
    listing.released.set()
    await wait_until_async(lambda: not running.reloader.is_reading)
    await running.load("a")


# Defaults


def put_defaults(exports: Exports, content: str) -> None:
    (exports.root / "defaults.json").write_text(content)


async def test_defaults_that_two_checks_in_a_row_find_are_applied(
    exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    """An editor may remove the file, or write it in parts."""
    running = exports.follow("a/2", "b/1")
    put_defaults(exports, json.dumps({TASK: "a"}))
    await running.check()
    assert running.engine.models.default(TASK) is None
    await running.check()
    assert running.engine.models.default(TASK) == Default("a", "defaults.json")
    for content in ("", "{"):
        put_defaults(exports, content)
        await running.check()
        put_defaults(exports, json.dumps({TASK: "a"}))
        await running.check()
    caplog.clear()
    put_defaults(exports, json.dumps({TASK: "c"}))
    exports.put("c/1")
    await running.check(2)
    assert running.engine.models.default(TASK) == Default("c", "defaults.json")
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps({TASK: "c"}), f"{TASK}: there is no model 'c' for this task; there are: a, b$"),
        ("{", r"Invalid JSON.*; the defaults do not change$"),
    ],
)
async def test_wrong_defaults_are_told_once(
    exports: Exports, caplog: pytest.LogCaptureFixture, content: str, message: str
) -> None:
    running = exports.follow("a/2", "b/1")
    put_defaults(exports, json.dumps({TASK: "b"}))
    await running.check(2)
    caplog.clear()
    put_defaults(exports, content)
    await running.check(4)
    (told,) = [told for told in caplog.messages if "must name a model" not in told]
    assert re.match(f"{exports.root}/defaults.json: {message}", told, re.DOTALL)
    if content == "{":
        assert running.engine.models.default(TASK) == Default("b", "defaults.json")
