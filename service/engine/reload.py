"""Keep the served models up to date without a restart: periodic checks of the folder, and requests to load or unload.

`service.server` runs the checks; control routes call `load`, `unload` and `index`.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from artifact.errors import BadExport
from service.engine.engine import Engine
from service.engine.folder import LOAD_LIMIT_S, Export, ExportFolder, Scan, mark_retrieved
from service.engine.loading import RefusedExport, Updater
from service.errors import ControlRefused, DeadlineExceeded, ModelNotFound, NotReady, Overloaded
from service.metrics import Metrics
from service.settings import Settings

log = logging.getLogger(__name__)

MAX_LOADS = 64
"""Maximum number of requested loads; requests for a model share one until it begins."""


@dataclass(frozen=True)
class VersionState:
    """State of a version of a model."""

    name: str
    version: int | None
    """None for a model whose folder cannot be listed."""
    state: Literal["READY", "UNAVAILABLE"]
    reason: str
    """Why it is unavailable; empty if it is ready."""


class Reloader:
    """Keeps the served models up to date with the versions in the folder of exports that the version policy selects.

    - An export that cannot be served is refused, and tried again when its files change.
    - A version is removed after two checks in a row without its folder, because replacing a folder may remove it
      briefly. The last version of a model stays until another one is served or the model's folder is gone.
    - If the folder of exports is empty or gone, as after a lost mount, nothing changes. If the folder of a model cannot
      be listed, its served versions stay.
    - A change of `defaults.json` applies after two checks in a row have found it.

    Args:
        engine: where models are served.
        settings: settings of the server.
        metrics: where refused exports are counted.
        refused: exports that were refused at the start.

    """

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        metrics: Metrics,
        refused: Mapping[Path, RefusedExport] = MappingProxyType({}),
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._folder = ExportFolder(settings)
        self._updater = Updater(engine, self._folder, settings, metrics, refused)
        self._failure = ""
        """Why the last check failed; empty if it did not."""
        self._unreadable: Mapping[str, BadExport] = {}
        """Models whose folders the last check could not list."""
        self._missing: set[tuple[str, int]] = set()
        """Served versions, as (name, version), that were not among the selected exports at the last check."""
        self._found_defaults: Mapping[str, str] | str | None = None
        """Content of `defaults.json` at the last check, or why it could not be read."""
        self._confirmed_defaults: Mapping[str, str] | str | None = None
        """What two checks in a row found last: the content of `defaults.json`, or why it could not be read."""
        self._lock = asyncio.Lock()
        """Held by a check or a requested load, which wait at most LOAD_TURN_S for each version."""
        self._waiting_loads: dict[str, asyncio.Task[None]] = {}
        """Requested loads that wait for the lock, by name of the model."""
        self._running_loads: set[asyncio.Task[None]] = set()
        """Requested loads that have had the lock. This reference keeps them alive: asyncio keeps only weak ones."""

    @property
    def is_reading(self) -> bool:
        """Whether a thread is still reading the folder of exports."""
        return self._folder.is_reading

    async def run(self) -> None:
        """Check the folder every `reload_s`, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.reload_s)
            failure = ""
            try:
                await self.check()
            except OSError as error:  # may last for hours, such as "Too many open files": logged once
                failure = f"cannot check for new exports: {_describe(error)}"
                if failure != self._failure:
                    log.error("%s", failure)
            except Exception:  # the next check may succeed
                log.exception("checking for new exports failed")
            self._failure = failure

    async def check(self) -> None:
        """Scan the folder: load new versions, stop serving deleted ones, free the memory of versions removed earlier.

        Raises: OSError if the folder of exports cannot be listed.
        """
        async with self._lock:
            self._engine.release_removed()
            scan = await self._folder.scan()
            self._report_unreadable(scan)
            if not scan.exports:
                return
            selected = {
                name: exports
                for name, exports in self._updater.select(scan).items()
                if name not in self._updater.unloaded
            }
            missing = {
                (model.manifest.name, model.manifest.version)
                for model in self._engine.models.served
                if model.manifest.name not in scan.unreadable
                and model.manifest.version not in selected.get(model.manifest.name, ())
            }
            deleted, self._missing = missing & self._missing, missing
            for name, exports in selected.items():
                await self._updater.update(name, exports, deleted)
            for model in self._engine.models.served:
                name, version = model.manifest.name, model.manifest.version
                if (name, version) in deleted and name not in selected:
                    self._updater.remove_deleted(name, version)
            self._updater.drop_unwanted(selected)
            self._apply_defaults(scan)

    def _report_unreadable(self, scan: Scan) -> None:
        """Count and log model folders that cannot be listed, once until the reason changes."""
        for name, error in scan.unreadable.items():
            if str(error) != str(self._unreadable.get(name)):
                self._metrics.exports_refused.labels(name, error.reason).inc()
                log.error("refused: %s", error)
        self._unreadable = scan.unreadable

    def _apply_defaults(self, scan: Scan) -> None:
        """Apply a change of `defaults.json` that two checks in a row have found: an editor may remove it briefly."""
        found, before = scan.defaults, self._found_defaults
        self._found_defaults = found
        if found != before or found == self._confirmed_defaults:
            return
        self._confirmed_defaults = found
        if isinstance(found, str):
            log.error("%s; the defaults do not change", found)
        else:
            self._engine.use_defaults(found)

    async def load(self, name: str, deadline: float) -> None:
        """Load the versions of a model that the policy selects, also if it was unloaded; skip those already served.

        Args:
            name: name of the model.
            deadline: time limit on the clock of the event loop; loading continues after it.

        Raises: ModelNotFound if the policy selects no version of it; ControlRefused if a version cannot be served;
            NotReady if the folder of exports cannot be listed; DeadlineExceeded; Overloaded if too many loads wait.

        """
        load = self._waiting_loads.get(name)
        if load is None and len(self._waiting_loads) + len(self._running_loads) >= MAX_LOADS:
            raise Overloaded(f"{MAX_LOADS} models wait to be loaded; try again later")
        self._updater.unloaded.discard(name)  # before waiting: an `unload` that comes later takes precedence
        if load is None:
            load = self._waiting_loads[name] = asyncio.create_task(self._load(name))
            load.add_done_callback(mark_retrieved)
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.wait([load])
        except TimeoutError:
            raise DeadlineExceeded("the model is not loaded yet; loading continues") from None
        load.result()

    async def _load(self, name: str) -> None:
        """Load a model once the lock is free. Raises: as `load`."""
        async with self._lock:
            task = self._waiting_loads.pop(name)  # a later request has to scan the folder again
            self._running_loads.add(task)
            task.add_done_callback(self._running_loads.discard)
            self._engine.release_removed()
            exports = await self._selected(name)
            self._updater.forget_refused(name)
            log.info("%s: load requested", name)
            failed = await self._updater.update(name, exports, deleted=())
        while slow := [path for path in failed if self._folder.is_loading(path) and not self._folder.is_overdue(path)]:
            await self._folder.wait(slow[0], LOAD_LIMIT_S)
            if name in self._updater.unloaded:
                break
            async with self._lock:
                failed = await self._updater.update(name, await self._selected(name), deleted=())
        if failed:
            reasons = "; ".join(self._updater.reason_failed(path) for path in failed)
            versions = [str(model.manifest.version) for model in self._engine.models.versions(name)]
            raise ControlRefused(f"{reasons}; versions that are served: {_listed(versions)}")

    async def _selected(self, name: str) -> Mapping[int, Export]:
        """Exports of a model that the policy selects, by version. Raises: ModelNotFound, NotReady."""
        try:
            scan = await self._folder.scan()
        except OSError as error:
            raise NotReady(f"the folder of exports cannot be read: {_describe(error)}") from None
        if name in scan.unreadable:
            raise NotReady(str(scan.unreadable[name]))
        selected = self._updater.select(scan)
        if name not in selected:
            raise ModelNotFound(f"no export of that name is selected by version_policy; there are: {_listed(selected)}")
        return selected[name]

    async def unload(self, name: str, deadline: float) -> None:
        """Stop serving a model until `load` is called; wait for its requests in flight, including bulk uploads.

        Args:
            name: name of the model.
            deadline: time limit on the clock of the event loop; the model stays unloaded after it.

        Raises: ModelNotFound if it is not served; DeadlineExceeded if requests are still in flight.

        """
        if name not in self._updater.unloaded and name not in self._engine.models:
            raise ModelNotFound(f"no model of that name is served; there are: {_listed(self._engine.models)}")
        self._updater.unloaded.add(name)
        for model in self._engine.models.versions(name):
            version = model.manifest.version
            self._engine.remove(name, version)
            log.info("%s %d: unloaded on request", name, version)
        try:
            async with asyncio.timeout_at(deadline):
                await self._engine.drain_removed(name)
        except TimeoutError:
            raise DeadlineExceeded("the model is unloaded; requests in flight have not finished yet") from None
        finally:
            self._engine.release_removed()

    async def index(self, deadline: float) -> list[VersionState]:
        """State of every version that is served or in the folder, sorted by name, the highest version first.

        Concurrent calls share a scan. If the folder of exports cannot be listed, only served versions are returned.

        Args:
            deadline: time limit on the clock of the event loop.

        Raises: DeadlineExceeded.

        """
        scan = await self._folder.shared_scan(deadline)
        served = {(model.manifest.name, model.manifest.version): model for model in self._engine.models.served}
        found = {
            (name, version): export.path
            for name, exports in scan.exports.items()
            for version, export in exports.items()
        }
        states = [VersionState(name, None, "UNAVAILABLE", str(error)) for name, error in scan.unreadable.items()]
        for name, version in {*served, *found}:
            model = served.get((name, version))
            if model is not None:
                reason = "" if model.batcher.is_ready else "it does not accept requests"
            else:
                reason = self._updater.reason_absent(name, version, found[name, version])
            states.append(VersionState(name, version, "UNAVAILABLE" if reason else "READY", reason))
        return sorted(states, key=lambda state: (state.name, -(state.version or 0)))


def _listed(names: Iterable[str]) -> str:
    """Names, for an error message."""
    return ", ".join(names) or "none"


def _describe(error: OSError) -> str:
    """Reason of an error, without the path."""
    return error.strerror or type(error).__name__
