"""An application with the routes of a test beside its own."""

from collections.abc import Mapping
from types import MappingProxyType

from fastapi import APIRouter, Depends, FastAPI
from starlette.types import Message, Receive

from service.app import create_app
from service.metrics import Metrics
from service.settings import Settings
from service.wire.dependencies import require_key
from tests.support.contexts import receive_of, runtime_with, scope_of


def application(*routers: APIRouter, settings: Settings | None = None, metrics: Metrics | None = None) -> FastAPI:
    """Return an application without models; its further routes need a key if there are keys."""
    app = create_app(runtime=runtime_with(settings=settings, metrics=metrics))
    for router in routers:
        app.include_router(router, dependencies=[Depends(require_key)])
    return app


async def send_to(
    app: FastAPI, path: str, receive: Receive | None = None, headers: Mapping[str, str] = MappingProxyType({})
) -> list[Message]:
    """Post to a path and return the messages of the response."""
    sent = list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    await app({**scope_of(headers), "http_version": "1.0", "path": path}, receive or receive_of(b"x"), send)
    return sent


BROKEN = APIRouter()


@BROKEN.get("/broken")
async def fail() -> None:
    """Raise an error, as a faulty route does."""
    raise RuntimeError("secret cause")
