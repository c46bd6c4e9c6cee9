"""Triton's statistics extension: counts and durations per version of a model, in this process, since it was loaded.

An inference is a computed row: a document, a window of a long document, or a window of a series. A text whose encoding
is cached is not computed again. NDJSON uploads do not count as requests, but their rows and batches do count.
"""

from collections.abc import Sequence
from typing import Literal

from starlette.responses import Response

from service.compat.oip.errors import DIALECT, TAG, VERSION
from service.compat.oip.metadata import MODEL, MODEL_VERSION, ResponseModel
from service.engine.served import AnyModel
from service.statistics import Duration
from service.wire.dependencies import CurrentRuntime, NamedModel
from service.wire.responses import json_response

router = DIALECT.router(TAG)

StageStat = Literal[
    "success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"
]


class DurationStat(ResponseModel):
    """Number of measurements, and their sum in nanoseconds."""

    count: int
    ns: int


class BatchStats(ResponseModel):
    """Batches of one size."""

    batch_size: int
    compute_infer: DurationStat


class ModelStats(ResponseModel):
    """Statistics of one version of a model."""

    name: str
    version: str
    last_inference: int
    """Time of the last response or batch in milliseconds since 1970; 0 if there was none."""
    inference_count: int
    execution_count: int
    inference_stats: dict[StageStat, DurationStat]
    """`success`: answered requests; `fail`: rejected, cancelled or failed ones. Stages of those answered: `queue`
    (the longest time that a row was queued), `compute_input` (documents to rows), `compute_infer` (the longest batch),
    `compute_output` (outputs to the response). `cache_hit` and `cache_miss` are always 0: responses are not cached."""
    batch_stats: list[BatchStats]


class StatisticsResponse(ResponseModel):
    """Body of the response."""

    model_stats: list[ModelStats]


@router.get(
    "/v2/models/stats",
    name="oip_statistics",
    response_model=StatisticsResponse,
    responses=DIALECT.responses(401),
)
async def get_statistics(runtime: CurrentRuntime) -> Response:
    """Return counts and durations of all models in the process that answers."""
    return _respond(runtime.models.served)


@router.get(
    f"{MODEL}/stats",
    name="oip_model_statistics",
    response_model=StatisticsResponse,
    responses=DIALECT.responses(401, 404),
)
async def get_model_statistics(runtime: CurrentRuntime, model: NamedModel) -> Response:
    """Return counts and durations of a model, for each of its versions."""
    return _respond(runtime.models.versions(model.manifest.name))


@router.get(
    f"{MODEL_VERSION}/stats",
    name="oip_model_version_statistics",
    response_model=StatisticsResponse,
    responses=DIALECT.responses(401, 404),
    openapi_extra=VERSION,
)
async def get_version_statistics(model: NamedModel) -> Response:
    """Return counts and durations of a version of a model."""
    return _respond([model])


def _respond(models: Sequence[AnyModel]) -> Response:
    """Respond with the statistics of models."""
    return json_response(StatisticsResponse(model_stats=[_stats(model) for model in models]).model_dump())


def _stats(model: AnyModel) -> ModelStats:
    """Statistics of a version in Triton's format."""
    manifest, done = model.manifest, model.metrics.statistics
    stages: dict[StageStat, Duration] = {
        "success": done.success,
        "fail": done.fail,
        "queue": done.queue,
        "compute_input": done.decode,
        "compute_infer": done.compute,
        "compute_output": done.encode,
        "cache_hit": Duration(),
        "cache_miss": Duration(),
    }
    return ModelStats(
        name=manifest.name,
        version=str(manifest.version),
        last_inference=int(1000 * done.last_s),
        inference_count=done.rows,
        execution_count=done.executions,
        inference_stats={stage: _stat(duration) for stage, duration in stages.items()},
        batch_stats=[
            BatchStats(batch_size=rows, compute_infer=_stat(batches)) for rows, batches in sorted(done.batches.items())
        ],
    )


def _stat(duration: Duration) -> DurationStat:
    return DurationStat(count=duration.count, ns=round(1e9 * duration.seconds))
