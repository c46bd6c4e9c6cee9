"""Reading requests: media type, deadline, and the end of work when the client leaves. Used by the routes."""

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from artifact.errors import InvalidInput
from service.errors import DeadlineExceeded, MalformedInput, PayloadTooLarge, UnsupportedMedia
from service.settings import Settings
from service.wire.schemas import self_contained

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

JSON = "application/json"
TIMEOUT = "x-request-timeout-ms"
HEADERS: list[dict[str, Any]] = [
    {
        "name": "X-Request-Timeout-Ms",
        "in": "header",
        "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
        "description": "Deadline of the request in milliseconds; never later than that of the server.",
    },
    {
        "name": "X-Request-Id",
        "in": "header",
        "schema": {"type": "string"},
        "description": "Comes back with the answer and stands in the log, if it is 1 to 128 visible ASCII characters.",
    },
]
"""For the OpenAPI document of a route."""
LONGEST_PLACE = 32
WATCH_AFTER_S = 0.1
MOST_LISTS = 200_000
"""Lists and objects in a body: the parser needs seconds for a million empty ones, and nothing else runs meanwhile."""
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
MANY_ERRORS = 1000
"""Beyond it they are counted, not listed: pydantic needs seconds to describe the million that a body can hold."""


def media_type(request: Request, allowed: tuple[str, ...]) -> str:
    """Media type of the body, in lower case. Raises: UnsupportedMedia naming what is allowed."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMedia("send the body without Content-Encoding")
    given, _, parameters = request.headers.get("content-type", "").partition(";")
    given = given.strip().lower()
    if given not in allowed:
        raise UnsupportedMedia(f"send the body as {', '.join(allowed)}")
    charset = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", parameters, re.IGNORECASE)
    if given != "application/octet-stream" and charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMedia("send text as UTF-8, or bytes of any encoding as application/octet-stream")
    return given


def named(*names: str) -> dict[str, list[dict[str, Any]]]:
    """OpenAPI of parameters in the path, which the route reads itself: any string, so never a 422."""
    return {
        "parameters": [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    }


def json_body(schema: type[BaseModel]) -> dict[str, object]:
    """OpenAPI of a JSON body, and of the headers, that the route reads itself."""
    return {
        "parameters": HEADERS,
        "requestBody": {"required": True, "content": {JSON: {"schema": self_contained(schema)}}},
    }


def deadline(request: Request, longest_s: float) -> float:
    """Deadline of a request on the clock of the event loop. Raises: InvalidInput for a bad header."""
    text = request.headers.get(TIMEOUT)
    seconds = longest_s
    if text is not None:
        text = text.strip()
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
            message = "must be a positive number of milliseconds"
            raise InvalidInput(f"X-Request-Timeout-Ms {message}", [(TIMEOUT, message)])
        seconds = min(longest_s, int(text) / 1000)
    return asyncio.get_running_loop().time() + seconds


async def read_body(request: Request, until: float) -> bytes:
    """The whole body. Raises: DeadlineExceeded if the client is slower than its deadline."""
    try:
        async with asyncio.timeout_at(until):
            return await request.body()
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed before the body had come") from None


def parse_json(schema: type[M], body: bytes, *, strict: bool | None = True) -> M:
    """Check a JSON body. Raises: MalformedInput if it is not JSON, InvalidInput naming the fields, PayloadTooLarge.

    Args:
        schema: what the body has to be.
        body: as it came.
        strict: whether 1.0 is no integer and "1" no number; None leaves it to each field.

    """
    bound_lists(body)
    try:
        return schema.model_validate_json(body, strict=strict)
    except ValidationError as error:
        raise _invalid(error) from None


def bound_lists(head: bytes) -> None:
    """Refuse JSON that would keep the interpreter for long, whatever its strings hold. Raises: PayloadTooLarge."""
    if _brackets(head) > MOST_LISTS and (count := _brackets(STRING.sub(b"", head))) > MOST_LISTS:
        raise PayloadTooLarge(f"the body holds {count} lists and objects; at most {MOST_LISTS}")


def _brackets(head: bytes) -> int:
    return head.count(b"[") + head.count(b"{")


async def read_json(request: Request, schema: type[M], *, strict: bool | None = True) -> tuple[M, float]:
    """A checked JSON body, and the deadline of its request on the clock of the event loop.

    Raises: UnsupportedMedia, DeadlineExceeded, and what `parse_json` raises.
    """
    settings: Settings = request.app.state.settings
    until = deadline(request, settings.deadline_s)
    media_type(request, (JSON,))
    refuse_query(request)
    return parse_json(schema, await read_body(request, until), strict=strict), until


def refuse_query(request: Request) -> None:
    """Options of a JSON body stand in it; one in the query would otherwise be ignored. Raises: InvalidInput."""
    if request.scope["query_string"]:
        raise InvalidInput("options of a JSON body go into the body", [("query", "not allowed with a JSON body")])


def parse_query(schema: type[M], request: Request) -> M:
    """Check a query string. Raises: InvalidInput naming the fields."""
    if not request.scope["query_string"]:
        return schema()
    names = [name for name, _ in request.query_params.multi_items()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        message = "given more than once"
        raise InvalidInput(f"a parameter is {message}", [("query", message) for _ in twice])
    try:
        return schema.model_validate_strings(dict(request.query_params))
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> Exception:
    """Turn pydantic's errors into ours, without the input."""
    if (count := error.error_count()) > MANY_ERRORS:
        message = f"{count} values are not allowed"
        return InvalidInput(message, [("body", message)])
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return MalformedInput("the body is not valid JSON in UTF-8")
    fields = [(_place(e["loc"]), e["msg"]) for e in found[:20]]
    return InvalidInput("; ".join(f"{place}: {message}" for place, message in fields[:3]), fields)


def _place(loc: tuple[int | str, ...]) -> str:
    """Where an error stands. The name of an unknown field is the client's: cut, it cannot carry a document back."""
    place = ".".join(map(str, loc)) or "body"
    return place if len(place) <= LONGEST_PLACE else place[:LONGEST_PLACE] + "..."


def check_count(what: str, count: int, limit: int) -> None:
    """Bound the number of documents or pairs. Raises: InvalidInput for none, PayloadTooLarge."""
    if count == 0:
        raise InvalidInput(f"{what}: at least 1 is needed", [(what, "at least 1 is needed")])
    if count > limit:
        raise PayloadTooLarge(f"{what}: {count}; at most {limit} in one request")


def check_size(place: str, document: bytes, settings: Settings) -> None:
    """Bound one document. Raises: PayloadTooLarge."""
    if len(document) > settings.max_document_bytes:
        limit = settings.max_document_bytes
        raise PayloadTooLarge(f"{place}: the document has {len(document)} bytes; at most {limit}")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, cancelling it when the client leaves. Raises: ClientDisconnect.

    To watch a connection takes a task of its own; what is answered within WATCH_AFTER_S goes without.
    """
    with Departure() as departure:
        timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, lambda: departure.watch(_leaves(request)))
        try:
            return await work
        finally:
            timer.cancel()


class Departure:
    """A block that is left with ClientDisconnect when its watcher has raised it; with the block, the watcher ends."""

    def __init__(self) -> None:
        self._working = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._has_left = False

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def watch(self, watching: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a watcher beside the block."""
        self._watcher = asyncio.create_task(watching)
        self._watcher.add_done_callback(self._interrupt)
        return self._watcher

    def _interrupt(self, watcher: asyncio.Task[None]) -> None:
        has_left = not watcher.cancelled() and isinstance(watcher.exception(), ClientDisconnect)
        if has_left and self._working is not None:
            self._has_left = True
            self._working.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """End. Raises: ClientDisconnect in place of the cancellation that was ours."""
        working, self._working = self._working, None
        if self._watcher is not None:
            self._watcher.cancel()
        if self._has_left and isinstance(error, asyncio.CancelledError):
            assert working is not None
            working.uncancel()
            raise ClientDisconnect from None


async def _leaves(request: Request) -> None:
    """Wait until the client has closed the connection; the body has been read. Raises: ClientDisconnect."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
