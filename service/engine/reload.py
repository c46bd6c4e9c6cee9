"""New versions of exports, served without a restart. Started by `service.server`.

Files are read in threads that the end of the process does not wait for: a network mount may never answer.
"""

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from artifact.errors import BadExport
from artifact.loading import LoadedModel, find_versions, load_export
from service.engine.engine import Engine
from service.metrics import Metrics
from service.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")

HANGS_S = 60.0
"""Reading that takes longer is left to itself; what it finds is used if it ever ends."""

State = tuple[int, int]


class Reloader:
    """Keeps what is served equal to what lies below `exports`: of each name the newest version that can be served.

    What cannot be served is refused once. What is gone ends at the second look that misses it, since whoever replaces a
    folder may take it away first. While nothing at all is there, as when a mount is lost, everything stays.
    """

    def __init__(self, engine: Engine, settings: Settings, metrics: Metrics, refused: Iterable[Path] = ()) -> None:
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._failure = ""
        """Why the last look failed."""
        self._refused = {(folder, _state(folder)) for folder in refused}
        self._gone: set[tuple[str, int]] = set()
        """Names and versions that are served and that the last look missed."""
        self._reading: dict[Path, asyncio.Future[Any]] = {}

    @property
    def is_reading(self) -> bool:
        """Whether a thread has not come back."""
        return any(not reading.done() for reading in self._reading.values())

    async def run(self) -> None:
        """Look every `reload_s`, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.reload_s)
            failure = ""
            try:
                await self.look()
            except OSError as error:  # file descriptors may be used up for hours: told once until it changes
                failure = f"cannot look for new exports: {error.strerror or error}"
                if failure != self._failure:
                    log.error("%s", failure)
            except Exception:  # one look that fails must not end the looking
                log.exception("looking for new exports failed")
            self._failure = failure

    async def look(self) -> None:
        """Swap in what is new and end what is gone; forget what was swapped out before."""
        self._engine.forget_replaced()
        listed = await self._read(self._settings.exports, self._found)
        found = listed.result() if listed else {}
        if not found:
            return
        served = {name: model.manifest.version for name, model in self._engine.models.items()}
        missed = {
            (name, version)
            for name, version in served.items()
            if all(int(folder.name) != version for folder, _ in found.get(name, ()))
        }
        gone, self._gone = missed & self._gone, missed
        for name, versions in found.items():
            least = 0 if (name, served.get(name)) in gone else served.get(name, 0)
            for folder, state in versions:
                is_wanted = int(folder.name) > least and (folder, state) not in self._refused
                if is_wanted and await self._serve(folder, state):
                    break
        for name, version in gone:
            if name not in found:
                self._engine.remove(name)
                log.warning("%s %d: its export is gone; it is served no more", name, version)

    async def _serve(self, folder: Path, state: State) -> bool:
        """Load a version and swap it in; whether it is served now."""
        loaded = await self._read(folder, functools.partial(self._load, folder))
        if loaded is None:
            return False
        before = self._engine.models.get(folder.parent.name)
        try:
            self._engine.put(loaded.result())
        except BadExport as error:
            self._refused.add((folder, state))
            self._metrics.exports_refused.labels(folder.parent.name, error.reason).inc()
            log.error("refused: %s", error)
            return False
        why = ""
        if before is not None and before.manifest.version > int(folder.name):
            why = f", since version {before.manifest.version} is gone"
        log.info("%s %s: serving%s", folder.parent.name, folder.name, why)
        return True

    async def _read(self, place: Path, function: Callable[[], T]) -> "asyncio.Future[T] | None":
        """The outcome of a function that reads below a place, or None while it does not return."""
        reading: asyncio.Future[T] | None = self._reading.get(place)
        limit_s = HANGS_S if reading is None else 0.0
        if reading is None:
            reading = self._reading[place] = _in_daemon(function)
        await asyncio.wait([reading], timeout=limit_s)
        if not reading.done():
            if limit_s:
                log.error("%s cannot be read: no answer in %g s; nothing new of it is served meanwhile", place, limit_s)
            return None
        del self._reading[place]
        return reading

    def _found(self) -> dict[str, list[tuple[Path, State]]]:
        """Versions by name, highest first; none while the folder is gone or empty."""
        try:
            found = find_versions(self._settings.exports)
        except BadExport:
            return {}
        return {versions[0].parent.name: [(folder, _state(folder)) for folder in versions] for versions in found}

    def _load(self, folder: Path) -> LoadedModel:
        return load_export(folder, format=self._settings.backend, device=self._settings.device)


def _in_daemon(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run a function in a thread that the end of the process does not wait for, unlike those of an executor."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        settle: Callable[[], None]
        try:
            settle = functools.partial(outcome.set_result, function())
        except Exception as error:
            settle = functools.partial(outcome.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name="exports", daemon=True).start()
    return outcome


def _state(folder: Path) -> State:
    """Time of the last change to the folder or a file in it, in nanoseconds, and their total size.

    An export that was refused is tried again once this differs. The clock of a file system has steps of some
    milliseconds, so that the time alone would miss a file that grows within one step.
    """
    try:
        found = [path.stat() for path in (folder, *folder.iterdir())]
    except OSError:
        return 0, 0
    return max(stat.st_ctime_ns for stat in found), sum(stat.st_size for stat in found)
