"""`/v1/models`: what is served, with its limits, origin and measured results."""

from typing import Any

from fastapi import APIRouter, Request, Response

from service.engine.engine import Engine, ServedModel, public_facts
from service.settings import Settings
from service.wire.errors import DOCUMENTED
from service.wire.requests import named
from service.wire.responses import json_response
from service.wire.schemas import ModelDescription, ModelList

router = APIRouter(prefix="/v1/models", responses={401: DOCUMENTED[401]})


@router.get("", response_model=ModelList)
async def get_models(request: Request) -> Response:
    """All models."""
    engine: Engine = request.app.state.engine
    models = [_describe(model, request.app.state.settings) for model in engine.models.values()]
    return json_response({"models": models})


@router.get("/{name}", response_model=ModelDescription, responses={404: DOCUMENTED[404]}, openapi_extra=named("name"))
async def get_model(request: Request) -> Response:
    """One model."""
    engine: Engine = request.app.state.engine
    return json_response(_describe(engine.model(request.path_params["name"]), request.app.state.settings))


def _describe(model: ServedModel, settings: Settings) -> dict[str, Any]:
    limits = {
        "body_bytes": settings.max_body_bytes,
        "document_bytes": settings.max_document_bytes,
        "documents": settings.max_documents,
        "rank_documents": settings.max_rank_documents,
        "deadline_s": settings.deadline_s,
    }
    return {**public_facts(model.manifest), "ready": model.batcher.is_ready, "limits": limits}
