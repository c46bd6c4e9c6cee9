"""Health and readiness of the Open Inference Protocol, `/metrics`, and the way to the pages."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from prometheus_client import CONTENT_TYPE_LATEST

from service.engine import Engine
from service.errors import NotReady
from service.routes.oip import ERRORS

router = APIRouter()


@router.get("/v2/health/live")
@router.head("/v2/health/live", include_in_schema=False)
async def live() -> dict[str, bool]:
    """200 while the process answers."""
    return {"live": True}


@router.get("/v2/health/ready", responses={503: ERRORS[503]})
@router.head("/v2/health/ready", include_in_schema=False)
async def ready(request: Request) -> dict[str, bool]:
    """200 when every model takes requests; 503 from SIGTERM on, so that balancers look elsewhere."""
    engine: Engine = request.app.state.engine
    if not engine.is_ready:
        raise NotReady("the server is about to stop" if engine.is_draining else "a model has failed")
    return {"live": True, "ready": True}  # the specification names the one, its reference server sends the other


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
