"""All routes of the application, in the order of the OpenAPI document."""

import dataclasses
from collections.abc import Mapping, Sequence

from service.compat import kserve, kserve_v1, openai
from service.compat.oip import config, control, infer, metadata, repository, statistics
from service.compat.tei import embed, info, root, scores
from service.routes import classify, forecast, matching, models, operations, page
from service.wire.route import Route, Table

TAGS: Mapping[str, Sequence[Route]] = {
    "Classify documents": classify.ROUTES,
    "Score and rank documents": matching.ROUTES,
    "Forecast time series": forecast.ROUTES,
    "Models": models.ROUTES,
    "Operations": (*metadata.HEALTH, *operations.ROUTES, *page.ROUTES),
    "Open Inference Protocol (Triton, KServe v2)": (
        *metadata.ROUTES,
        *infer.ROUTES,
        *config.ROUTES,
        *statistics.ROUTES,
        *repository.ROUTES,
        *control.ROUTES,
    ),
    "KServe v1": kserve_v1.ROUTES,
    "KServe time series": kserve.ROUTES,
    "OpenAI embeddings": openai.ROUTES,
    "text-embeddings-inference": (*info.ROUTES, *scores.ROUTES, *embed.ROUTES, *root.ROUTES),
}
"""Routes by group of the OpenAPI document."""

TABLE = Table(dataclasses.replace(route, tag=tag) for tag, routes in TAGS.items() for route in routes)
