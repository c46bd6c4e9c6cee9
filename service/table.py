"""The route table of the application, in the order of the OpenAPI document."""

import dataclasses
from collections.abc import Mapping, Sequence

from service.compat import kserve, tei
from service.compat.oip import infer, metadata
from service.routes import classify, forecast, matching, models, operations
from service.wire.route import Route, Table

TAGS: Mapping[str, Sequence[Route]] = {
    "Classify documents": classify.ROUTES,
    "Score and rank documents": matching.ROUTES,
    "Forecast time series": forecast.ROUTES,
    "Models": models.ROUTES,
    "Open Inference Protocol (Triton, KServe v2)": (*metadata.ROUTES, *infer.ROUTES),
    "KServe time series": kserve.ROUTES,
    "text-embeddings-inference": tei.ROUTES,
    "Health and metrics": (*metadata.HEALTH, *operations.ROUTES),
}
"""Groups of the document."""

TABLE = Table(dataclasses.replace(route, tag=tag) for tag, routes in TAGS.items() for route in routes)
