"""Metadata and health of the server and its models, by the Open Inference Protocol."""

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from artifact import __version__
from artifact.manifest import ClassifierManifest, ForecasterManifest, Manifest, MatcherManifest
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
    """Classifiers: `labels`, in the order of the scores. Forecasters: `channels`, in their order, and `frequency`."""


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
    inputs, outputs = signature(manifest)
    metadata = ModelMetadata(
        name=manifest.name,
        versions=[str(version) for version in sorted(served)],
        platform=PLATFORMS[runtime.settings.backend],
        inputs=inputs,
        outputs=outputs,
        parameters=parameters(manifest),
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


def signature(manifest: Manifest) -> tuple[list[TensorMetadata], list[TensorMetadata]]:
    """Inputs and outputs of a model."""

    def tensor(name: str, datatype: Datatype, *shape: int) -> TensorMetadata:
        return TensorMetadata(name=name, datatype=datatype, shape=[-1, *shape])

    if isinstance(manifest, ClassifierManifest):
        scores = tensor("scores", "FP32", len(manifest.labels))
        return [tensor("text", "BYTES")], [scores, tensor("label", "BYTES")]
    if isinstance(manifest, MatcherManifest):
        return [tensor("a", "BYTES"), tensor("b", "BYTES")], [tensor("score", "FP32")]
    channels = len(manifest.channels)
    series = tensor("series", "FP32", manifest.context_length, channels)
    return [series], [tensor("forecast", "FP32", manifest.horizon, channels)]


def parameters(manifest: Manifest) -> dict[str, str | list[str]]:
    """Labels or channels, which clients need to interpret a model's outputs."""
    if isinstance(manifest, ClassifierManifest):
        return {"labels": list(manifest.labels)}
    if isinstance(manifest, ForecasterManifest):
        return {"channels": list(manifest.channels), "frequency": manifest.frequency}
    return {}
