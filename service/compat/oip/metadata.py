"""Metadata and health of the server and its models, by the Open Inference Protocol."""

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from artifact import __version__
from artifact.manifest import ClassifierManifest, ForecasterManifest, Manifest, MatcherManifest
from service.compat.oip.errors import DIALECT
from service.compat.oip.tensors import Datatype
from service.errors import NotReady
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.responses import json_response
from service.wire.route import Route

MODEL_PATHS = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
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


async def get_server(call: Call) -> Response:
    """Return name, version and extensions of the server."""
    del call
    return json_response({"name": "longdoc-serve", "version": __version__, "extensions": EXTENSIONS})


async def get_model(call: Call) -> Response:
    """Return the inputs and outputs of a model."""
    manifest = call.models.named(**call.path_params).manifest
    served = [model.manifest.version for model in call.models.versions(manifest.name)]
    inputs, outputs = signature(manifest)
    metadata = ModelMetadata(
        name=manifest.name,
        versions=[str(version) for version in sorted(served)],
        platform=PLATFORMS[call.settings.backend],
        inputs=inputs,
        outputs=outputs,
        parameters=parameters(manifest),
    )
    return json_response(metadata.model_dump())


async def model_ready(call: Call) -> Response:
    """Return 200 if the model is ready, else 503."""
    model = call.models.named(**call.path_params)
    if not call.is_ready(model):
        raise NotReady("the model is not ready")
    return json_response({"name": model.manifest.name, "ready": True})


async def live(call: Call) -> Response:
    """Return 200 while the process runs."""
    del call
    return json_response({"live": True})


async def ready(call: Call) -> Response:
    """Return 200 if all models are ready; 503 after SIGTERM, so that load balancers stop sending requests."""
    if not call.engine.is_ready:
        raise NotReady("the server is about to stop" if call.engine.is_draining else "a model has failed")
    return json_response(
        {"live": True, "ready": True}
    )  # `live` is what the specification names, `ready` what Triton sends


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


ROUTES = (
    Route(
        method="GET",
        path="/v2",
        handler=get_server,
        dialect=DIALECT,
        answers={JSON: dict[str, str | list[str]]},
        statuses=(401,),
    ),
    *(
        Route(
            method="GET",
            path=path,
            handler=get_model,
            dialect=DIALECT,
            answers={JSON: ModelMetadata},
            statuses=(401, 404),
        )
        for path in MODEL_PATHS
    ),
    *(
        Route(
            method="GET",
            path=f"{path}/ready",
            handler=model_ready,
            dialect=DIALECT,
            answers={JSON: dict[str, str | bool]},
            statuses=(401, 404, 503),
        )
        for path in MODEL_PATHS
    ),
)
HEALTH = (
    Route(
        method="GET",
        path="/v2/health/live",
        handler=live,
        dialect=DIALECT,
        needs_key=False,
        answers_head=True,
        answers={JSON: dict[str, bool]},
        statuses=(),
    ),
    Route(
        method="GET",
        path="/v2/health/ready",
        handler=ready,
        dialect=DIALECT,
        needs_key=False,
        answers_head=True,
        answers={JSON: dict[str, bool]},
        statuses=(503,),
    ),
)
"""The routes need no key, because load balancers send none."""
