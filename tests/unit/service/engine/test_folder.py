"""The folder of exports: what is listed, and what happens when it does not answer."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from artifact.errors import BadExport
from artifact.loading import FoundVersions, find_versions
from service.engine import folder
from service.engine.folder import Export, ExportFolder, Scan, list_exports, run_in_daemon, state_of
from service.settings import Settings
from service.versions import VersionPolicy
from tests.support.waiting import PATIENCE_S, wait_until_async


def exported(root: Path, *places: str) -> Settings:
    """Settings with a folder that holds these exports."""
    for place in places:
        (root / place).mkdir(parents=True)
    return Settings(exports=root)


def test_exports_and_defaults_are_listed(tmp_path: Path) -> None:
    settings, path = exported(tmp_path, "mood/3"), tmp_path / "mood" / "3"
    (tmp_path / "defaults.json").write_text('{"text-classification": "mood"}')
    found = list_exports(settings)
    assert found == Scan({"mood": {3: Export(path, state_of(path))}}, {}, {"text-classification": "mood"})
    export = found.exports["mood"][3]
    assert (export.name, export.version, export.place) == ("mood", 3, "mood/3")
    (tmp_path / "defaults.json").write_text("[]")
    assert str(list_exports(settings).defaults).startswith(f"{tmp_path}/defaults.json: ")


def test_policy_selects_among_the_exports(tmp_path: Path) -> None:
    found = list_exports(exported(tmp_path, "a/1", "a/2", "b/1"))
    selected = {
        text: {name: list(exports) for name, exports in found.selected(VersionPolicy.parse(text)).items()}
        for text in ("latest", "a:1", "b:2")
    }
    assert selected == {"latest": {"a": [2, 1], "b": [1]}, "a:1": {"a": [1], "b": [1]}, "b:2": {"a": [2, 1]}}


async def test_folder_that_does_not_exist_is_an_empty_scan(tmp_path: Path) -> None:
    settings = Settings(exports=tmp_path / "none")
    assert await ExportFolder(settings).scan() == Scan()
    with pytest.raises(BadExport, match="is not a folder"):
        list_exports(settings)


async def test_scans_run_one_at_a_time_and_begin_after_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that wait for the running scan share the next one. A scan at its time limit is not begun again."""
    listed, may_end = list[Path](), threading.Event()

    def find(root: Path) -> FoundVersions:
        listed.append(root)
        assert may_end.wait(PATIENCE_S)
        return find_versions(root)

    monkeypatch.setattr(folder, "find_versions", find)
    monkeypatch.setattr(folder, "SCAN_LIMIT_S", 0.01)
    exports = ExportFolder(exported(tmp_path, "mood/3"))
    for _ in range(2):
        with pytest.raises(OSError, match=r"no answer in 0\.01 s"):
            await exports.scan()
    await wait_until_async(lambda: listed)
    assert (exports.is_reading, len(listed)) == (True, 1)
    monkeypatch.setattr(folder, "SCAN_LIMIT_S", PATIENCE_S)
    may_end.set()
    await wait_until_async(lambda: not exports.is_reading)
    assert list((await exports.scan()).exports) == ["mood"]
    may_end.clear()
    scans = [asyncio.create_task(exports.scan())]
    await wait_until_async(lambda: len(listed) == 3)
    scans += [asyncio.create_task(exports.scan()) for _ in range(20)]
    await asyncio.sleep(0)
    may_end.set()
    found = await asyncio.gather(*scans)
    assert all(list(scan.exports) == ["mood"] for scan in found)
    assert len(listed) == 4


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
