"""Load what is served, at the start."""

import logging
from pathlib import Path

from artifact.errors import BadExport
from artifact.loading import LoadedModel, find_exports, load_export
from service.engine.selection import check_defaults
from service.metrics import Metrics
from service.settings import Settings

log = logging.getLogger(__name__)


def load_models(settings: Settings, metrics: Metrics) -> tuple[list[LoadedModel], list[Path]]:
    """Load the newest version of every export; also the folders of those refused.

    Raises: BadExport for the first damaged one, unless `skip_bad_exports`; always if none is left.
    """
    models, refused = list[LoadedModel](), list[Path]()
    for folder in find_exports(settings.exports):
        try:
            models.append(load_export(folder, format=settings.backend, device=settings.device))
        except BadExport as error:
            metrics.exports_refused.labels(folder.parent.name, error.reason).inc()
            if not settings.skip_bad_exports:
                raise
            log.error("refused: %s", error)
            refused.append(folder)
            last = error
    if refused and not models:
        raise last
    check_defaults(models, settings)
    return models, refused
