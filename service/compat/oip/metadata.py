"""Metadata and health of the server and its models, by the Open Inference Protocol."""

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from artifact import __version__
from artifact.tasks.base import Tensor
from service.compat.oip.errors import DIALECT, TAG, VERSION
from service.compat.oip.tensors import Datatype
from service.errors import NotReady
from service.wire.dependencies import CurrentRuntime, NamedModel
from service.wire.responses import json_response

router = DIALECT.router(TAG)
health = DIALECT.router("Operations")
"""Its routes need no key, because load balancers send none."""

MODEL = "/v2/models/{name}"
MODEL_VERSION = "/v2/models/{name}/versions/{version}"
EXTENSIONS = [
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "parameters",
    "statistics",
]
"""Triton's extensions that are supported."""
PLATFORMS = {"onnx": "onnx_onnxv1", "torchscript": "pytorch_torchscript"}
"""The protocol's platform for each format of exports."""


class ResponseModel(BaseModel):
    """Base of the types of responses."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())


class TensorMetadata(ResponseModel):
    """Name, datatype and shape of an input or output; -1 is any size."""

    name: str
    datatype: Datatype
    shape: list[int]


class ModelMetadata(ResponseModel):
    """Inputs and outputs of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    parameters: dict[str, str | list[str]]
    """Classifiers: `labels`, in the order of the scores. Models of series: `channels`, in their order. Forecasters:
    `frequency`."""


@router.get("/v2/", include_in_schema=False)  # as the protocol's OpenAPI document has it
@router.get("/v2", name="oip_server", response_model=dict[str, str | list[str]], responses=DIALECT.responses(401))
async def get_server() -> Response:
    """Return name, version and extensions of the server."""
    return json_response({"name": "longdoc-serve", "version": __version__, "extensions": EXTENSIONS})


@router.get(MODEL, name="oip_model", response_model=ModelMetadata, responses=DIALECT.responses(401, 404))
@router.get(
    MODEL_VERSION,
    name="oip_model_version",
    response_model=ModelMetadata,
    responses=DIALECT.responses(401, 404),
    openapi_extra=VERSION,
)
async def get_model(runtime: CurrentRuntime, model: NamedModel) -> Response:
    """Return the inputs and outputs of a model."""
    manifest = model.manifest
    served = [version.manifest.version for version in runtime.models.versions(manifest.name)]
    inputs, outputs = (list(map(described, tensors)) for tensors in model.task.tensors)
    metadata = ModelMetadata(
        name=manifest.name,
        versions=[str(version) for version in sorted(served)],
        platform=PLATFORMS[runtime.settings.backend],
        inputs=inputs,
        outputs=outputs,
        parameters=model.task.parameters,
    )
    return json_response(metadata.model_dump())


@router.get(
    f"{MODEL}/ready",
    name="oip_model_ready",
    response_model=dict[str, str | bool],
    responses=DIALECT.responses(401, 404, 503),
)
@router.get(
    f"{MODEL_VERSION}/ready",
    name="oip_model_version_ready",
    response_model=dict[str, str | bool],
    responses=DIALECT.responses(401, 404, 503),
    openapi_extra=VERSION,
)
async def model_ready(runtime: CurrentRuntime, model: NamedModel) -> Response:
    """Return 200 if the model is ready, else 503."""
    if not runtime.engine.is_serving(model):
        raise NotReady("the model is not ready")
    return json_response({"name": model.manifest.name, "ready": True})


@health.head("/v2/health/live", include_in_schema=False)
@health.get("/v2/health/live", name="live", response_model=dict[str, bool])
async def live() -> Response:
    """Return 200 while the process runs."""
    return json_response({"live": True})


@health.head("/v2/health/ready", include_in_schema=False)
@health.get("/v2/health/ready", name="ready", response_model=dict[str, bool], responses=DIALECT.responses(503))
async def ready(runtime: CurrentRuntime) -> Response:
    """Return 200 if all models are ready; 503 after SIGTERM, so that load balancers stop sending requests."""
    if not runtime.engine.is_ready:
        raise NotReady("the server is about to stop" if runtime.engine.is_draining else "a model has failed")
    # `live` is what the specification names, `ready` what Triton sends
    return json_response({"live": True, "ready": True})


def described(tensor: Tensor) -> TensorMetadata:
    """An input or output of a task."""
    return TensorMetadata(name=tensor.name, datatype=tensor.datatype, shape=list(tensor.shape))
