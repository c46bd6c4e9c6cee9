"""The reloader on a folder of empty exports, with backends that answer their version."""

import asyncio
import errno
import gc
import json
import logging
import os
import shutil
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import service.engine.reload
from artifact.backends.base import Array, Tensors
from artifact.errors import BadExport
from artifact.loading import LoadedModel
from artifact.manifest import Manifest, newest_version, parse_manifest
from service.engine.engine import Engine
from service.engine.reload import Reloader
from service.errors import ModelNotFound
from service.metrics import Metrics
from service.settings import Settings
from tests.support.paths import EXPORTS
from tests.support.waiting import PATIENCE_S, wait_until

SAMPLES = {"text-classification": "imdb-s3", "forecasting": "ettm2"}


class Backend:
    """Answers the version of its model once the test opens the door."""

    device: Literal["cpu", "cuda"] = "cpu"

    def __init__(self, version: int) -> None:
        self.version = version
        self.door = threading.Event()
        self.door.set()

    def run(self, inputs: Tensors) -> dict[str, Array]:
        assert self.door.wait(PATIENCE_S)
        return {"logits": np.full((len(inputs["lengths"]), 2), self.version, np.float32)}


def manifest(task: str) -> Manifest:
    return parse_manifest(json.loads((newest_version(EXPORTS / SAMPLES[task]) / "manifest.json").read_text()))


MANIFESTS = {task: manifest(task) for task in SAMPLES}


class Exports:
    """A folder of exports, each a file with what loading it shall do: a task, `bad`, `broken` or `hangs`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.loads: list[str] = []
        self.backends: dict[int, Backend] = {}
        self.mount = threading.Event()
        """Set once reading what hangs goes on."""

    def put(self, place: str, content: str = "text-classification") -> Path:
        path = self.root / place / "manifest.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def load(self, folder: Path, **options: object) -> LoadedModel:
        assert options == {"format": "onnx", "device": "cpu"}
        place = f"{folder.parent.name}/{folder.name}"
        self.loads.append(place)
        content = (folder / "manifest.json").read_text()
        if content == "bad":
            raise BadExport(f"{place}: model.onnx has another hash", "hash")
        if content == "hangs":
            assert self.mount.wait(PATIENCE_S)
            content = "text-classification"
        if content == "broken":
            raise RuntimeError("a fault of ours")
        update = {"name": folder.parent.name, "version": int(folder.name)}
        backend = self.backends[int(folder.name)] = Backend(int(folder.name))
        return LoadedModel(MANIFESTS[content].model_copy(update=update), backend, "onnx", 0.1)


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Exports:
    made = Exports(tmp_path / "exports")
    monkeypatch.setattr(service.engine.reload, "load_export", made.load)
    return made


@pytest.fixture
def settings(exports: Exports) -> Settings:
    return Settings.model_construct(exports=exports.root, backend="onnx", device="cpu", reload_s=0.01)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def engine(exports: Exports, settings: Settings, metrics: Metrics) -> AsyncIterator[Engine]:
    """Serves version 2 of the model `a`."""
    folder = exports.put("a/2").parent
    made = Engine([exports.load(folder, format="onnx", device="cpu")], settings, metrics)
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
    outcome = await engine.models.classifier(name).batcher.infer([b"x"], asyncio.get_running_loop().time() + PATIENCE_S)
    return float(outcome.outputs[0, 0])


async def test_higher_version_is_served(exports: Exports, engine: Engine, reloader: Reloader, metrics: Metrics) -> None:
    assert await ask(engine) == 2
    exports.put("a/9")
    exports.put("a/10")
    await reloader.look()
    assert exports.loads == ["a/10"]
    assert await ask(engine) == 10
    assert served(engine) == {"a": 10}
    assert announced(metrics) == [("a", "10")]
    assert engine.models.named("a", "10").manifest.version == 10
    with pytest.raises(ModelNotFound):
        engine.models.named("a", "2")


@pytest.mark.parametrize("place", ["a/1", "a/03", "a/.partial-3", "a/new", ".hidden/3", "b/0"])
async def test_what_is_no_higher_version_is_not_loaded(
    exports: Exports, engine: Engine, reloader: Reloader, place: str
) -> None:
    exports.put(place)
    for _ in range(2):
        await reloader.look()
    assert exports.loads == []
    assert served(engine) == {"a": 2}


async def test_new_names_are_served_beside(
    exports: Exports, engine: Engine, reloader: Reloader, metrics: Metrics
) -> None:
    exports.put("b/7")
    await reloader.look()
    await reloader.look()
    assert exports.loads == ["b/7"]
    assert served(engine) == {"a": 2, "b": 7}
    assert announced(metrics) == [("a", "2"), ("b", "7")]
    assert (await ask(engine), await ask(engine, "b")) == (2, 7)


async def test_bad_version_is_refused_once(
    exports: Exports, engine: Engine, reloader: Reloader, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    exports.put("a/3", "bad")
    for _ in range(3):
        await reloader.look()
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
    """Wait until the clock of the file system, which has steps, has moved."""
    probe = root.parent / "probe"

    def changed() -> int:
        probe.write_text("")
        return probe.stat().st_ctime_ns

    before = changed()
    wait_until(lambda: changed() > before)


@pytest.mark.parametrize("repair", REPAIRS)
async def test_refused_version_is_tried_again_once_anything_of_it_has_changed(
    exports: Exports, engine: Engine, reloader: Reloader, metrics: Metrics, repair: str
) -> None:
    folder = exports.put("a/3", "bad").parent
    (folder / "model.onnx").write_text("half")
    (folder / "model.part").write_text("complete")
    exports.put("a/.new", "bad")
    await reloader.look()
    tick(exports.root)
    REPAIRS[repair](folder)
    if repair != "manifest":
        await reloader.look()
        assert refused(metrics, "a", "hash") == 2
        tick(exports.root)
    exports.put("a/3")
    await reloader.look()
    assert exports.loads == ["a/3"] * (2 if repair == "manifest" else 3)
    assert await ask(engine) == 3


async def test_bad_version_does_not_keep_the_others_from_being_served(
    exports: Exports, engine: Engine, reloader: Reloader
) -> None:
    exports.put("a/3", "bad")
    exports.put("b/1")
    await reloader.look()
    exports.put("a/4")
    await reloader.look()
    assert served(engine) == {"a": 4, "b": 1}


async def test_version_of_another_task_is_refused_once(
    exports: Exports, engine: Engine, reloader: Reloader, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    exports.put("a/3", "forecasting")
    for _ in range(2):
        await reloader.look()
    assert exports.loads == ["a/3"]
    assert refused(metrics, "a", "task") == 1
    assert "a/3 does forecasting; a is served for text-classification" in caplog.text
    assert announced(metrics) == [("a", "2")]
    assert await ask(engine) == 2


async def test_folder_that_is_gone_or_empty_changes_nothing(
    exports: Exports, engine: Engine, reloader: Reloader
) -> None:
    away = exports.root.rename(exports.root.parent / "away")
    await reloader.look()
    exports.root.mkdir()
    await reloader.look()
    assert await ask(engine) == 2
    exports.root.rmdir()
    away.rename(exports.root)
    exports.put("a/3")
    await reloader.look()
    assert await ask(engine) == 3


async def test_fault_of_one_look_does_not_end_the_looking(
    exports: Exports, engine: Engine, reloader: Reloader, caplog: pytest.LogCaptureFixture
) -> None:
    exports.put("a/3", "broken")
    running = asyncio.create_task(reloader.run())
    async with asyncio.timeout(PATIENCE_S):
        while "a fault of ours" not in caplog.text:  # noqa: ASYNC110  # the log knows of no event
            await asyncio.sleep(0.01)
        assert await ask(engine) == 2
        exports.put("a/3")
        while served(engine) != {"a": 3}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_look_that_cannot_read_is_told_once_until_that_changes(
    exports: Exports, reloader: Reloader, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [errno.EMFILE, errno.EMFILE, errno.EACCES, errno.EMFILE, 0, errno.EMFILE, errno.EMFILE]
    ended = asyncio.Event()

    def find(root: Path) -> list[Path]:
        if (number := errors.pop(0) if errors else 0) != 0:
            raise OSError(number, os.strerror(number), root)
        if not errors:
            asyncio.run_coroutine_threadsafe(end(), loop)
        return []

    async def end() -> None:
        ended.set()

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(service.engine.reload, "find_versions", find)
    running = asyncio.create_task(reloader.run())
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    reasons = ["Too many open files", "Permission denied", "Too many open files", "Too many open files"]
    assert caplog.messages == [f"cannot look for new exports: {reason}" for reason in reasons]
    assert not any(record.exc_info for record in caplog.records)
    assert exports.loads == []


async def settle() -> None:
    """Let tasks go as far as they can."""
    for _ in range(6):
        await asyncio.sleep(0)


async def test_request_that_has_begun_ends_with_its_version(
    exports: Exports, engine: Engine, reloader: Reloader
) -> None:
    """Also what waits, and of a version replaced before the last; drain waits for all."""
    exports.backends[2].door.clear()
    asked = {2: [asyncio.create_task(ask(engine)) for _ in range(20)]}
    await settle()
    for version in (3, 4):
        exports.put(f"a/{version}")
        await reloader.look()
        asked[version] = [asyncio.create_task(ask(engine)) for _ in range(20)]
        await settle()
    assert served(engine) == {"a": 4}
    draining = asyncio.create_task(engine.drain())
    await settle()
    assert not draining.done()
    assert not any(task.done() for task in asked[2])
    exports.backends[2].door.set()
    for version, tasks in asked.items():
        assert await asyncio.gather(*tasks) == [version] * 20
    await asyncio.wait_for(draining, PATIENCE_S)


async def test_replaced_model_is_let_go(engine: Engine, reloader: Reloader, exports: Exports) -> None:
    gone = weakref.ref(exports.backends.pop(2))
    exports.put("a/3")
    await reloader.look()
    assert gone() is not None, "it may still have requests"
    await reloader.look()
    gc.collect()
    assert gone() is None
    assert served(engine) == {"a": 3}


async def test_second_model_of_a_task_changes_no_answer(
    engine: Engine, reloader: Reloader, exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    exports.put("a/3")
    await reloader.look()
    exports.put("b/1")
    await reloader.look()
    assert served(engine) == {"a": 3, "b": 1}
    assert engine.models.classifier(None).manifest.name == "a"
    assert not [record for record in caplog.records if record.levelno == logging.WARNING]


async def test_sound_version_before_a_bad_one_is_served(exports: Exports, engine: Engine, reloader: Reloader) -> None:
    exports.put("a/3")
    exports.put("a/4", "bad")
    for _ in range(2):
        await reloader.look()
    assert exports.loads == ["a/4", "a/3"]
    assert served(engine) == {"a": 3}


async def test_export_whose_reading_hangs_holds_up_nothing_else(
    exports: Exports,
    engine: Engine,
    reloader: Reloader,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(service.engine.reload, "HANGS_S", 0.01)
    exports.put("a/3", "hangs")
    await reloader.look()
    monkeypatch.setattr(service.engine.reload, "HANGS_S", PATIENCE_S)
    exports.put("b/1")
    await reloader.look()
    assert served(engine) == {"a": 2, "b": 1}
    assert exports.loads == ["a/3", "b/1"]
    assert caplog.text.count("a/3 cannot be read: no answer in 0.01 s") == 1
    assert reloader.is_reading
    exports.mount.set()
    async with asyncio.timeout(PATIENCE_S):
        while served(engine) != {"a": 3, "b": 1}:
            await reloader.look()
    assert exports.loads == ["a/3", "b/1"]
    assert not reloader.is_reading


async def test_version_before_is_served_when_the_one_served_is_gone(
    engine: Engine, reloader: Reloader, exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    """At the second look that misses it: a folder that is being replaced may be away for a moment."""
    caplog.set_level(logging.INFO)
    exports.put("a/1")
    shutil.rmtree(exports.root / "a" / "2")
    await reloader.look()
    assert served(engine) == {"a": 2}
    await reloader.look()
    assert served(engine) == {"a": 1}
    assert "a 1: serving, since version 2 is gone" in caplog.messages
    await reloader.look()
    assert exports.loads == ["a/1"]
    exports.put("a/2")
    await reloader.look()
    assert served(engine) == {"a": 2}


async def test_version_that_comes_back_at_once_stays(engine: Engine, reloader: Reloader, exports: Exports) -> None:
    exports.put("a/1")
    for _ in range(3):
        shutil.rmtree(exports.root / "a" / "2")
        await reloader.look()
        exports.put("a/2")
        await reloader.look()
    assert served(engine) == {"a": 2}
    assert exports.loads == []


async def test_model_whose_export_is_gone_is_served_no_more(
    engine: Engine, reloader: Reloader, metrics: Metrics, exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    exports.put("b/1")
    await reloader.look()
    assert engine.models.classifier(None).manifest.name == "a"
    shutil.rmtree(exports.root / "a")
    await reloader.look()
    assert served(engine) == {"a": 2, "b": 1}
    await reloader.look()
    assert served(engine) == {"b": 1}
    assert announced(metrics) == [("b", "1")]
    assert 'longdoc_queue_depth{model="a"}' not in metrics.expose().decode()
    assert engine.models.classifier(None).manifest.name == "b"
    assert "a 2: its export is gone; it is served no more" in caplog.messages
    exports.put("a/3")
    await reloader.look()
    assert served(engine) == {"a": 3, "b": 1}


async def test_requests_of_a_model_that_is_removed_end_with_it(
    engine: Engine, reloader: Reloader, exports: Exports
) -> None:
    exports.put("b/1")
    await reloader.look()
    batcher = engine.models["a"].batcher
    exports.backends[2].door.clear()
    asked = asyncio.create_task(batcher.infer([b"x"], asyncio.get_running_loop().time() + PATIENCE_S))
    await asyncio.sleep(0)
    shutil.rmtree(exports.root / "a")
    for _ in range(3):
        await reloader.look()
    assert served(engine) == {"b": 1}
    exports.backends[2].door.set()
    assert (await asked).outputs.tolist() == [[2, 2]]


@pytest.mark.parametrize("is_empty", [True, False])
async def test_folder_that_is_gone_as_a_whole_ends_nothing(
    engine: Engine, reloader: Reloader, exports: Exports, *, is_empty: bool
) -> None:
    """As when a mount is lost."""
    shutil.rmtree(exports.root)
    if is_empty:
        exports.root.mkdir()
    for _ in range(3):
        await reloader.look()
    assert served(engine) == {"a": 2}
