"""Runs models for requests, and responds with their results."""

import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response

from service.engine.served import ServedModel
from service.offload import offload
from service.tasks.timing import Timing
from service.wire.context import Inference, RequestContext
from service.wire.disconnect import cancel_on_disconnect
from service.wire.responses import json_response

T = TypeVar("T")


async def run(context: RequestContext, model: ServedModel, work: Coroutine[Any, Any, T]) -> T:
    """Await the inference `work` of a model; cancel it if the client disconnects.

    Raises: ClientDisconnect; errors of `work`.
    """
    try:
        with model.in_flight:
            result = await cancel_on_disconnect(context.body, work)
    except BaseException:
        model.metrics.failed(time.perf_counter() - context.started)
        raise
    context.computed = time.perf_counter()
    return result


async def respond(
    context: RequestContext,
    model: ServedModel,
    work: Coroutine[Any, Any, tuple[T, Timing]],
    to_json: Callable[[T], dict[str, Any]],
    count: int = 1,
) -> Response:
    """Run a model and respond with JSON.

    Args:
        context: the request.
        model: the model.
        work: the inference; returns the result and its timing.
        to_json: converts the result to the response's JSON, without the fields `model` and `version`.
        count: number of items in the result; a large result is converted in a thread.

    Raises: ClientDisconnect; errors of `work`.

    """
    result, timing = await run(context, model, work)
    response = await offload(count, lambda: json_response({**model_fields(model), **to_json(result)}))
    record(context, model, timing)
    return response


def record(context: RequestContext, model: ServedModel, timing: Timing) -> None:
    """Record the stages of a request, whose response is ready, in metrics, trace and `Server-Timing`.

    The metrics leave out how long the client took to send the body: it would tell about the client.
    """
    finished = time.perf_counter()
    model.metrics.answered(
        model.manifest.task,
        decode_s=timing.decode,
        queue_s=timing.queue,
        compute_s=timing.compute,
        encode_s=finished - context.computed,
        total_s=finished - (context.body.read_at or context.started),
    )
    context.server_timing.update(queue=timing.queue, compute=timing.compute)
    context.inference = Inference(model.manifest, timing, finished)


def model_fields(model: ServedModel) -> dict[str, Any]:
    """Fields of a response that name the model."""
    return {"model": model.manifest.name, "version": model.manifest.version}
