"""The folder of exports: what it holds, read in daemon threads.

A network mount may never answer. The end of the process does not wait for daemon threads, unlike those of an executor.
"""

import asyncio
import contextlib
import errno
import functools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from artifact.defaults import read_defaults
from artifact.errors import BadExport
from artifact.loading import find_versions
from service.settings import Settings
from service.versions import VersionPolicy

T = TypeVar("T")

SCAN_LIMIT_S = 60.0
"""Time limit of a scan. While one that takes longer continues, no other one is started."""

FileState = tuple[int, int]
"""State of the files of an export; see `state_of`."""


class Export(NamedTuple):
    """The folder of one version of a model."""

    path: Path
    state: FileState
    """State of its files when it was listed."""

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.path.parent.name

    @property
    def version(self) -> int:
        """Version of the model."""
        return int(self.path.name)

    @property
    def place(self) -> str:
        """`name/version`, for logs and errors."""
        return f"{self.name}/{self.version}"


class Scan(NamedTuple):
    """What the folder of exports holds of the models that the settings select."""

    exports: Mapping[str, Mapping[int, Export]] = MappingProxyType({})
    """Name -> version -> export, sorted by name."""
    unreadable: Mapping[str, BadExport] = MappingProxyType({})
    """Name of a model whose folder cannot be listed -> why."""
    defaults: Mapping[str, str] | str = MappingProxyType({})
    """Content of `defaults.json`, or why it cannot be read."""

    def selected(self, policy: VersionPolicy) -> dict[str, dict[int, Export]]:
        """The exports that a version policy selects; names of which it selects none are left out."""
        chosen = {
            name: {version: export for version, export in exports.items() if policy.selects(name, version)}
            for name, exports in self.exports.items()
        }
        return {name: exports for name, exports in chosen.items() if exports}


def list_exports(settings: Settings) -> Scan:
    """List the exports of the models that the settings select: those of `models`, or all if it is empty.

    Raises: as `find_versions`.
    """
    found = find_versions(settings.exports)
    names = settings.models or {*found.versions, *found.unreadable}
    exports = {
        name: {int(path.name): Export(path, state_of(path)) for path in paths}
        for name, paths in found.versions.items()
        if name in names
    }
    unreadable = {name: error for name, error in found.unreadable.items() if name in names}
    try:
        return Scan(exports, unreadable, read_defaults(settings.exports))
    except BadExport as error:
        return Scan(exports, unreadable, str(error))


def state_of(folder: Path) -> FileState:
    """Time of the last change to the folder or a file in it, in nanoseconds, and the total size of its files.

    An export that was refused is tried again when its state changes. The size is part of the state because clocks of
    file systems advance in steps of milliseconds: a file that grows within one step keeps its time.
    """
    try:
        found = [path.stat() for path in (folder, *folder.iterdir())]
    except OSError:
        return 0, 0
    return max(stat.st_ctime_ns for stat in found), sum(stat.st_size for stat in found)


class ExportFolder:
    """Scans the folder of exports of the settings, in one thread at a time; used only from the event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._scan: asyncio.Future[Scan] | None = None
        """The scan that was started last."""
        self._limit = 0.0
        """Its time limit, on the clock of the event loop."""

    @property
    def is_reading(self) -> bool:
        """Whether a thread is still reading."""
        return self._scan is not None and not self._scan.done()

    async def scan(self) -> Scan:
        """List the exports, in a scan that begins after this call; calls that wait for the running one share the next.

        Returns: what the folder holds; an empty scan if it does not exist or has no export.
        Raises: OSError if it cannot be listed, or a scan has exceeded SCAN_LIMIT_S.

        """
        if self._scan is not None:
            await self._wait(self._scan)
        if self._scan is None or self._scan.done():
            self._scan = run_in_daemon(functools.partial(_list, self._settings))
            self._limit = asyncio.get_running_loop().time() + SCAN_LIMIT_S
        scan = self._scan
        await self._wait(scan)
        if not scan.done():
            raise OSError(errno.EIO, f"no answer in {SCAN_LIMIT_S:g} s")
        return scan.result()

    async def _wait(self, scan: asyncio.Future[Scan]) -> None:
        """Wait until a scan ends, or until its time limit."""
        left_s = self._limit - asyncio.get_running_loop().time()
        await asyncio.wait([scan], timeout=max(0.0, left_s))


def _list(settings: Settings) -> Scan:
    """The exports; an empty scan if there is none."""
    try:
        return list_exports(settings)
    except BadExport:
        return Scan()


def run_in_daemon(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run a function in a daemon thread; the future is its result, or the exception it raised."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(mark_retrieved)

    def run() -> None:
        finish: Callable[[], None]
        try:
            finish = functools.partial(future.set_result, function())
        except Exception as error:
            finish = functools.partial(future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(finish)

    threading.Thread(target=run, name="exports", daemon=True).start()
    return future


def mark_retrieved(future: asyncio.Future[Any]) -> None:
    """Mark the exception of a future as retrieved: asyncio logs exceptions that nobody has retrieved."""
    if not future.cancelled():
        future.exception()
