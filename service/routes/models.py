"""`/v1/models`: what is served, with its limits, origin and measured results."""

from typing import Any

from starlette.responses import Response

from service.engine.served import ServedModel
from service.settings import Settings
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.responses import json_response
from service.wire.route import Route
from service.wire.schemas import ModelDescription, ModelList

PUBLIC = {
    *("name", "version", "task", "labels", "min_length", "max_length", "window_overlap"),
    *("channels", "context_length", "horizon", "min_observations", "frequency"),
    *("calibration_source", "calibration_examples", "quantiles_reliable"),
    *("temperature", "reliability"),
    *("results", "training", "data_terms", "non_commercial"),
}
"""Keys of a manifest that are told."""


async def get_models(call: Call) -> Response:
    """All models, and which of them answer when a request names none."""
    defaults = {
        task: {"model": default.name, "reason": default.reason}
        for task in sorted({model.manifest.task for model in call.models.values()})
        if (default := call.models.default(task)) is not None
    }
    described = [_describe(model, call.settings) for model in call.models.values()]
    return json_response({"models": described, "defaults": defaults})


async def get_model(call: Call) -> Response:
    """One model."""
    return json_response(_describe(call.models.named(call.path_params["name"]), call.settings))


def _describe(model: ServedModel, settings: Settings) -> dict[str, Any]:
    limits = {
        "body_bytes": settings.max_body_bytes,
        "document_bytes": settings.max_document_bytes,
        "documents": settings.max_documents,
        "rank_documents": settings.max_rank_documents,
        "deadline_s": settings.deadline_s,
    }
    public = model.manifest.model_dump(mode="json", include=PUBLIC)
    return {**public, "ready": model.batcher.is_ready, "limits": limits}


ROUTES = (
    Route(method="GET", path="/v1/models", handler=get_models, answers={JSON: ModelList}, statuses=(401,)),
    Route(
        method="GET", path="/v1/models/{name}", handler=get_model, answers={JSON: ModelDescription}, statuses=(401, 404)
    ),
)
