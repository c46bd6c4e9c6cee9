"""One request as a route sees it: what was sent, what may be asked, and how it is answered."""

import asyncio
import re
import time
from collections.abc import Coroutine, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from artifact.errors import InvalidInput
from artifact.manifest import Manifest
from service.engine.engine import Engine
from service.engine.selection import Models
from service.engine.served import ServedModel
from service.errors import DeadlineExceeded, UnsupportedMedia
from service.observe.metrics import Metrics
from service.settings import Settings
from service.tasks.timing import Timing
from service.wire.departure import while_connected
from service.wire.media import BINARY, JSON
from service.wire.requests import check_size, parse_json, parse_query
from service.wire.responses import json_response

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

TIMEOUT = "x-request-timeout-ms"
CHARSET = re.compile(r"charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)


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
        engine: the models.
        settings: limits.
        metrics: of the process.
        started: when its head had come, on the clock of `perf_counter`.

    """

    def __init__(
        self, request: Request, *, engine: Engine, settings: Settings, metrics: Metrics, started: float
    ) -> None:
        self.request = request
        self.engine = engine
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

    def media_type(self, *allowed: str) -> str:
        """Media type of the body, in lower case. Raises: UnsupportedMedia naming what is allowed."""
        self.refuse_encoding()
        given, _, parameters = (self.header("content-type") or "").partition(";")
        given = given.strip().lower()
        if given not in allowed:
            raise UnsupportedMedia(f"send the body as {', '.join(allowed)}")
        charset = CHARSET.search(parameters)
        if given != BINARY and charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
            raise UnsupportedMedia("send text as UTF-8, or bytes of any encoding as application/octet-stream")
        return given

    def refuse_encoding(self) -> None:
        """Take no compressed body. Raises: UnsupportedMedia."""
        if (self.header("content-encoding") or "identity").lower() != "identity":
            raise UnsupportedMedia("send the body without Content-Encoding")

    async def body(self) -> bytes:
        """The whole body. Raises: DeadlineExceeded if the client is slower than its deadline."""
        try:
            async with asyncio.timeout_at(self.deadline):
                return await self.request.body()
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed before the body had come") from None

    async def json(self, schema: type[M], *, strict: bool | None = True) -> M:
        """The body as JSON, checked. Raises: UnsupportedMedia, DeadlineExceeded, and what `parse_json` raises."""
        _ = self.deadline  # a bad header is told of before a bad body
        self.media_type(JSON)
        self.refuse_query()
        return parse_json(schema, await self.body(), strict=strict)

    def query(self, schema: type[M]) -> M:
        """The query string, checked. Raises: InvalidInput naming the fields."""
        return parse_query(schema, self.request.query_params) if self.request.scope["query_string"] else schema()

    def refuse_query(self) -> None:
        """Options of a JSON body stand in it; in the query they would be ignored. Raises: InvalidInput."""
        if self.request.scope["query_string"]:
            raise InvalidInput("options of a JSON body go into the body", [("query", "not allowed with a JSON body")])

    def document(self, place: str, text: str | bytes) -> bytes:
        """A document of the request, within its limit. Raises: PayloadTooLarge naming its place."""
        document = text.encode() if isinstance(text, str) else text
        check_size(place, document, self.settings.max_document_bytes)
        return document

    async def run(self, model: ServedModel, work: Coroutine[Any, Any, T]) -> T:
        """Await work of a model, which ends when the client leaves. Raises: ClientDisconnect, and what it raises."""
        with model.metrics.in_flight.track_inprogress():
            result = await while_connected(self.request.receive, work)
        self._computed = time.perf_counter()
        return result

    def respond(self, model: ServedModel, timing: Timing, content: dict[str, Any]) -> Response:
        """Answer with JSON that says which model gave it."""
        named = {"model": model.manifest.name, "version": model.manifest.version, **content}
        return self.finish(model, timing, json_response(named))

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
