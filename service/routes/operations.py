"""`/metrics`, and the way to the pages."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from prometheus_client import CONTENT_TYPE_LATEST

router = APIRouter()


@router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
@router.head("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Prometheus text format."""
    return Response(request.app.state.metrics.expose(), media_type=CONTENT_TYPE_LATEST)


@router.get("/", include_in_schema=False)
@router.head("/", include_in_schema=False)
async def root() -> RedirectResponse:
    """To the pages, for who opens the address in a browser."""
    return RedirectResponse("docs")
