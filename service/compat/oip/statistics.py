"""Triton's statistics extension: counts and durations per version of a model, in this process, since it was loaded.

An inference is a computed row: a document, a window of a long document, or a window of a series. A text whose encoding
is cached is not computed again. NDJSON uploads do not count as requests, but their rows and batches do count.
"""

from collections.abc import Sequence

from starlette.responses import Response

from service.compat.oip.errors import DIALECT, TAG, VERSION
from service.compat.oip.metadata import MODEL, MODEL_VERSION, ResponseModel
from service.engine.served import AnyModel
from service.statistics import Duration
from service.wire.dependencies import CurrentRuntime, NamedModel
from service.wire.responses import json_response

router = DIALECT.router(TAG)


class DurationStat(ResponseModel):
    """Number of measurements, and their sum in nanoseconds."""

    count: int
    ns: int


class InferenceStats(ResponseModel):
    """Durations of requests and of their stages."""

    success: DurationStat
    """Time from a complete request to its response."""
    fail: DurationStat
    """Requests that were rejected, cancelled or failed."""
    queue: DurationStat
    """Longest time that a row of a request was queued."""
    compute_input: DurationStat
    """Conversion of documents to rows."""
    compute_infer: DurationStat
    """Longest batch of a request."""
    compute_output: DurationStat
    """Conversion of outputs to the response."""
    cache_hit: DurationStat
    """Always 0: responses are not cached."""
    cache_miss: DurationStat
    """Always 0: responses are not cached."""


class BatchStats(ResponseModel):
    """Batches of one size."""

    batch_size: int
    compute_input: DurationStat
    """Always 0: included in `compute_infer`."""
    compute_infer: DurationStat
    compute_output: DurationStat
    """Always 0: included in `compute_infer`."""


class ModelStats(ResponseModel):
    """Statistics of one version of a model."""

    name: str
    version: str
    last_inference: int
    """Time of the last response or batch in milliseconds since 1970; 0 if there was none."""
    inference_count: int
    execution_count: int
    inference_stats: InferenceStats
    batch_stats: list[BatchStats]


class StatisticsResponse(ResponseModel):
    """Body of the response."""

    model_stats: list[ModelStats]


NOTHING = DurationStat(count=0, ns=0)


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
    return ModelStats(
        name=manifest.name,
        version=str(manifest.version),
        last_inference=int(1000 * done.last_s),
        inference_count=done.rows,
        execution_count=done.executions,
        inference_stats=InferenceStats(
            success=_stat(done.success),
            fail=_stat(done.fail),
            queue=_stat(done.queue),
            compute_input=_stat(done.decode),
            compute_infer=_stat(done.compute),
            compute_output=_stat(done.encode),
            cache_hit=NOTHING,
            cache_miss=NOTHING,
        ),
        batch_stats=[
            BatchStats(batch_size=rows, compute_input=NOTHING, compute_infer=_stat(batches), compute_output=NOTHING)
            for rows, batches in sorted(done.batches.items())
        ],
    )


def _stat(duration: Duration) -> DurationStat:
    return DurationStat(count=duration.count, ns=round(1e9 * duration.seconds))
