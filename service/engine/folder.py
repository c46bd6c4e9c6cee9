"""The folder of exports: list it and load from it, in daemon threads with a time limit.

A network mount may never answer. The end of the process does not wait for daemon threads, unlike those of an executor.
"""

import asyncio
import contextlib
import errno
import functools
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from artifact.defaults import TaskName, read_defaults
from artifact.errors import BadExport
from artifact.loading import FoundVersions, LoadedModel, find_versions, load_export
from service.errors import DeadlineExceeded
from service.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")

READ_TIMEOUT_S = 60.0
"""Time limit of a scan or a load. A read that takes longer continues, and its result is used if it ever ends."""

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
    defaults: Mapping[TaskName, str] | str = MappingProxyType({})
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
        self._overdue: set[Path] = set()
        """Exports whose load has exceeded READ_TIMEOUT_S."""
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
        """Whether an export is being loaded."""
        return path in self._loads

    def is_overdue(self, path: Path) -> bool:
        """Whether loading an export has exceeded READ_TIMEOUT_S and has not ended."""
        return path in self._overdue

    async def scan(self) -> Scan:
        """List every export, in a scan that begins now. Raises: OSError if that fails or exceeds READ_TIMEOUT_S."""
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
        """Load an export; None if that takes longer than READ_TIMEOUT_S.

        The load then continues, and the next call for this export returns at once, with the result if there is one.
        """
        path = export.path
        if path not in self._loads:
            self._loads[path] = Load(export.state, run_in_daemon(functools.partial(self._load, path)))
        result = self._loads[path].future
        limit_s = 0.0 if path in self._overdue else READ_TIMEOUT_S
        await asyncio.wait([result], timeout=limit_s)
        if result.done():
            self._overdue.discard(path)
            return self._loads.pop(path)
        if limit_s:
            self._overdue.add(path)
            log.error("%s: loading takes longer than %g s; the export is skipped until it is loaded", path, limit_s)
        return None

    async def _wait_for(self, scan: asyncio.Future[Scan]) -> Scan:
        """Wait for a scan; return its result. Raises: OSError."""
        await asyncio.wait([scan], timeout=0.0 if self._scan_is_overdue else READ_TIMEOUT_S)
        if not scan.done():
            self._scan_is_overdue = True
            raise OSError(errno.ETIMEDOUT, f"no answer in {READ_TIMEOUT_S:g} s")
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
