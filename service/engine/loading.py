"""Load the versions that the version policy selects: at the start, and while the server runs."""

import contextlib
import logging
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from artifact.errors import BadExport
from artifact.loading import LoadedModel, find_exports, load_export
from service.engine.engine import Engine
from service.engine.folder import LOAD_LIMIT_S, Export, ExportFolder, Scan, State, find_selected, state_of
from service.engine.selection import check_defaults, check_task
from service.errors import clear_tracebacks
from service.metrics import Metrics
from service.settings import Settings
from service.versions import VersionPolicy

log = logging.getLogger(__name__)


class RefusedExport(NamedTuple):
    """An export that cannot be served."""

    state: State
    """State of its files before it was loaded."""
    error: BadExport


def refuse(path: Path, state: State, error: Exception, metrics: Metrics) -> RefusedExport:
    """Count an export that cannot be served; return it with the error to report.

    Args:
        path: folder of the export.
        state: state of its files before it was loaded.
        error: why; unless it is a BadExport, it is logged with its traceback and replaced by one.
        metrics: the metrics of the process.

    """
    if not isinstance(error, BadExport):
        place = f"{path.parent.name}/{path.name}"
        log.error("%s: loading failed", place, exc_info=error)
        clear_tracebacks(error)
        error = BadExport(f"{place}: loading failed: {type(error).__name__}", "failed")
    metrics.exports_refused.labels(path.parent.name, error.reason).inc()
    clear_tracebacks(error)
    return RefusedExport(state, error)


def load_models(
    settings: Settings, metrics: Metrics, required: Collection[str] | None = None
) -> tuple[list[LoadedModel], dict[Path, RefusedExport]]:
    """Load the versions that the policy selects; also return the exports that were refused, by folder.

    At the first start without `skip_bad_exports`, a damaged version is an error. With `skip_bad_exports`, or when a
    worker is restarted, it is skipped and returned as refused; if the policy serves one version of a model, the next
    lower valid version is loaded instead.

    Args:
        settings: the settings of the server.
        metrics: where refused exports are counted.
        required: None at the first start. For a restarted worker, names of the models that it has to serve, unless
            `skip_bad_exports` is set.

    Raises: BadExport if no version can be served, or a default model of the settings is not among those loaded. Without
    `skip_bad_exports`, also if a selected version is damaged or missing at the first start, or if a model of `required`
    has no valid version.

    """
    falls_back = settings.skip_bad_exports or required is not None
    indispensable = frozenset[str]() if settings.skip_bad_exports else frozenset(required or ())
    policy = VersionPolicy.parse(settings.version_policy)
    found, unreadable = find_selected(settings)
    for name, error in unreadable.items():
        metrics.exports_refused.labels(name, error.reason).inc()
    errors = [*unreadable.values(), *_missing(policy, found, unreadable, settings)]
    if errors and not falls_back:
        raise errors[0]
    for error in errors:
        log.error("%s", error)
    if names := indispensable & unreadable.keys():
        raise unreadable[min(names)]
    models, refused = list[LoadedModel](), dict[Path, RefusedExport]()
    for name, folders in found.items():
        by_version = {int(folder.name): folder for folder in folders}
        selected = [by_version[version] for version in policy.candidates(name, by_version)]
        versions, damaged = _load_versions(
            selected, settings, metrics, takes_one=policy.takes_one(name), falls_back=falls_back
        )
        if damaged and not versions and name in indispensable:
            raise [*damaged.values()][-1].error
        if len(versions) > 1:
            numbers = ", ".join(str(model.manifest.version) for model in versions)
            log.info("%s: serving versions %s, each with its own memory", name, numbers)
        models += versions
        refused |= damaged
    errors += [export.error for export in refused.values()]
    if errors and not models:
        raise errors[-1]
    check_defaults([model.manifest for model in models], settings)
    return models, refused


def _load_versions(
    folders: Sequence[Path], settings: Settings, metrics: Metrics, *, takes_one: bool, falls_back: bool
) -> tuple[list[LoadedModel], dict[Path, RefusedExport]]:
    """Load versions of a model; also return those that were refused.

    Args:
        folders: the folders of the versions, highest first.
        settings: the settings of the server.
        metrics: where refused exports are counted.
        takes_one: whether to stop after one that is valid.
        falls_back: whether to continue after one that is damaged.

    Raises: BadExport for a damaged version, unless `falls_back`.

    """
    models, refused = list[LoadedModel](), dict[Path, RefusedExport]()
    for folder in folders:
        state = state_of(folder)  # before the load: if a file changes during it, the export is tried again
        try:
            with _told_if_slow(folder):
                model = load_export(
                    folder, format=settings.backend, device=settings.device, precision=settings.precision
                )
            check_task(model.manifest, models[0].manifest if models else None)
        except Exception as error:
            refused[folder] = refuse(folder, state, error, metrics)
            if not falls_back:
                raise refused[folder].error from None
            log.error("refused: %s", refused[folder].error)
        else:
            models.append(model)
            if takes_one:
                break
    return models, refused


@contextlib.contextmanager
def _told_if_slow(folder: Path) -> Iterator[None]:
    """Log if a load takes longer than LOAD_LIMIT_S. The start waits for it: a slow disk is not an error."""
    place = f"{folder.parent.name}/{folder.name}"
    message = "%s: loading takes longer than %g s; the server does not listen before it has ended"
    timer = threading.Timer(LOAD_LIMIT_S, log.error, (message, place, LOAD_LIMIT_S))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _missing(
    policy: VersionPolicy, found: Mapping[str, Sequence[Path]], unreadable: Collection[str], settings: Settings
) -> Iterator[BadExport]:
    """An error for each model and version that the settings list but that is not in the folder of exports."""
    exports = settings.exports
    for name in settings.models:
        if name not in found and name not in unreadable:
            names = ", ".join(path.parent.name for path in find_exports(exports)) or "none"
            yield BadExport(f"models lists {name}, which is not in {exports}; models there: {names}", "missing")
    for name, versions in policy.listed.items():
        existing = [int(folder.name) for folder in found.get(name, ())]
        for version in sorted(versions.difference(existing)):
            known = ", ".join(map(str, existing)) or "none"
            yield BadExport(
                f"version_policy lists {name}/{version}, which is not in {exports}; versions there: {known}", "missing"
            )


class Updater:
    """Loads and removes versions of models while the server runs, as the version policy selects them.

    Args:
        engine: where models are served.
        folder: where exports are loaded from.
        settings: the settings of the server.
        metrics: where refused exports are counted.
        refused: exports that were refused at the start; they are tried again when their files change.

    """

    def __init__(
        self,
        engine: Engine,
        folder: ExportFolder,
        settings: Settings,
        metrics: Metrics,
        refused: Mapping[Path, RefusedExport],
    ) -> None:
        self._engine = engine
        self._folder = folder
        self._policy = VersionPolicy.parse(settings.version_policy)
        self._metrics = metrics
        self._refused = dict(refused)
        self._overdue: set[Path] = set()
        """Exports that were counted as refused because their load, which continues, takes too long."""
        self.unloaded: set[str] = set()
        """Names of models that a client has unloaded; none of their versions is served."""

    def select(self, scan: Scan) -> dict[str, dict[int, Export]]:
        """Exports that the policy selects, by name and version."""
        selected = {
            name: {version: exports[version] for version in self._policy.candidates(name, exports)}
            for name, exports in scan.exports.items()
        }
        return {name: exports for name, exports in selected.items() if exports}

    async def update(
        self, name: str, exports: Mapping[int, Export], deleted: Collection[tuple[str, int]]
    ) -> list[Path]:
        """Serve versions of a model, then stop serving the other ones.

        If the policy serves one version, it is the highest one that can be loaded. If none of the given versions can
        be served, the versions served so far stay.

        Args:
            name: the name of the model.
            exports: version -> export, those that the policy selects.
            deleted: names and versions that are served although their folders are gone.

        Returns: folders of the versions that cannot be served.

        """
        versions = self._engine.models.versions(name)
        served = {model.manifest.version for model in versions if (name, model.manifest.version) not in deleted}
        kept, failed = set[int](), list[Path]()
        for version in sorted({*exports, *served}, reverse=True):
            if version not in served and not await self._serve(exports[version]):
                failed.append(exports[version].path)
                continue
            kept.add(version)
            if self._policy.takes_one(name):
                break
        for model in self._engine.models.versions(name) if kept else ():
            version = model.manifest.version
            if version not in kept and (name, version) in deleted:
                self.remove_deleted(name, version)
            elif version not in kept:
                self._engine.remove(name, version)
        return failed

    def drop_unwanted(self, selected: Mapping[str, Mapping[int, Export]]) -> None:
        """Drop finished loads that are not needed any more.

        These are loads of exports that are not selected, and of versions below a served one if the policy serves one.
        """
        wanted = {
            export.path
            for name, exports in selected.items()
            for version, export in exports.items()
            if not self._policy.takes_one(name)
            or all(version >= model.manifest.version for model in self._engine.models.versions(name))
        }
        self._overdue &= wanted
        self._folder.drop_others(wanted)

    async def _serve(self, export: Export) -> bool:
        """Load a version and serve it; return whether it is served."""
        path, name = export.path, export.path.parent.name
        if name in self.unloaded or (path in self._refused and self._refused[path].state == export.state):
            return False
        load = await self._folder.load(export)
        if load is None:
            if self._folder.is_overdue(path) and path not in self._overdue:
                self._overdue.add(path)
                overdue = refuse(path, export.state, BadExport(self.reason_failed(path), "timeout"), self._metrics)
                log.error("refused: %s", overdue.error)
            return False
        self._overdue.discard(path)
        if name in self.unloaded:
            return False
        others = [str(model.manifest.version) for model in self._engine.models.versions(name)]
        try:
            self._engine.put(load.future.result())
        except Exception as error:
            self._refused[path] = refuse(path, load.state, error, self._metrics)
            log.error("refused: %s", self._refused[path].error)
            return False
        addition = ""
        if others and not self._policy.takes_one(name):
            addition = f" in addition to {', '.join(others)}, with its own memory"
        log.info("%s %s: serving%s", name, path.name, addition)
        return True

    def remove_deleted(self, name: str, version: int) -> None:
        """Stop serving a version whose folder is gone."""
        self._engine.remove(name, version)
        log.warning("%s %d: no longer served, because its export was removed", name, version)

    def forget_refused(self, name: str) -> None:
        """Try every version of a model again at the next update, even if its files have not changed."""
        self._refused = {path: export for path, export in self._refused.items() if path.parent.name != name}

    def reason_absent(self, name: str, version: int, path: Path) -> str:
        """Why a version in the folder of exports is not served."""
        if reason := self.reason_failed(path):
            return reason
        highest = self._engine.models.get(name)
        is_lower = highest is not None and version < highest.manifest.version
        if not self._policy.candidates(name, [version]) or (self._policy.takes_one(name) and is_lower):
            return f"not selected by version_policy {self._policy.text}"
        return "not loaded yet"

    def reason_failed(self, path: Path) -> str:
        """Why an export cannot be served; empty if no reason is known."""
        if path.parent.name in self.unloaded:
            return "unloaded"
        place = f"{path.parent.name}/{path.name}"
        if self._folder.is_overdue(path):
            return f"{place}: loading takes longer than {LOAD_LIMIT_S:g} s, and continues"
        if self._folder.is_loading(path):
            return "being loaded"
        # Errors of runtimes hold absolute paths, which clients must not see.
        return str(self._refused[path].error).replace(str(path), place) if path in self._refused else ""
