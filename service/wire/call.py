"""One request as a route sees it: what was sent, what may be asked, and how it is answered."""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from artifact.errors import InvalidInput
from artifact.manifest import Manifest
from service.aside import aside
from service.engine.engine import Engine
from service.engine.selection import Models
from service.engine.served import ServedModel
from service.metrics import Metrics
from service.parser import Parser
from service.settings import Settings
from service.tasks.timing import Timing
from service.wire.body import Body
from service.wire.departure import while_connected
from service.wire.responses import json_response

T = TypeVar("T")

TIMEOUT = "x-request-timeout-ms"


class Work(NamedTuple):
    """What was done for a request and when, on the clock of `perf_counter`; for its trace."""

    manifest: Manifest
    timing: Timing
    started: float
    computed: float
    finished: float


class Call:
    """One request with all that its route needs.

    Args:
        request: as it came.
        body: of it.
        engine: the models.
        parser: of large bodies.
        settings: limits.
        metrics: of the process.
        started: when its head had come, on the clock of `perf_counter`.

    """

    def __init__(
        self,
        request: Request,
        body: Body,
        *,
        engine: Engine,
        parser: Parser,
        settings: Settings,
        metrics: Metrics,
        started: float,
    ) -> None:
        self.request = request
        self.body = body
        self.engine = engine
        self.parser = parser
        self.settings = settings
        self.metrics = metrics
        self.started = started
        self.server_timing: dict[str, float] = {}
        """Seconds by stage, for the header `Server-Timing`."""
        self.work: Work | None = None
        self._computed = started

    @property
    def models(self) -> Models:
        """Those that are served."""
        return self.engine.models

    @property
    def path(self) -> str:
        """As the client wrote it."""
        path: str = self.request.scope["path"]
        return path

    @property
    def path_params(self) -> Mapping[str, str]:
        """Variable parts of the path, by name."""
        return self.request.path_params

    def header(self, name: str) -> str | None:
        """A header, by its name in lower case."""
        return self.request.headers.get(name)

    @cached_property
    def deadline(self) -> float:
        """On the clock of the event loop. Raises: InvalidInput for a bad header."""
        seconds = self.settings.deadline_s
        if (text := self.header(TIMEOUT)) is not None:
            text = text.strip()
            if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
                message = "must be a positive number of milliseconds"
                raise InvalidInput(f"X-Request-Timeout-Ms {message}", [(TIMEOUT, message)])
            seconds = min(seconds, int(text) / 1000)
        return asyncio.get_running_loop().time() + seconds

    async def run(self, model: ServedModel, work: Coroutine[Any, Any, T]) -> T:
        """Await work of a model, which ends when the client leaves. Raises: ClientDisconnect, and what it raises."""
        with model.metrics.in_flight.track_inprogress():
            result = await while_connected(self.request.receive, work)
        self._computed = time.perf_counter()
        return result

    async def answer(
        self,
        model: ServedModel,
        work: Coroutine[Any, Any, tuple[T, Timing]],
        show: Callable[[T], dict[str, Any]],
        count: int = 1,
    ) -> Response:
        """Answer with JSON that says which model gave it; `show` makes the rest of what `work` gave for `count` items.

        Raises: ClientDisconnect, and what the work raises.
        """
        outcome, timing = await self.run(model, work)
        response = await aside(count, lambda: json_response({**named(model), **show(outcome)}))
        return self.finish(model, timing, response)

    def finish(self, model: ServedModel, timing: Timing, response: Response) -> Response:
        """Answer, with the stages of the request in the metrics, the trace and the header `Server-Timing`."""
        work = Work(model.manifest, timing, self.started, self._computed, time.perf_counter())
        model.metrics.answered(
            model.manifest.task,
            decode_s=timing.decode,
            queue_s=timing.queue,
            compute_s=timing.compute,
            encode_s=work.finished - work.computed,
            total_s=work.finished - work.started,
        )
        self.server_timing.update(queue=timing.queue, compute=timing.compute)
        self.work = work
        return response


def named(model: ServedModel) -> dict[str, Any]:
    """Which model gave an answer."""
    return {"model": model.manifest.name, "version": model.manifest.version}
