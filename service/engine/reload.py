"""Keep the served models up to date without a restart: periodic checks of the folder, and requests to load or unload.

`service.runtime` runs the checks; control routes call `load`, `unload` and `index`.
"""

import asyncio
import functools
import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from artifact.errors import BadExport
from artifact.loading import LoadedModel
from service.engine.engine import Engine
from service.engine.folder import Export, ExportFolder, Scan, mark_retrieved, run_in_daemon
from service.engine.loading import SLOW_LOAD_S, RefusedExport, load_version, refuse
from service.errors import ControlRefused, DeadlineExceeded, ModelNotFound, NotReady, Overloaded
from service.metrics import Metrics
from service.settings import Settings
from service.versions import VersionPolicy

log = logging.getLogger(__name__)

LOAD_TURN_S = 5.0
"""Time that a check waits for a load before it goes on with the others. The load continues."""
MAX_LOADS = 64
"""Maximum number of requested loads; requests for a model share one until it begins."""


class VersionState(NamedTuple):
    """State of a version of a model."""

    name: str
    version: int | None
    """None for a model whose folder cannot be listed."""
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
        self._policy = VersionPolicy.parse(settings.version_policy)
        self._folder = ExportFolder(settings)
        self._selected: Mapping[str, Mapping[int, Export]] = {}
        """Exports that the policy selected at the last scan, by name and version."""
        self._loading: dict[Path, asyncio.Task[None]] = {}
        """Exports that are being loaded; each task serves or refuses its export."""
        self._refused = dict(refused)
        self._unloaded: set[str] = set()
        """Names of models that a client has unloaded; none of their versions is served."""
        self._failure = ""
        """Why the last check failed; empty if it did not."""
        self._unreadable: Mapping[str, BadExport] = {}
        """Models whose folders the last check could not list."""
        self._missing: set[tuple[str, int]] = set()
        """Served versions, as (name, version), that were not among the selected exports at the last check."""
        self._defaults: tuple[Mapping[str, str] | str, int] = ({}, 0)
        """What the last check found of `defaults.json`, and how many checks in a row have found it."""
        self._lock = asyncio.Lock()
        """Held by a check or a requested load, which wait at most LOAD_TURN_S for each version."""
        self._requests: set[asyncio.Task[None]] = set()
        """Requested loads. This reference keeps them alive: asyncio keeps only weak ones."""
        self._waiting: dict[str, asyncio.Task[None]] = {}
        """Those that wait for the lock, by name of the model."""

    @property
    def is_reading(self) -> bool:
        """Whether a thread is still reading the folder of exports."""
        return bool(self._loading) or self._folder.is_reading

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
            self._selected = scan.selected(self._policy)
            missing = {
                (model.manifest.name, model.manifest.version)
                for model in self._engine.models.served
                if model.manifest.name not in scan.unreadable
                and model.manifest.version not in self._selected.get(model.manifest.name, ())
            }
            deleted, self._missing = missing & self._missing, missing
            for name in self._selected:
                await self._update(name, deleted)
            for name, version in sorted(deleted):
                others = {other for other in self._versions(name) if (name, other) not in deleted}
                if version in self._versions(name) and (others or name not in self._selected):
                    self._engine.remove(name, version)
                    log.warning("%s %d: no longer served, because its export was removed", name, version)
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
        before, times = self._defaults
        times = times + 1 if scan.defaults == before else 1
        self._defaults = scan.defaults, times
        if times != 2:
            return
        if isinstance(scan.defaults, str):
            log.error("%s; the defaults do not change", scan.defaults)
        else:
            self._engine.use_defaults(scan.defaults)

    def _versions(self, name: str) -> list[int]:
        """Served versions of a model, highest first."""
        return [model.manifest.version for model in self._engine.models.versions(name)]

    async def _update(self, name: str, deleted: Collection[tuple[str, int]] = ()) -> list[Export]:
        """Serve the versions of a model that the policy selects; return those that cannot be served.

        If the policy serves one version, it is the highest one that can be loaded.

        Args:
            name: name of the model.
            deleted: served versions, as (name, version), whose folders are gone.

        """
        exports = self._selected[name]
        served = [version for version in self._versions(name) if (name, version) not in deleted]
        kept, failed = list[int](), list[Export]()
        for version in self._policy.in_turn(name, {*exports, *served}, kept):
            if version in served or await self._serve(exports[version]):
                kept.append(version)
            else:
                failed.append(exports[version])
        if kept:
            self._remove_lower(name, kept[0])
        return failed

    async def _serve(self, export: Export) -> bool:
        """Load a version, unless that was tried before; return after LOAD_TURN_S at most whether it is served."""
        name, path = export.name, export.path
        is_refused = path in self._refused and self._refused[path].state == export.state
        if not (self._is_served(export) or path in self._loading or is_refused or name in self._unloaded):
            self._refused.pop(path, None)
            load = self._loading[path] = asyncio.create_task(self._load(export))
            await asyncio.wait([load], timeout=LOAD_TURN_S)
        return self._is_served(export)

    async def _load(self, export: Export) -> None:
        """Load a version and serve it, if it is still wanted then. After SLOW_LOAD_S it is refused until that ends."""
        loading = run_in_daemon(functools.partial(load_version, export, self._settings))
        await asyncio.wait([loading], timeout=SLOW_LOAD_S)
        if not loading.done():
            why = f"{export.place}: loading takes longer than {SLOW_LOAD_S:g} s, and continues"
            self._refused[export.path] = refuse(export, BadExport(why, "timeout"), self._metrics)
        try:
            model = await loading
            self._refused.pop(export.path, None)
            if self._is_wanted(export):
                self._put(model)
        except Exception as error:
            self._refused[export.path] = refuse(export, error, self._metrics)
        finally:
            del self._loading[export.path]

    def _put(self, model: LoadedModel) -> None:
        """Serve a loaded version, in addition to the others or in their place. Raises: as `Engine.put`."""
        name, version = model.manifest.name, model.manifest.version
        others = ", ".join(map(str, self._versions(name)))
        self._engine.put(model)
        is_added = others and not self._policy.takes_one(name)
        log.info(
            "%s %d: serving%s", name, version, f" in addition to {others}, with its own memory" if is_added else ""
        )
        self._remove_lower(name, version)

    def _remove_lower(self, name: str, version: int) -> None:
        """Stop serving the versions below this one, if the policy serves one."""
        if self._policy.takes_one(name):
            for lower in self._versions(name):
                if lower < version:
                    self._engine.remove(name, lower)

    def _is_served(self, export: Export) -> bool:
        """Whether the version of an export is served."""
        return export.version in self._versions(export.name)

    def _is_wanted(self, export: Export) -> bool:
        """Whether an export that has been loaded is to be served."""
        name, version = export.name, export.version
        if name in self._unloaded or version not in self._selected.get(name, ()):
            return False
        higher = [served for served in self._versions(name) if served > version and (name, served) not in self._missing]
        return not (higher and self._policy.takes_one(name))

    def _reason(self, export: Export) -> str:
        """Why an export is not served."""
        name, path = export.name, export.path
        if name in self._unloaded:
            return "unloaded"
        if path in self._refused:
            # Errors of runtimes hold absolute paths, which clients must not see.
            return str(self._refused[path].error).replace(str(path), export.place)
        if path in self._loading:
            return "being loaded"
        is_lower = export.version < max(self._versions(name), default=0)
        if not self._policy.selects(name, export.version) or (is_lower and self._policy.takes_one(name)):
            return f"not selected by version_policy {self._policy.text}"
        return "not loaded yet"

    async def load(self, name: str, deadline: float) -> None:
        """Load the versions of a model that the policy selects, also if it was unloaded; skip those already served.

        Args:
            name: name of the model.
            deadline: time limit on the clock of the event loop; loading continues after it.

        Raises: ModelNotFound if the policy selects no version of it; ControlRefused if a version cannot be served;
            NotReady if the folder of exports cannot be listed; DeadlineExceeded; Overloaded if too many loads wait.

        """
        request = self._waiting.get(name)
        if request is None and len(self._requests) >= MAX_LOADS:
            raise Overloaded(f"{MAX_LOADS} models wait to be loaded; try again later")
        self._unloaded.discard(name)  # before waiting: an `unload` that comes later takes precedence
        if request is None:
            request = self._waiting[name] = asyncio.create_task(self._load_requested(name))
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)
            request.add_done_callback(mark_retrieved)
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.wait([request])
        except TimeoutError:
            raise DeadlineExceeded("the model is not loaded yet; loading continues") from None
        request.result()

    async def _load_requested(self, name: str) -> None:
        """Load a model once the lock is free. Raises: as `load`."""
        async with self._lock:
            del self._waiting[name]  # a later request has to scan the folder again
            self._engine.release_removed()
            await self._select(name)
            for path in [path for path in self._refused if path.parent.name == name and path not in self._loading]:
                del self._refused[path]  # tried again, even if its files have not changed
            log.info("%s: load requested", name)
            failed = await self._update(name)
        if slow := [self._loading[path] for path, _ in failed if path in self._loading and path not in self._refused]:
            await asyncio.wait(slow, timeout=SLOW_LOAD_S)
        if reasons := [self._reason(export) for export in failed if not self._is_served(export)]:
            served = _listed(map(str, self._versions(name)))
            raise ControlRefused(f"{'; '.join(reasons)}; versions that are served: {served}")

    async def _select(self, name: str) -> None:
        """Scan the folder for a model. Raises: ModelNotFound if the policy selects no version of it; NotReady."""
        try:
            scan = await self._folder.scan()
        except OSError as error:
            raise NotReady(f"the folder of exports cannot be read: {_describe(error)}") from None
        if name in scan.unreadable:
            raise NotReady(str(scan.unreadable[name]))
        selected = scan.selected(self._policy)
        if name not in selected:
            raise ModelNotFound(f"no export of that name is selected by version_policy; there are: {_listed(selected)}")
        self._selected = selected

    async def unload(self, name: str, deadline: float) -> None:
        """Stop serving a model until `load` is called; wait for its requests in flight, including bulk uploads.

        Args:
            name: name of the model.
            deadline: time limit on the clock of the event loop; the model stays unloaded after it.

        Raises: ModelNotFound if it is not served; DeadlineExceeded if requests are still in flight.

        """
        if name not in self._unloaded and name not in self._engine.models:
            raise ModelNotFound(f"no model of that name is served; there are: {_listed(self._engine.models)}")
        self._unloaded.add(name)
        for version in self._versions(name):
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

        If the folder of exports cannot be listed, only served versions are returned.

        Args:
            deadline: time limit on the clock of the event loop.

        Raises: DeadlineExceeded.

        """
        try:
            async with asyncio.timeout_at(deadline) as limit:
                scan = await self._folder.scan()
        except OSError:
            if limit.expired():
                raise DeadlineExceeded("the folder of exports has not been listed in time") from None
            scan = Scan()  # `run` logs it
        states = [VersionState(name, None, str(error)) for name, error in scan.unreadable.items()]
        for model in self._engine.models.served:
            reason = "" if model.batcher.is_ready else "it does not accept requests"
            states.append(VersionState(model.manifest.name, model.manifest.version, reason))
        for export in (export for exports in scan.exports.values() for export in exports.values()):
            if not self._is_served(export):
                states.append(VersionState(export.name, export.version, self._reason(export)))
        return sorted(states, key=lambda state: (state.name, -(state.version or 0)))


def _listed(names: Iterable[str]) -> str:
    """Names, for an error message."""
    return ", ".join(names) or "none"


def _describe(error: OSError) -> str:
    """Reason of an error, without the path."""
    return error.strerror or type(error).__name__
