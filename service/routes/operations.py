"""`/metrics`."""

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from service.wire.call import Call
from service.wire.media import TEXT
from service.wire.responses import SharedResponse
from service.wire.route import Route


async def metrics(call: Call) -> Response:
    """Return the metrics in Prometheus text format."""
    return SharedResponse(await call.metrics.exposition(), CONTENT_TYPE_LATEST)


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        handler=metrics,
        needs_key=False,
        answers_head=True,
        answers={TEXT: str},
        statuses=(),
    ),
)
"""The route needs no key, because Prometheus sends none by default."""
