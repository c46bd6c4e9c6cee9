"""`/metrics`."""

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from service.wire.dependencies import CurrentRuntime
from service.wire.errors import NATIVE
from service.wire.responses import SharedResponse

router = NATIVE.router("Operations")
"""Its routes need no key, because Prometheus sends none by default."""


@router.head("/metrics", include_in_schema=False)
@router.get("/metrics", name="metrics", response_class=PlainTextResponse)
async def get_metrics(runtime: CurrentRuntime) -> Response:
    """Return the metrics in Prometheus text format."""
    return SharedResponse(await runtime.metrics.exposition(), CONTENT_TYPE_LATEST)
