"""New versions of exports, served without a restart. Started by `service.server`."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from artifact.errors import BadExport
from artifact.loading import LoadedModel, find_exports, load_export
from service.engine.engine import Engine
from service.metrics import Metrics
from service.settings import Settings

log = logging.getLogger(__name__)


class Reloader:
    """Looks for new names and higher versions below `exports`; what cannot be served is refused once."""

    def __init__(self, engine: Engine, settings: Settings, metrics: Metrics, refused: Iterable[Path] = ()) -> None:
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._failure = ""
        """Why the last look failed."""
        self._refused = {(folder, _state(folder)) for folder in refused}

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
        """Load what is new and swap it in; forget what was swapped out before."""
        self._engine.forget_replaced()
        for folder in await asyncio.to_thread(self._found):
            served = self._engine.models.get(folder.parent.name)
            if served is not None and served.manifest.version >= int(folder.name):
                continue
            key = (folder, _state(folder))
            if key in self._refused:
                continue
            try:
                self._engine.put(await asyncio.to_thread(self._load, folder))
            except BadExport as error:
                self._refused.add(key)
                self._metrics.exports_refused.labels(folder.parent.name, error.reason).inc()
                log.error("refused: %s", error)
            else:
                log.info("%s %s: serving", folder.parent.name, folder.name)

    def _found(self) -> list[Path]:
        """Highest versions; none while the folder is gone or empty."""
        try:
            return find_exports(self._settings.exports)
        except BadExport:
            return []

    def _load(self, folder: Path) -> LoadedModel:
        return load_export(folder, format=self._settings.backend, device=self._settings.device)


def _state(folder: Path) -> tuple[int, int]:
    """Time of the last change to the folder or a file in it, in nanoseconds, and their total size.

    An export that was refused is tried again once this differs. The clock of a file system has steps of some
    milliseconds, so that the time alone would miss a file that grows within one step.
    """
    try:
        found = [path.stat() for path in (folder, *folder.iterdir())]
    except OSError:
        return 0, 0
    return max(stat.st_ctime_ns for stat in found), sum(stat.st_size for stat in found)
