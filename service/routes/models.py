"""`/v1/models`: the served models with their limits, training and measured results.

Clients of KServe's V1 protocol read `name` and `ready` of a model, those of OpenAI `data`, and `id` of a model.
"""

from typing import Any

from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from service.engine.served import AnyModel
from service.runtime import Runtime
from service.wire.dependencies import CurrentRuntime, ModelPath, NamedModel
from service.wire.errors import NATIVE
from service.wire.media import MARKDOWN
from service.wire.responses import json_response
from service.wire.schemas import ModelList, NamedModelDescription

PUBLIC = frozenset({"name", "version", "task", "results", "training", "data_terms", "non_commercial"})
"""Fields of the manifest that are returned, beside those of the task."""


class ModelNameConvertor(Convertor[str]):
    """A variable that does not match `NAME:predict`, which is a path of its own (`service.compat.kserve_v1`)."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        """The name in a path."""
        return value

    def to_string(self, value: str) -> str:
        """The part of a path with a name."""
        return value


class MarkdownResponse(PlainTextResponse):
    """A text in Markdown."""

    media_type = MARKDOWN


register_url_convertor("model", ModelNameConvertor())
router = NATIVE.router("Models")


@router.get("/v1/models", name="list_models", response_model=ModelList, responses=NATIVE.responses(401))
async def get_models(runtime: CurrentRuntime) -> Response:
    """List all models, and the default model of each task; in `data` as OpenAI does."""
    defaults = {
        task: {"model": default.name, "reason": default.reason}
        for task in sorted({model.task.name for model in runtime.models.values()})
        if (default := runtime.models.default(task)) is not None
    }
    described = [_describe(runtime, model) for model in runtime.models.served]
    names = {**runtime.models, **runtime.models.aliases}
    data = [_for_openai(name, model) for name, model in names.items()]
    return json_response({"models": described, "defaults": defaults, "object": "list", "data": data})


@router.get(
    "/v1/models/{name:model}",
    name="describe_model",
    response_model=NamedModelDescription,
    responses=NATIVE.responses(401, 404),
)
async def get_model(runtime: CurrentRuntime, model: NamedModel, name: ModelPath) -> Response:
    """Describe one model, by its name or an alias."""
    return json_response({**_for_openai(name, model), **_describe(runtime, model)})


@router.get(
    "/v1/models/{name:model}/card",
    name="model_card",
    response_class=MarkdownResponse,
    responses=NATIVE.responses(401, 404),
)
async def get_card(model: NamedModel) -> Response:
    """Return the card of a model, its `README.md`: data, results, limits, how to ask it and terms of use."""
    if not model.card:
        raise HTTPException(404, f"{model.manifest.name} {model.manifest.version} has no card, which is its README.md")
    return MarkdownResponse(model.card)


def _for_openai(name: str, model: AnyModel) -> dict[str, Any]:
    """A model with the name by which it is asked for, as OpenAI's clients read it."""
    return {"id": name, "object": "model", "created": model.created, "owned_by": "longdoc-serve"}


def _describe(runtime: Runtime, model: AnyModel) -> dict[str, Any]:
    settings = runtime.settings
    limits = {
        "body_bytes": settings.max_body_bytes,
        "document_bytes": settings.max_document_bytes,
        "documents": settings.max_documents,
        "rank_documents": settings.max_rank_documents,
        "embedding_documents": settings.max_embedding_documents,
        "deadline_s": settings.deadline_s,
    }
    public = model.manifest.model_dump(mode="json", include=set(PUBLIC | model.task.public))
    return {**public, "ready": runtime.engine.is_serving(model), "limits": limits}
