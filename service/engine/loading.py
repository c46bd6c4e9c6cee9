"""Load what is served, at the start."""

import logging
from collections.abc import Collection
from pathlib import Path

from artifact.errors import BadExport
from artifact.loading import LoadedModel, find_versions, load_export
from service.engine.selection import check_defaults
from service.metrics import Metrics
from service.settings import Settings

log = logging.getLogger(__name__)


def load_models(
    settings: Settings, metrics: Metrics, served: Collection[str] | None = None
) -> tuple[list[LoadedModel], list[Path]]:
    """Load every export; also the folders of those refused.

    At the first start, unless `skip_bad_exports`, the newest version of each has to be sound. Else the newest sound one
    is taken, as a server that runs refuses a damaged version and goes on with the one before.

    Args:
        settings: of the server.
        metrics: where refusals are counted.
        served: names that this server has served before, if it is started again.

    Raises: BadExport for a name that has to be served and has no version that can be; always if none is left.

    """
    falls_back = settings.skip_bad_exports or served is not None
    models, refused = list[LoadedModel](), list[Path]()
    for versions in find_versions(settings.exports):
        for folder in versions:
            try:
                models.append(load_export(folder, format=settings.backend, device=settings.device))
                break
            except BadExport as error:
                metrics.exports_refused.labels(folder.parent.name, error.reason).inc()
                if not falls_back:
                    raise
                log.error("refused: %s", error)
                refused.append(folder)
                last = error
        else:
            if not settings.skip_bad_exports and served is not None and versions[0].parent.name in served:
                raise last
    if refused and not models:
        raise last
    check_defaults(models, settings)
    return models, refused
