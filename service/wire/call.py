"""One request as routes see it: its input, the server's state, and how to run a model and respond."""

import asyncio
import math
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar

from starlette.responses import Response
from starlette.types import Scope

from artifact.errors import InvalidInput
from artifact.manifest import Manifest
from service.batching.admission import limited
from service.engine.engine import Engine
from service.engine.reload import Reloader
from service.engine.selection import Models
from service.engine.served import ServedModel
from service.metrics import Metrics
from service.offload import offload
from service.parser import Parser
from service.settings import Settings
from service.tasks.timing import Timing
from service.wire.body import Body
from service.wire.disconnect import cancel_on_disconnect
from service.wire.headers import RequestHeaders
from service.wire.responses import json_response

T = TypeVar("T")

TIMEOUT_HEADER = "x-request-timeout-ms"


def path_of(scope: Scope) -> str:
    """Path of a request below the ASGI root path, such as the route prefix of an application on Ray Serve."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"


class Inference(NamedTuple):
    """Model and times of an inference, for metrics and traces; times are seconds of `perf_counter`."""

    manifest: Manifest
    timing: Timing
    started: float
    """When the headers of the request had arrived."""
    computed: float
    """When the model's outputs were ready."""
    finished: float
    """When the response was ready."""


class Call:
    """One request, with everything that its route needs.

    Args:
        scope: ASGI scope of the request.
        headers: the headers of the request.
        body: its body, and an ASGI `receive`.
        path_params: values of the variables in the path, by name.
        engine: the models.
        reloader: loads and unloads models.
        parser: parses large bodies.
        settings: limits.
        metrics: metrics of the process.
        started: when the headers had arrived, in seconds of `perf_counter`.

    """

    def __init__(
        self,
        scope: Scope,
        headers: RequestHeaders,
        body: Body,
        *,
        path_params: Mapping[str, str],
        engine: Engine,
        reloader: Reloader,
        parser: Parser,
        settings: Settings,
        metrics: Metrics,
        started: float,
    ) -> None:
        self.scope = scope
        self.headers = headers
        self.body = body
        self.path_params = path_params
        self.engine = engine
        self.reloader = reloader
        self.parser = parser
        self.settings = settings
        self.metrics = metrics
        self.started = started
        self.server_timing: dict[str, float] = {}
        """Seconds by stage, for the header `Server-Timing`."""
        self.inference: Inference | None = None
        self._computed = started
        self._deadline: float | None = None

    @property
    def models(self) -> Models:
        """The models that are served."""
        return self.engine.models

    def is_ready(self, model: ServedModel) -> bool:
        """Whether a model accepts requests and the server is not draining."""
        return model.batcher.is_ready and not self.engine.is_draining

    @property
    def path(self) -> str:
        """Path of the request."""
        return path_of(self.scope)

    def header(self, name: str) -> str | None:
        """Value of a header, by its lower-case name; None if it is missing."""
        return self.headers.get(name)

    @property
    def deadline(self) -> float:
        """Deadline, on the event loop's clock; a ClientLimit if it is the client's.

        Raises: InvalidInput if `X-Request-Timeout-Ms` is invalid.
        """
        if self._deadline is None:
            now = asyncio.get_running_loop().time()
            self._deadline = limited(now + self.settings.deadline_s, now + self._client_seconds())
        return self._deadline

    def _client_seconds(self) -> float:
        """Time until the client's own deadline; infinite if it sets none. Raises: InvalidInput."""
        if (text := self.header(TIMEOUT_HEADER)) is None:
            return math.inf
        text = text.strip()
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
            message = "must be a positive number of milliseconds"
            raise InvalidInput(f"X-Request-Timeout-Ms {message}", [(TIMEOUT_HEADER, message)])
        return int(text) / 1000

    async def run(self, model: ServedModel, work: Coroutine[Any, Any, T]) -> T:
        """Await the inference `work`; cancel it if the client disconnects.

        Raises: ClientDisconnect; errors of `work`.
        """
        try:
            with model.in_flight:
                result = await cancel_on_disconnect(self.body, work)
        except BaseException:
            model.metrics.failed(time.perf_counter() - self.started)
            raise
        self._computed = time.perf_counter()
        return result

    async def answer(
        self,
        model: ServedModel,
        work: Coroutine[Any, Any, tuple[T, Timing]],
        to_json: Callable[[T], dict[str, Any]],
        count: int = 1,
    ) -> Response:
        """Run a model and respond with JSON.

        Args:
            model: the model.
            work: the inference; returns the result and its timing.
            to_json: converts the result to the response's JSON, without the fields `model` and `version`.
            count: number of items in the result; a large result is converted in a thread.

        Raises: ClientDisconnect; errors of `work`.

        """
        result, timing = await self.run(model, work)
        response = await offload(count, lambda: json_response({**model_fields(model), **to_json(result)}))
        return self.finish(model, timing, response)

    def finish(self, model: ServedModel, timing: Timing, response: Response) -> Response:
        """Record the stages of the request in metrics, trace and `Server-Timing`; return the response.

        The metrics leave out how long the client took to send the body: it would tell about the client.
        """
        inference = Inference(model.manifest, timing, self.started, self._computed, time.perf_counter())
        model.metrics.answered(
            model.manifest.task,
            decode_s=timing.decode,
            queue_s=timing.queue,
            compute_s=timing.compute,
            encode_s=inference.finished - inference.computed,
            total_s=inference.finished - (self.body.read_at or inference.started),
        )
        self.server_timing.update(queue=timing.queue, compute=timing.compute)
        self.inference = inference
        return response


def model_fields(model: ServedModel) -> dict[str, Any]:
    """Fields of a response that name the model."""
    return {"model": model.manifest.name, "version": model.manifest.version}
