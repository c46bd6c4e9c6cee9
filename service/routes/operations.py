"""`/metrics`, and the redirect from `/` to the documentation."""

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import RedirectResponse, Response

from service.wire.call import Call
from service.wire.media import HTML, TEXT
from service.wire.route import Route


async def metrics(call: Call) -> Response:
    """Return the metrics in Prometheus text format."""
    return Response(call.metrics.expose(), media_type=CONTENT_TYPE_LATEST)


async def root(call: Call) -> Response:
    """Redirect browsers to the documentation of the routes."""
    root_path = call.request.scope.get("root_path", "")
    return RedirectResponse(f"{root_path}/docs" if root_path else "docs")


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
    Route(method="GET", path="/", handler=root, needs_key=False, answers_head=True, answers={HTML: str}, statuses=()),
)
"""The routes need no key, because Prometheus and browsers send none by default."""
