"""`/v1/models`: what is served, with its limits, origin and measured results."""

from typing import Any

from fastapi import APIRouter, Request

from service.engine import Engine, ServedModel, public_facts
from service.routes.errors import DOCUMENTED
from service.settings import Settings

router = APIRouter(prefix="/v1/models")


@router.get("")
async def get_models(request: Request) -> dict[str, list[dict[str, Any]]]:
    """All models."""
    engine: Engine = request.app.state.engine
    return {"models": [_describe(model, request.app.state.settings) for model in engine.models.values()]}


@router.get("/{name}", responses={404: DOCUMENTED[404]})
async def get_model(name: str, request: Request) -> dict[str, Any]:
    """One model."""
    engine: Engine = request.app.state.engine
    return _describe(engine.model(name), request.app.state.settings)


def _describe(model: ServedModel, settings: Settings) -> dict[str, Any]:
    limits = {
        "body_bytes": settings.max_body_bytes,
        "document_bytes": settings.max_document_bytes,
        "documents": settings.max_documents,
        "rank_documents": settings.max_rank_documents,
        "deadline_s": settings.deadline_s,
    }
    return {**public_facts(model.manifest), "ready": model.batcher.is_ready, "limits": limits}
