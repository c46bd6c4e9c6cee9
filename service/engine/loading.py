"""Load exports: one while the server runs, or at the start all those that the version policy selects."""

import logging
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from artifact.errors import BadExport
from artifact.loading import LoadedModel, find_exports, load_export
from service.engine.folder import Export, FileState, Scan, list_exports
from service.engine.selection import check_defaults, check_task
from service.errors import clear_tracebacks
from service.metrics import Metrics
from service.settings import Settings
from service.versions import VersionPolicy

log = logging.getLogger(__name__)

SLOW_LOAD_S = 120.0
"""Time limit of a load, which continues after it. While the server runs, the export is refused until the load ends; the
start only logs it. Longer than the limit of one batch in `artifact.backends.base`, so that a model that never ends is
usually stopped before."""


class RefusedExport(NamedTuple):
    """An export that cannot be served."""

    state: FileState
    """State of its files before it was loaded: it is tried again when they change."""
    error: BadExport


def load_version(export: Export, settings: Settings) -> LoadedModel:
    """Load an export as the settings say. Raises: as `load_export`."""
    return load_export(export.path, format=settings.backend, device=settings.device, precision=settings.precision)


def as_bad_export(export: Export, error: Exception) -> BadExport:
    """An error in loading as a BadExport; any other error is logged with its traceback and replaced by one."""
    if isinstance(error, BadExport):
        return error
    log.error("%s: loading failed", export.place, exc_info=error)
    clear_tracebacks(error)
    return BadExport(f"{export.place}: loading failed: {type(error).__name__}", "failed")


def refuse(export: Export, error: Exception, metrics: Metrics) -> RefusedExport:
    """Count and log an export that cannot be served; return it with the error to report."""
    bad = as_bad_export(export, error)
    log.error("refused: %s", bad)
    metrics.exports_refused.labels(export.name, bad.reason).inc()
    clear_tracebacks(bad)
    return RefusedExport(export.state, bad)


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
    is_strict = required is None and not settings.skip_bad_exports
    policy = VersionPolicy.parse(settings.version_policy)
    scan = list_exports(settings)
    errors = dict[str, BadExport]()
    """Name -> the last error of the model."""
    for name, error in (*scan.unreadable.items(), *_missing(policy, scan, settings)):
        if is_strict:
            raise error
        log.error("%s", error)
        errors[name] = error
    for name, error in scan.unreadable.items():
        metrics.exports_refused.labels(name, error.reason).inc()
    models, refused = dict[str, list[LoadedModel]](), dict[Path, RefusedExport]()
    for name, exports in scan.selected(policy).items():
        loaded = models[name] = []
        for version in policy.in_turn(name, exports, loaded):
            export = exports[version]
            try:
                loaded.append(_load_at_start(export, settings, loaded))
            except Exception as error:
                if is_strict:
                    raise as_bad_export(export, error) from None
                refused[export.path] = refuse(export, error, metrics)
                errors[name] = refused[export.path].error
        if len(loaded) > 1:
            numbers = ", ".join(str(model.manifest.version) for model in loaded)
            log.info("%s: serving versions %s, each with its own memory", name, numbers)
    found = [model for loaded in models.values() for model in loaded]
    needed = set[str]() if settings.skip_bad_exports else {*models, *scan.unreadable} & set(required or ())
    if lost := [error for name, error in errors.items() if not models.get(name) and (name in needed or not found)]:
        raise lost[-1]
    check_defaults([model.manifest for model in found], settings)
    return found, refused


def _load_at_start(export: Export, settings: Settings, others: Sequence[LoadedModel]) -> LoadedModel:
    """Load a version beside others of its model; log if that takes longer than SLOW_LOAD_S, as on a slow disk."""
    message = "%s: loading takes longer than %g s; the server does not listen before it has ended"
    timer = threading.Timer(SLOW_LOAD_S, log.error, (message, export.place, SLOW_LOAD_S))
    timer.daemon = True
    timer.start()
    try:
        model = load_version(export, settings)
    finally:
        timer.cancel()
    check_task(model.manifest, others[0].manifest if others else None)
    return model


def _missing(policy: VersionPolicy, scan: Scan, settings: Settings) -> Iterator[tuple[str, BadExport]]:
    """Name and error of each model and version that the settings list but that is not in the folder of exports."""
    root = settings.exports
    for name in settings.models:
        if name not in scan.exports and name not in scan.unreadable:
            names = ", ".join(path.parent.name for path in find_exports(root)) or "none"
            yield name, BadExport(f"models lists {name}, which is not in {root}; models there: {names}", "missing")
    for name, versions in policy.listed.items():
        existing = scan.exports.get(name, {})
        for version in sorted(versions.difference(existing)):
            known = ", ".join(map(str, existing)) or "none"
            message = f"version_policy lists {name}/{version}, which is not in {root}; versions there: {known}"
            yield name, BadExport(message, "missing")
