"""Health and readiness of the Open Inference Protocol, and `/metrics`."""

from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service.engine import Engine
from service.errors import NotReady
from service.routes.errors import DOCUMENTED

NOT_READY: dict[int | str, dict[str, Any]] = {503: DOCUMENTED[503]}

router = APIRouter()


@router.get("/v2/health/live")
async def live() -> dict[str, bool]:
    """200 while the process answers."""
    return {"live": True}


@router.get("/v2/health/ready", responses=NOT_READY)
async def ready(request: Request) -> dict[str, bool]:
    """200 when every model takes requests; 503 from SIGTERM on, so that balancers look elsewhere."""
    engine: Engine = request.app.state.engine
    if not engine.is_ready:
        raise NotReady("the server is about to stop" if engine.is_draining else "a model has failed")
    return {"ready": True}


@router.get("/v2/models/{name}/ready", responses={404: DOCUMENTED[404], **NOT_READY})
@router.get("/v2/models/{name}/versions/{version}/ready", responses={404: DOCUMENTED[404], **NOT_READY})
async def model_ready(request: Request, name: str, version: str | None = None) -> dict[str, str | bool]:
    """200 when one model takes requests."""
    engine: Engine = request.app.state.engine
    model = engine.model(name, version)
    if engine.is_draining or not model.batcher.is_ready:
        raise NotReady("the model takes no requests")
    return {"name": name, "ready": True}


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus text format."""
    return Response(request.app.state.metrics.expose(), media_type=CONTENT_TYPE_LATEST)
