"""The folder of exports: what is listed and loaded, and what happens when it does not answer."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from artifact.errors import BadExport
from artifact.loading import FoundVersions, LoadedModel, find_versions
from service.engine import folder
from service.engine.folder import Export, ExportFolder, Scan, run_in_daemon, state_of
from service.errors import DeadlineExceeded
from service.settings import Settings
from tests.support.models import classifier
from tests.support.waiting import PATIENCE_S, wait_until_async


class Mount:
    """Reading what is on it waits until the test opens it."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.reads: list[Path] = []

    def find(self, root: Path) -> FoundVersions:
        self._read(root)
        return find_versions(root)

    def load(self, path: Path, **options: object) -> LoadedModel:
        assert options == {"format": "torchscript", "device": "cpu", "precision": "float32"}
        self._read(path)
        return classifier(path.parent.name, int(path.name))

    def _read(self, path: Path) -> None:
        self.reads.append(path)
        assert self.is_open.wait(PATIENCE_S)


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Mount:
    made = Mount()
    monkeypatch.setattr(folder, "find_versions", made.find)
    monkeypatch.setattr(folder, "load_export", made.load)
    return made


@pytest.fixture
def exports(tmp_path: Path) -> ExportFolder:
    """A folder with one export."""
    (tmp_path / "mood" / "3").mkdir(parents=True)
    return ExportFolder(Settings(exports=tmp_path, backend="torchscript", device="cpu"))


def far() -> float:
    """A deadline that does not come."""
    return asyncio.get_running_loop().time() + PATIENCE_S


async def test_scan_lists_exports_and_defaults(exports: ExportFolder, tmp_path: Path) -> None:
    path = tmp_path / "mood" / "3"
    (tmp_path / "defaults.json").write_text('{"text-classification": "mood"}')
    expected = Scan({"mood": {3: Export(path, state_of(path))}}, {}, {"text-classification": "mood"})
    assert await exports.scan() == await exports.shared_scan(far()) == expected
    (tmp_path / "defaults.json").write_text("[]")
    assert str((await exports.scan()).defaults).startswith(f"{tmp_path}/defaults.json: ")
    assert not exports.is_reading


async def test_folder_that_does_not_exist_is_an_empty_scan(tmp_path: Path) -> None:
    assert await ExportFolder(Settings(exports=tmp_path / "none")).scan() == Scan()


async def test_scan_begins_after_the_call_and_a_shared_one_may_have_begun_before(
    exports: ExportFolder, mount: Mount
) -> None:
    shared = [asyncio.create_task(exports.shared_scan(far())) for _ in range(3)]
    await asyncio.sleep(0)
    own = asyncio.create_task(exports.scan())
    await asyncio.sleep(0)
    assert exports.is_reading
    mount.is_open.set()
    found = await asyncio.gather(*shared, own)
    assert all(scan == found[0] for scan in found)
    assert len(mount.reads) == 2


async def test_scan_that_takes_too_long_is_an_error_and_not_begun_again(
    exports: ExportFolder, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DeadlineExceeded, match="the folder of exports has not been listed in time"):
        await exports.shared_scan(asyncio.get_running_loop().time())
    monkeypatch.setattr(folder, "SCAN_LIMIT_S", 0.01)
    for _ in range(2):
        with pytest.raises(OSError, match=r"no answer in 0\.01 s"):
            await exports.scan()
    assert await exports.shared_scan(far()) == Scan(), "at once: nothing is known"
    await wait_until_async(lambda: mount.reads)
    monkeypatch.setattr(folder, "SCAN_LIMIT_S", PATIENCE_S)
    mount.is_open.set()
    await wait_until_async(lambda: not exports.is_reading)
    assert len(mount.reads) == 1
    assert list((await exports.scan()).exports) == ["mood"]


async def test_load_that_takes_too_long_continues_and_its_result_is_taken_once(
    exports: ExportFolder, mount: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mood" / "3"
    monkeypatch.setattr(folder, "LOAD_TURN_S", 0.01)
    assert await exports.load(Export(path, (1, 1))) is None
    assert (exports.is_loading(path), exports.is_overdue(path), exports.is_reading) == (True, False, True)
    monkeypatch.setattr(folder, "LOAD_LIMIT_S", 0.01)
    assert await exports.load(Export(path, (2, 2))) is None
    assert (exports.is_loading(path), exports.is_overdue(path), exports.is_reading) == (True, True, True)
    mount.is_open.set()
    async with asyncio.timeout(PATIENCE_S):
        while (load := await exports.load(Export(path, (2, 2)))) is None:  # noqa: ASYNC110  # it is loaded by a thread
            await asyncio.sleep(0.001)
    assert load.state == (1, 1), "of the files before the load began"
    assert load.future.result().manifest.version == 3
    assert mount.reads == [path]
    assert (exports.is_loading(path), exports.is_overdue(path), exports.is_reading) == (False, False, False)


async def test_error_of_a_load_is_its_result(
    exports: ExportFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_export(path: Path, **_: object) -> LoadedModel:
        raise BadExport(f"{path.parent.name}/{path.name}: no", "hash")

    monkeypatch.setattr(folder, "load_export", load_export)
    load = await exports.load(Export(tmp_path / "mood" / "3", (1, 1)))
    assert load is not None
    with pytest.raises(BadExport, match="mood/3: no"):
        load.future.result()


def test_state_changes_with_the_files(tmp_path: Path) -> None:
    states = [state_of(tmp_path)]
    for content in ("half", "complete"):
        (tmp_path / "model.onnx").write_text(content)
        os.utime(tmp_path / "model.onnx", (0, 0))
        states.append(state_of(tmp_path))
    assert len(set(states)) == 3
    assert state_of(tmp_path / "none") == (0, 0)


def test_thread_may_end_after_the_loop() -> None:
    """Its result is dropped without an error."""
    may_end, has_ended = threading.Event(), threading.Event()

    def read() -> None:
        assert may_end.wait(PATIENCE_S)
        has_ended.set()

    async def begin() -> None:
        run_in_daemon(read)

    before = set(threading.enumerate())
    asyncio.run(begin())
    (thread,) = set(threading.enumerate()) - before
    may_end.set()
    thread.join(PATIENCE_S)
    assert has_ended.is_set()
