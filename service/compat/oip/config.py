"""Triton's model configuration extension: a served model as Triton's `ModelConfig` in JSON.

Reference: model_config.proto of triton-inference-server/common. Fields that do not apply are omitted.
"""

from typing import Literal

import orjson
from starlette.responses import Response

from artifact.manifest import Format
from service.compat.oip.errors import DIALECT, TAG, VERSION
from service.compat.oip.metadata import MODEL, MODEL_VERSION, ResponseModel, TensorMetadata, described
from service.engine.served import AnyModel
from service.settings import Settings
from service.versions import VersionPolicy
from service.wire.dependencies import CurrentRuntime, NamedModel
from service.wire.responses import json_response

router = DIALECT.router(TAG)

RUNTIMES: dict[Format, tuple[str, str]] = {
    "onnx": ("onnxruntime_onnx", "onnxruntime"),
    "torchscript": ("pytorch_libtorch", "pytorch"),
}
"""Triton's platform and backend for each format of exports."""


class LatestVersions(ResponseModel):
    """Number of highest versions that are served."""

    num_versions: int


class AllVersions(ResponseModel):
    """No fields: all versions are served."""


class SpecificVersions(ResponseModel):
    """Versions that are served, ascending."""

    versions: list[int]


class Latest(ResponseModel):
    """The policy `latest`: the highest versions are served."""

    latest: LatestVersions


class All(ResponseModel):
    """The policy `all`: every version is served."""

    all: AllVersions


class Specific(ResponseModel):
    """The policy `specific`: the listed versions are served."""

    specific: SpecificVersions


class ConfigTensor(ResponseModel):
    """An input or output. `dims` omits the first dimension, the number of items in the request."""

    name: str
    data_type: str
    dims: list[int]


class QueuePolicy(ResponseModel):
    """Queueing of requests."""

    timeout_action: Literal["REJECT"]
    default_timeout_microseconds: int
    allow_timeout_override: bool
    """Whether a request may set an earlier deadline."""


class DynamicBatching(ResponseModel):
    """Batching of requests."""

    preferred_batch_size: list[int]
    """Number of rows in a full batch of the longest bucket."""
    max_queue_delay_microseconds: int
    """0: a batch never waits for more rows."""
    preserve_ordering: bool
    default_queue_policy: QueuePolicy


class ConfigParameter(ResponseModel):
    """A string, or a list as JSON."""

    string_value: str


class ModelConfig(ResponseModel):
    """Triton's `ModelConfig`, with the fields that apply."""

    name: str
    platform: str
    backend: str
    version_policy: Latest | All | Specific
    """Versions that are served."""
    max_batch_size: int
    """Maximum number of items in a request."""
    input: list[ConfigTensor]
    output: list[ConfigTensor]
    dynamic_batching: DynamicBatching
    parameters: dict[str, ConfigParameter]
    """As in the model metadata: labels, channels, frequency."""


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
    return json_response(_config(model, runtime.settings).model_dump())


def _config(model: AnyModel, settings: Settings) -> ModelConfig:
    """Configuration of a model."""
    manifest = model.manifest
    platform, backend = RUNTIMES[settings.backend]
    inputs, outputs = (list(map(described, tensors)) for tensors in model.task.tensors)
    return ModelConfig(
        name=manifest.name,
        platform=platform,
        backend=backend,
        version_policy=_version_policy(manifest.name, VersionPolicy.parse(settings.version_policy)),
        max_batch_size=settings.max_documents,
        input=[_tensor(tensor) for tensor in inputs],
        output=[_tensor(tensor) for tensor in outputs],
        dynamic_batching=DynamicBatching(
            preferred_batch_size=[model.batcher.batch_rows],
            max_queue_delay_microseconds=0,
            preserve_ordering=False,
            default_queue_policy=QueuePolicy(
                timeout_action="REJECT",
                default_timeout_microseconds=round(1e6 * settings.deadline_s),
                allow_timeout_override=True,
            ),
        ),
        parameters={name: ConfigParameter(string_value=_text(value)) for name, value in model.task.parameters.items()},
    )


def _version_policy(name: str, policy: VersionPolicy) -> Latest | All | Specific:
    """The version policy of a model in Triton's format."""
    if name in policy.listed:
        return Specific(specific=SpecificVersions(versions=sorted(policy.listed[name])))
    return Latest(latest=LatestVersions(num_versions=1)) if policy.takes_one(name) else All(all=AllVersions())


def _tensor(tensor: TensorMetadata) -> ConfigTensor:
    """A tensor of the model metadata in Triton's format."""
    data_type = "TYPE_STRING" if tensor.datatype == "BYTES" else f"TYPE_{tensor.datatype}"
    return ConfigTensor(name=tensor.name, data_type=data_type, dims=tensor.shape[1:])


def _text(value: str | list[str]) -> str:
    """Value of a parameter, which must be a string."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
