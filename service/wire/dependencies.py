"""Dependencies of the path operations."""

import asyncio
import functools
import re
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Path
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from pydantic import BaseModel
from starlette.requests import Request

from artifact.errors import InvalidInput
from service.batching.admission import limited
from service.engine.served import AnyModel
from service.runtime import Runtime
from service.wire.context import RequestContext, context_of
from service.wire.headers import repeated_headers
from service.wire.media import JSON
from service.wire.openapi import BEARER
from service.wire.parsing import parse_json, refused
from service.wire.requests import check_media_type, read_json

M = TypeVar("M", bound=BaseModel)

TIMEOUT_HEADER = "x-request-timeout-ms"


async def get_runtime(request: Request) -> Runtime:
    """The models and limits of the server."""
    return context_of(request.scope).runtime


async def get_context(request: Request) -> RequestContext:
    """The request, with its deadline. Raises: InvalidInput if that is invalid, or if a header is repeated."""
    context = context_of(request.scope)
    if len(context.headers) < len(request.scope["headers"]) and (twice := repeated_headers(request.scope)):
        raise refused([(name, "given more than once, with different values") for name in twice])
    now = asyncio.get_running_loop().time()
    context.deadline = now + context.runtime.settings.deadline_s
    if (text := context.headers.get(TIMEOUT_HEADER)) is not None:
        text = text.strip()
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
            message = "must be a positive number of milliseconds"
            raise InvalidInput(f"X-Request-Timeout-Ms {message}", [(TIMEOUT_HEADER, message)])
        context.deadline = limited(context.deadline, now + int(text) / 1000)
    return context


CurrentRuntime = Annotated[Runtime, Depends(get_runtime)]
Context = Annotated[RequestContext, Depends(get_context)]


class RequireKey(SecurityBase):
    """Checks the API key, before the body is read. The OpenAPI document shows the check if there are keys."""

    scheme_name = BEARER
    model = HTTPBearer()

    async def __call__(self, request: Request) -> None:
        """Check the key of a request. Raises: Unauthorized."""
        request.app.state.keys.check(context_of(request.scope).headers)


require_key = RequireKey()
"""A dependency, which an application can override."""


class JsonBody(Generic[M]):
    """A dependency: the JSON body of a request, validated.

    It takes the place of a typed parameter, which FastAPI would read before any dependency: without a key, or over a
    limit, no body is read. Large bodies are parsed in another process.

    Args:
        schema: type of the body.
        ignore_query: whether to ignore the query string, as other servers do; else it must be empty.
        strict: whether to reject 1.0 as an integer and "1" as a number; None: as each field is declared.

    """

    def __init__(self, schema: type[M], *, ignore_query: bool = False, strict: bool | None = True) -> None:
        self._ignores_query = ignore_query
        self._parse = functools.partial(parse_json, schema, strict=strict)

    async def __call__(self, context: Context) -> M:
        """Read and validate the body. Raises: UnsupportedMedia, UnsupportedEncoding; what `read_json` raises."""
        check_media_type(context, JSON)
        body: M = await read_json(context, self._parse, ignore_query=self._ignores_query)
        return body


ModelPath = Annotated[str, Path(examples=["imdb-s3"])]
"""Name of a model in a path."""


async def get_named_model(request: Request, runtime: CurrentRuntime, name: ModelPath) -> AnyModel:
    """The model that the path names: the version in the path, or the highest one. Raises: ModelNotFound."""
    return runtime.models.named(name, request.path_params.get("version"))


NamedModel = Annotated[AnyModel, Depends(get_named_model)]
