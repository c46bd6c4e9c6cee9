"""Triton's statistics extension: counts and durations per version of a model, in this process, since it was loaded.

An inference is a computed row: a document, a window of a long document, or a window of a series. A text whose encoding
is cached is not computed again. NDJSON uploads do not count as requests, but their rows and batches do count.
"""

from collections.abc import Sequence

from starlette.responses import Response

from service.compat.oip.errors import DIALECT
from service.compat.oip.metadata import MODEL_PATHS, ResponseModel
from service.engine.served import ServedModel
from service.statistics import Duration
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.responses import json_response
from service.wire.route import Route


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


async def get_statistics(call: Call) -> Response:
    """Return counts and durations of all models, or of one, in the process that answers."""
    models = _selected(call)
    return json_response(StatisticsResponse(model_stats=[_stats(model) for model in models]).model_dump())


def _selected(call: Call) -> Sequence[ServedModel]:
    """The versions that the path selects: all, those of one model, or one. Raises: ModelNotFound."""
    if not call.path_params:
        return call.models.served
    model = call.models.named(**call.path_params)
    return [model] if "version" in call.path_params else call.models.versions(model.manifest.name)


def _stats(model: ServedModel) -> ModelStats:
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


ROUTES = (
    Route(
        method="GET",
        path="/v2/models/stats",
        handler=get_statistics,
        dialect=DIALECT,
        answers={JSON: StatisticsResponse},
        statuses=(401,),
    ),
    *(
        Route(
            method="GET",
            path=f"{path}/stats",
            handler=get_statistics,
            dialect=DIALECT,
            answers={JSON: StatisticsResponse},
            statuses=(401, 404),
        )
        for path in MODEL_PATHS
    ),
)
