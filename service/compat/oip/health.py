"""Health and readiness of the server, as the Open Inference Protocol defines them."""

from fastapi import APIRouter, Request

from service.compat.oip.errors import ERRORS
from service.engine.engine import Engine
from service.errors import NotReady

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
