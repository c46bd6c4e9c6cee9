"""A request as a route gets it, without an application."""

import asyncio
from collections.abc import Mapping, Sequence

from starlette.types import Message, Receive

from artifact.loading import LoadedModel
from service.engine.engine import Engine
from service.engine.reload import Reloader
from service.metrics import Metrics
from service.parser import Parser
from service.settings import Settings
from service.wire.body import Body, HeldBodies
from service.wire.call import Call
from service.wire.headers import RequestHeaders
from service.wire.media import NDJSON


def receive_of(*parts: bytes, leaves: bool = True) -> Receive:
    """Messages of a client that sends a body in parts, then disconnects or stays connected without sending more."""
    messages: list[Message] = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)} for number, part in enumerate(parts, 1)
    ]

    async def receive() -> Message:
        if messages:
            return messages.pop(0)
        if not leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return receive


def headers_of(values: Mapping[str, str]) -> RequestHeaders:
    """Return the headers of a request."""
    return RequestHeaders([(name.lower().encode(), value.encode("latin-1")) for name, value in values.items()])


def call(
    body: bytes = b"",
    *,
    query: str = "",
    headers: Mapping[str, str] | None = None,
    path_params: Mapping[str, str] | None = None,
    receive: Receive | None = None,
    models: Sequence[LoadedModel] = (),
    settings: Settings | None = None,
    started: float = 0.0,
) -> Call:
    """Return a `POST /asked`; close `Call.engine` if its models compute."""
    chosen, metrics = settings or Settings(), Metrics()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/asked",
        "query_string": query.encode(),
        "headers": [],
    }
    fields = headers_of(headers or {})
    engine = Engine(models, chosen, metrics)
    bodies = HeldBodies(chosen.max_body_bytes, chosen.max_held_bytes)
    has_lines = fields.get("content-type") == NDJSON
    counted = Body(bodies, fields, receive or receive_of(body), is_buffered=not has_lines)
    return Call(
        scope,
        fields,
        counted,
        path_params=path_params or {},
        engine=engine,
        reloader=Reloader(engine, chosen, metrics),
        parser=Parser(chosen, metrics),
        settings=chosen,
        metrics=metrics,
        started=started,
    )
