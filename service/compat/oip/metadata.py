"""The server and its models, as the Open Inference Protocol describes them: metadata, health and readiness."""

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from artifact import __version__
from artifact.manifest import ClassifierManifest, Manifest, MatcherManifest
from service.compat.oip.errors import DIALECT
from service.compat.oip.tensors import Datatype
from service.errors import NotReady
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.responses import json_response
from service.wire.route import Route

MODEL_PATHS = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
EXTENSIONS = ["binary_tensor_data", "classification", "parameters"]
PLATFORMS = {"onnx": "onnx_onnxv1", "torchscript": "pytorch_torchscript"}
"""The specification's names of our formats."""


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True, protected_namespaces=())


class TensorMetadata(_Shown):
    """Name, datatype and shape (-1 = any) of an input or output."""

    name: str
    datatype: Datatype
    shape: list[int]


class ModelMetadata(_Shown):
    """What a model takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


async def get_server(call: Call) -> Response:
    """Name, version and extensions of the server."""
    del call
    return json_response({"name": "longdoc-serve", "version": __version__, "extensions": EXTENSIONS})


async def get_model(call: Call) -> Response:
    """Inputs and outputs of a model."""
    manifest = call.models.named(**call.path_params).manifest
    inputs, outputs = _signature(manifest)
    metadata = ModelMetadata(
        name=manifest.name,
        versions=[str(manifest.version)],
        platform=PLATFORMS[call.settings.backend],
        inputs=inputs,
        outputs=outputs,
    )
    return json_response(metadata.model_dump())


async def model_ready(call: Call) -> Response:
    """200 when one model takes requests."""
    model = call.models.named(**call.path_params)
    if call.engine.is_draining or not model.batcher.is_ready:
        raise NotReady("the model takes no requests")
    return json_response({"name": model.manifest.name, "ready": True})


async def live(call: Call) -> Response:
    """200 while the process answers."""
    del call
    return json_response({"live": True})


async def ready(call: Call) -> Response:
    """200 when every model takes requests; 503 from SIGTERM on, so that balancers look elsewhere."""
    if not call.engine.is_ready:
        raise NotReady("the server is about to stop" if call.engine.is_draining else "a model has failed")
    return json_response({"live": True, "ready": True})  # the specification names the one, Triton sends the other


def _signature(manifest: Manifest) -> tuple[list[TensorMetadata], list[TensorMetadata]]:
    """What a model takes and gives."""

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
"""Without keys: load balancers send none."""
