"""Triton's model configuration extension: the fields of Triton's `ModelConfig` that its clients read, in JSON.

Reference: model_config.proto of triton-inference-server/common.
"""

from starlette.responses import Response

from artifact.manifest import Format
from artifact.tasks.base import Tensor
from service.compat.oip.errors import DIALECT, TAG, VERSION
from service.compat.oip.metadata import MODEL, MODEL_VERSION, ResponseModel
from service.wire.dependencies import CurrentRuntime, NamedModel
from service.wire.responses import json_response

router = DIALECT.router(TAG)

RUNTIMES: dict[Format, tuple[str, str]] = {
    "onnx": ("onnxruntime_onnx", "onnxruntime"),
    "torchscript": ("pytorch_libtorch", "pytorch"),
}
"""Triton's platform and backend for each format of exports."""


class ConfigTensor(ResponseModel):
    """An input or output. `dims` omits the first dimension, the number of items in the request."""

    name: str
    data_type: str
    dims: list[int]
    optional: bool = False
    """Whether a request may lack the input; left out if it may not."""


class DynamicBatching(ResponseModel):
    """Rows of different requests are computed together."""

    preferred_batch_size: list[int]
    """Number of rows in a full batch of the longest bucket."""
    max_queue_delay_microseconds: int
    """0: a batch never waits for more rows."""


class ModelConfig(ResponseModel):
    """Some fields of Triton's `ModelConfig`."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    """Maximum number of items in a request."""
    input: list[ConfigTensor]
    output: list[ConfigTensor]
    dynamic_batching: DynamicBatching


@router.get(
    f"{MODEL}/config",
    name="oip_config",
    response_model=ModelConfig,
    responses=DIALECT.responses(401, 404),
)
@router.get(
    f"{MODEL_VERSION}/config",
    name="oip_version_config",
    response_model=ModelConfig,
    responses=DIALECT.responses(401, 404),
    openapi_extra=VERSION,
)
async def get_config(runtime: CurrentRuntime, model: NamedModel) -> Response:
    """Return the configuration of a model as Triton's `ModelConfig` in JSON."""
    platform, backend = RUNTIMES[runtime.settings.backend]
    inputs, outputs = model.task.tensors
    config = ModelConfig(
        name=model.manifest.name,
        platform=platform,
        backend=backend,
        max_batch_size=runtime.settings.max_documents,
        input=[_tensor(tensor) for tensor in inputs],
        output=[_tensor(tensor) for tensor in outputs],
        dynamic_batching=DynamicBatching(
            preferred_batch_size=[model.batcher.batch_rows], max_queue_delay_microseconds=0
        ),
    )
    return json_response(config.model_dump(exclude_defaults=True))


def _tensor(tensor: Tensor) -> ConfigTensor:
    """An input or output of a task in Triton's format."""
    data_type = "TYPE_STRING" if tensor.datatype == "BYTES" else f"TYPE_{tensor.datatype}"
    return ConfigTensor(name=tensor.name, data_type=data_type, dims=list(tensor.shape[1:]), optional=tensor.is_optional)
