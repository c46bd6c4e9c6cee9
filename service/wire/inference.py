"""Runs models for requests, and responds with their results."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.responses import Response

from artifact.tasks.base import Computation
from service.engine.served import AnyModel, Timing
from service.offload import offload
from service.wire.context import Inference, RequestContext
from service.wire.disconnect import cancel_on_disconnect
from service.wire.responses import json_response

T = TypeVar("T")


async def run(
    context: RequestContext, model: AnyModel, computation: Computation[T], items: int = 1
) -> tuple[T, Timing]:
    """Run a computation of a model; cancel it if the client disconnects.

    Args:
        context: the request.
        model: the model.
        computation: returned by a method of the model's task.
        items: number of inputs, as `offload` counts them.

    Raises: ClientDisconnect; errors of the computation.

    """
    try:
        with model.in_flight:
            work = model.run(computation, context.deadline, items=items)
            answer, timing = await cancel_on_disconnect(context.body, work)
    except BaseException:
        model.metrics.failed(time.perf_counter() - context.started)
        raise
    context.computed = time.perf_counter()
    return answer, timing


async def respond(
    context: RequestContext,
    model: AnyModel,
    computation: Computation[T],
    to_json: Callable[[T], dict[str, Any]],
    items: int = 1,
) -> Response:
    """Run a computation of a model and respond with JSON.

    Args:
        context: the request.
        model: the model.
        computation: returned by a method of the model's task.
        to_json: converts the answer to the response's JSON, without the fields `model` and `version`.
        items: number of inputs or of results, as `offload` counts them: many are converted in a thread.

    Raises: ClientDisconnect; errors of the computation.

    """
    answer, timing = await run(context, model, computation, items)
    response = await offload(items, lambda: json_response({**model_fields(model), **to_json(answer)}))
    record(context, model, timing)
    return response


def record(context: RequestContext, model: AnyModel, timing: Timing) -> None:
    """Record the stages of a request, whose response is ready, in metrics, trace and `Server-Timing`.

    The metrics leave out how long the client took to send the body: it would tell about the client.
    """
    finished = time.perf_counter()
    model.metrics.answered(
        model.task.name,
        decode_s=timing.decode,
        queue_s=timing.queue,
        compute_s=timing.compute,
        encode_s=finished - context.computed,
        total_s=finished - (context.body.read_at or context.started),
    )
    context.server_timing.update(queue=timing.queue, compute=timing.compute)
    context.inference = Inference(model.manifest, timing, finished)


def model_fields(model: AnyModel) -> dict[str, Any]:
    """Fields of a response that name the model."""
    return {"model": model.manifest.name, "version": model.manifest.version}
