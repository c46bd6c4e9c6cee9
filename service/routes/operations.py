"""`/metrics`, and the way to the pages."""

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import RedirectResponse, Response

from service.wire.call import Call
from service.wire.media import TEXT
from service.wire.route import Route


async def metrics(call: Call) -> Response:
    """Prometheus text format."""
    return Response(call.metrics.expose(), media_type=CONTENT_TYPE_LATEST)


async def root(call: Call) -> Response:
    """To the pages, for who opens the address in a browser."""
    del call
    return RedirectResponse("docs")


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
    Route(method="GET", path="/", handler=root, needs_key=False, answers_head=True, is_documented=False),
)
"""Metrics need no key, since Prometheus sends none."""
