"""The folder of exports: list it and load from it, in daemon threads with a time limit.

A network mount may never answer. The end of the process does not wait for daemon threads, unlike those of an executor.
"""

import asyncio
import contextlib
import errno
import functools
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from artifact.defaults import read_defaults
from artifact.errors import BadExport
from artifact.loading import FoundVersions, LoadedModel, find_versions, load_export
from service.errors import DeadlineExceeded
from service.settings import Settings

T = TypeVar("T")

SCAN_LIMIT_S = 60.0
"""Time limit of a scan. One that takes longer continues, and its result is used if it ever ends."""
LOAD_TURN_S = 5.0
"""Time that a check waits for a load before it goes on with the others."""
LOAD_LIMIT_S = 120.0
"""Time limit of a load. One that takes longer is refused; it continues, and its result is used if it ever ends. Longer
than the limit of one batch in `artifact.backends.base`, so that a model that never ends is usually stopped before."""

State = tuple[int, int]
"""State of the files of an export; see `state_of`."""


class Export(NamedTuple):
    """The folder of one version of a model."""

    path: Path
    state: State
    """State of its files when it was listed."""


class Scan(NamedTuple):
    """What the folder of exports holds of the selected models; empty if the folder does not exist or has no export."""

    exports: Mapping[str, Mapping[int, Export]] = MappingProxyType({})
    """Name -> version -> export."""
    unreadable: Mapping[str, BadExport] = MappingProxyType({})
    """Name of a model whose folder cannot be listed -> why."""
    defaults: Mapping[str, str] | str = MappingProxyType({})
    """Content of `defaults.json`, or why it cannot be read."""


def find_selected(settings: Settings) -> FoundVersions:
    """Folders of the versions of each model that the settings select: those of `models`, or all if it is empty.

    Raises: as `find_versions`.
    """
    found = find_versions(settings.exports)
    if not settings.models:
        return found
    return FoundVersions(
        {name: folders for name, folders in found.versions.items() if name in settings.models},
        {name: error for name, error in found.unreadable.items() if name in settings.models},
    )


class Load(NamedTuple):
    """An export that is being loaded, or has been."""

    state: State
    """State of its files before it was loaded."""
    started: float
    """On the clock of the event loop."""
    future: asyncio.Future[LoadedModel]


class ExportFolder:
    """Lists the folder of exports and loads from it; used only from the event loop.

    Args:
        settings: the folder, and how to load an export.

    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loads: dict[Path, Load] = {}
        """Loads whose result nobody has taken."""
        self._scan: asyncio.Future[Scan] | None = None
        """The scan that was started last."""
        self._scan_is_overdue = False

    @property
    def is_reading(self) -> bool:
        """Whether a thread is still reading."""
        running: list[asyncio.Future[Any]] = [load.future for load in self._loads.values()]
        if self._scan is not None:
            running.append(self._scan)
        return any(not future.done() for future in running)

    def is_loading(self, path: Path) -> bool:
        """Whether an export is being loaded, or has been and nobody has taken the result."""
        return path in self._loads

    def is_overdue(self, path: Path) -> bool:
        """Whether loading an export has exceeded LOAD_LIMIT_S and has not ended."""
        load = self._loads.get(path)
        return load is not None and not load.future.done() and self._left_s(path, LOAD_LIMIT_S) <= 0

    async def scan(self) -> Scan:
        """List every export, in a scan that begins now. Raises: OSError if that fails or exceeds SCAN_LIMIT_S."""
        if self._scan is not None and not self._scan.done():  # it began before this call
            with contextlib.suppress(OSError):
                await self._wait_for(self._scan)
        return await self._wait_for(self._begin())

    async def shared_scan(self, deadline: float) -> Scan:
        """The running scan, or a new one if none runs; empty if the folder cannot be listed or does not answer.

        Args:
            deadline: time limit on the clock of the event loop; the scan continues after it.

        Raises: DeadlineExceeded.

        """
        scan = self._begin()
        if not scan.done() and not self._scan_is_overdue:
            try:
                async with asyncio.timeout_at(deadline):
                    await asyncio.wait([scan])
            except TimeoutError:
                raise DeadlineExceeded("the folder of exports has not been listed in time") from None
        if scan.done():
            with contextlib.suppress(OSError):  # the reloader logs it
                return scan.result()
        return Scan()

    async def load(self, export: Export) -> Load | None:
        """Load an export; None if that takes longer than LOAD_TURN_S.

        The load then continues, and the next call for this export returns at once, with the result if there is one.
        """
        path = export.path
        if path not in self._loads:
            now = asyncio.get_running_loop().time()
            self._loads[path] = Load(export.state, now, run_in_daemon(functools.partial(self._load, path)))
        await self.wait(path, LOAD_TURN_S)
        return self._loads.pop(path) if self._loads[path].future.done() else None

    def drop_others(self, paths: Collection[Path]) -> None:
        """Free the models that were loaded but that nobody will take: those of exports other than `paths`."""
        for path in [path for path, load in self._loads.items() if load.future.done() and path not in paths]:
            del self._loads[path]

    async def wait(self, path: Path, limit_s: float) -> None:
        """Wait for a load, at most until `limit_s` after it began."""
        await asyncio.wait([self._loads[path].future], timeout=max(0.0, self._left_s(path, limit_s)))

    def _left_s(self, path: Path, limit_s: float) -> float:
        """Seconds until a load has taken `limit_s`."""
        return self._loads[path].started + limit_s - asyncio.get_running_loop().time()

    async def _wait_for(self, scan: asyncio.Future[Scan]) -> Scan:
        """Wait for a scan; return its result. Raises: OSError."""
        await asyncio.wait([scan], timeout=0.0 if self._scan_is_overdue else SCAN_LIMIT_S)
        if not scan.done():
            self._scan_is_overdue = True
            raise OSError(errno.ETIMEDOUT, f"no answer in {SCAN_LIMIT_S:g} s")
        return scan.result()

    def _begin(self) -> asyncio.Future[Scan]:
        """Start a scan, unless one is running; return it."""
        if self._scan is None or self._scan.done():
            self._scan, self._scan_is_overdue = run_in_daemon(self._list), False
        return self._scan

    def _list(self) -> Scan:
        root = self._settings.exports
        try:
            found, unreadable = find_selected(self._settings)
        except BadExport:
            return Scan()
        exports = {
            name: {int(path.name): Export(path, state_of(path)) for path in paths} for name, paths in found.items()
        }
        try:
            return Scan(exports, unreadable, read_defaults(root))
        except BadExport as error:
            return Scan(exports, unreadable, str(error))

    def _load(self, path: Path) -> LoadedModel:
        chosen = self._settings
        return load_export(path, format=chosen.backend, device=chosen.device, precision=chosen.precision)


def state_of(folder: Path) -> State:
    """Time of the last change to the folder or a file in it, in nanoseconds, and the total size of its files.

    An export that was refused is tried again when its state changes. The size is part of the state because clocks of
    file systems advance in steps of milliseconds: a file that grows within one step keeps its time.
    """
    try:
        found = [path.stat() for path in (folder, *folder.iterdir())]
    except OSError:
        return 0, 0
    return max(stat.st_ctime_ns for stat in found), sum(stat.st_size for stat in found)


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
