"""A request as helpers of path operations get it, without an application."""

import asyncio
from collections.abc import Mapping, Sequence

from starlette.types import Message, Receive, Scope

from artifact.loading import LoadedModel
from service.engine.engine import Engine
from service.engine.reload import Reloader
from service.metrics import Metrics
from service.runtime import Runtime
from service.settings import Settings
from service.wire.body import Body, HeldBodies
from service.wire.context import RequestContext
from service.wire.headers import first_headers
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


def scope_of(headers: Mapping[str, str] | None = None, query: str = "") -> Scope:
    """Return the scope of a `POST /asked`."""
    return {
        "type": "http",
        "method": "POST",
        "path": "/asked",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()],
    }


def runtime_with(*models: LoadedModel, settings: Settings | None = None, metrics: Metrics | None = None) -> Runtime:
    """Return what the requests of a server with these models share; close it if the models compute."""
    chosen, counted = settings or Settings(), metrics or Metrics()
    engine = Engine(models, chosen, counted)
    return Runtime(chosen, counted, engine, Reloader(engine, chosen, counted))


def context(
    body: bytes = b"",
    *,
    query: str = "",
    headers: Mapping[str, str] | None = None,
    receive: Receive | None = None,
    models: Sequence[LoadedModel] = (),
    settings: Settings | None = None,
    started: float = 0.0,
) -> RequestContext:
    """Return a `POST /asked` without a deadline; close its runtime if its models compute."""
    runtime = runtime_with(*models, settings=settings)
    scope = scope_of(headers, query)
    first = first_headers(scope)
    bodies = HeldBodies(runtime.settings.max_body_bytes, runtime.settings.max_held_bytes)
    counted = Body(bodies, scope, first, receive or receive_of(body))
    if first.get("content-type") == NDJSON:
        counted.unlimit()
    return RequestContext(runtime, "/asked", query.encode(), first, counted, started)
