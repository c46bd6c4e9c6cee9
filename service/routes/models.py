"""`/v1/models`: the served models with their limits, training and measured results.

Clients of KServe's V1 protocol read `name` and `ready` of a model.
"""

from typing import Any

from starlette.responses import Response

from service.engine.served import ServedModel
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.responses import json_response
from service.wire.route import Route
from service.wire.schemas import ModelDescription, ModelList

PUBLIC = {
    *("name", "version", "task", "labels", "min_length", "max_length", "window_overlap"),
    *("channels", "context_length", "horizon", "min_observations", "frequency"),
    *("calibration_source", "calibration_examples", "quantiles_reliable"),
    *("temperature", "reliability", "stretches"),
    *("results", "training", "data_terms", "non_commercial"),
}
"""Fields of the manifest that are returned."""


async def get_models(call: Call) -> Response:
    """List all models, and the default model of each task."""
    defaults = {
        task: {"model": default.name, "reason": default.reason}
        for task in sorted({model.manifest.task for model in call.models.values()})
        if (default := call.models.default(task)) is not None
    }
    described = [_describe(call, model) for model in call.models.served]
    return json_response({"models": described, "defaults": defaults})


async def get_model(call: Call) -> Response:
    """Describe one model."""
    return json_response(_describe(call, call.models.named(call.path_params["name"])))


def _describe(call: Call, model: ServedModel) -> dict[str, Any]:
    settings = call.settings
    limits = {
        "body_bytes": settings.max_body_bytes,
        "document_bytes": settings.max_document_bytes,
        "documents": settings.max_documents,
        "rank_documents": settings.max_rank_documents,
        "deadline_s": settings.deadline_s,
    }
    public = model.manifest.model_dump(mode="json", include=PUBLIC)
    return {**public, "ready": call.is_ready(model), "limits": limits}


ROUTES = (
    Route(method="GET", path="/v1/models", handler=get_models, answers={JSON: ModelList}, statuses=(401,)),
    Route(
        method="GET", path="/v1/models/{name}", handler=get_model, answers={JSON: ModelDescription}, statuses=(401, 404)
    ),
)
