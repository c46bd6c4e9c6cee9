"""New versions of exports, served without a restart. Started by `service.server`.

Files are read in threads that the end of the process does not wait for: a network mount may never answer.
"""

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
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
    """Looks for new names and higher versions below `exports`; what cannot be served is refused once."""

    def __init__(self, engine: Engine, settings: Settings, metrics: Metrics, refused: Iterable[Path] = ()) -> None:
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._failure = ""
        """Why the last look failed."""
        self._refused = {(folder, _state(folder)) for folder in refused}
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
        """Swap in what is new, of each name the newest sound version; forget what was swapped out before."""
        self._engine.forget_replaced()
        served = {name: model.manifest.version for name, model in self._engine.models.items()}
        listed = await self._read(self._settings.exports, functools.partial(self._newer, served))
        for versions in listed.result() if listed else ():
            for folder, state in versions:
                if (folder, state) not in self._refused and await self._serve(folder, state):
                    break

    async def _serve(self, folder: Path, state: State) -> bool:
        """Load a version and swap it in; whether it is served now."""
        loaded = await self._read(folder, functools.partial(self._load, folder))
        if loaded is None:
            return False
        try:
            self._engine.put(loaded.result())
        except BadExport as error:
            self._refused.add((folder, state))
            self._metrics.exports_refused.labels(folder.parent.name, error.reason).inc()
            log.error("refused: %s", error)
            return False
        log.info("%s %s: serving", folder.parent.name, folder.name)
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

    def _newer(self, served: Mapping[str, int]) -> list[list[tuple[Path, State]]]:
        """Versions above those served, highest first, by name; none while the folder is gone or empty."""
        try:
            found = find_versions(self._settings.exports)
        except BadExport:
            return []
        return [
            [(folder, _state(folder)) for folder in versions if int(folder.name) > served.get(folder.parent.name, 0)]
            for versions in found
        ]

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
