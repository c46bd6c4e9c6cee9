"""TEI's `/info` and `/health`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from artifact import __version__
from artifact.tasks.classification import Classification
from artifact.tasks.matching import Matching
from service.compat.tei.errors import DIALECT
from service.compat.tei.scores import MATCH
from service.engine.selection import Models
from service.errors import NotReady
from service.wire.dependencies import CurrentRuntime
from service.wire.responses import json_response

router = DIALECT.router("text-embeddings-inference")
health = DIALECT.router("text-embeddings-inference")
"""Its route needs no key, because load balancers send none."""


class TEILabels(BaseModel):
    """Labels of the outputs."""

    id2label: dict[str, str]
    label2id: dict[str, int]


class TEIInfo(BaseModel):
    """Response of `/info`."""

    model_config = ConfigDict(protected_namespaces=())

    model_id: str
    model_sha: str
    model_dtype: str
    served_model_name: str
    model_type: dict[Literal["classifier", "reranker"], TEILabels]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None


@health.head("/health", include_in_schema=False)
@health.get("/health", name="tei_health", response_class=Response, responses=DIALECT.responses(503))
async def get_health(runtime: CurrentRuntime) -> Response:
    """Return 200 without a body if all models are ready."""
    if not runtime.engine.is_ready:
        raise NotReady("unhealthy")
    return Response()


@router.get("/info", name="tei_info", response_model=TEIInfo, responses=DIALECT.responses(401, 422))
async def get_info(runtime: CurrentRuntime) -> Response:
    """Describe the default classifier; without classifiers, the default matcher as a re-ranker. Tokens are bytes."""
    models, settings = runtime.models, runtime.settings
    kind: type[Classification | Matching] = Classification if has_classifier(models) else Matching
    task = models.choose(kind, None).task
    manifest, labels = task.manifest, task.parameters.get("labels", [MATCH])
    files = manifest.files_of(settings.backend)
    file = files[max(files)]
    names = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    info = {
        "model_id": manifest.name,
        "model_sha": file.sha256,
        "model_dtype": file.precision,
        "served_model_name": manifest.name,
        "model_type": {"classifier" if kind is Classification else "reranker": names},
        "max_concurrent_requests": settings.max_queue_rows,
        "max_input_length": manifest.max_length,
        "max_batch_tokens": settings.max_body_bytes,
        "max_batch_requests": settings.max_batch_rows,
        "max_client_batch_size": settings.max_documents,
        "auto_truncate": False,
        "tokenization_workers": 1,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }
    return json_response(info)


def has_classifier(models: Models) -> bool:
    """Whether a classifier is served; `POST /` and `/info` use the matcher otherwise."""
    return bool(models.of_task(Classification.name))
