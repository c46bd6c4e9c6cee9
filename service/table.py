"""The route table of the application, in the order of the OpenAPI document."""

from service.compat import kserve, tei
from service.compat.oip import infer, metadata
from service.routes import classify, forecast, matching, models, operations
from service.wire.route import Table

TABLE = Table(
    (
        *metadata.ROUTES,
        *infer.ROUTES,
        *classify.ROUTES,
        *matching.ROUTES,
        *forecast.ROUTES,
        *kserve.ROUTES,
        *tei.ROUTES,
        *models.ROUTES,
        *metadata.HEALTH,
        *operations.ROUTES,
    )
)
