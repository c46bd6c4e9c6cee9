"""The methods of the service `inference.GRPCInferenceService`.

Reference: open_inference_grpc.proto of the Open Inference Protocol.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, NoReturn, TypeAlias

import orjson
from grpc import StatusCode
from grpc.aio import ServicerContext
from open_inference.grpc.protocol import (
    ModelInferRequest,
    ModelInferResponse,
    ModelMetadataRequest,
    ModelMetadataResponse,
    ModelReadyRequest,
    ModelReadyResponse,
    ServerLiveRequest,
    ServerLiveResponse,
    ServerMetadataRequest,
    ServerMetadataResponse,
    ServerReadyRequest,
    ServerReadyResponse,
)
from open_inference.grpc.service import GRPCInferenceServiceServicer
from starlette.types import ASGIApp
from typing_extensions import override

from artifact.errors import InvalidInput
from service.compat.oip.tensors import HEAD_LENGTH
from service.grpc.application import Answer, ask
from service.grpc.messages import infer_body, infer_response, metadata_response
from service.wire.dependencies import TIMEOUT_HEADER

CODES: Mapping[int, StatusCode] = {
    401: StatusCode.UNAUTHENTICATED,
    404: StatusCode.NOT_FOUND,
    429: StatusCode.RESOURCE_EXHAUSTED,
    500: StatusCode.INTERNAL,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}
"""Code by HTTP status; INVALID_ARGUMENT for any other error."""
FORWARDED = ("authorization", "traceparent", "tracestate", "x-api-key", "x-request-id")
"""Metadata of a call that the application reads as headers."""
RETURNED = ("retry-after", "server-timing", "x-request-id")
"""Headers of the response that a call returns as trailing metadata."""
EXTENSIONS = ("classification", "parameters")
"""Triton's extensions that calls support."""
LONGEST_MS = 999_999_999
"""Maximum of the header for the deadline, in milliseconds."""

Context: TypeAlias = "ServicerContext[Any, Any]"


class InferenceServicer(GRPCInferenceServiceServicer):
    """Answers calls with the responses of the application.

    Args:
        app: the application.

    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    @override
    async def ServerLive(self, request: ServerLiveRequest, context: Context) -> ServerLiveResponse:
        """Whether the process runs."""
        await self._request(context, "GET", "/v2/health/live")
        return ServerLiveResponse(live=True)

    @override
    async def ServerReady(self, request: ServerReadyRequest, context: Context) -> ServerReadyResponse:
        """Whether all models are ready."""
        answer = await self._request(context, "GET", "/v2/health/ready", accepted=[503])
        return ServerReadyResponse(ready=answer.status == 200)

    @override
    async def ModelReady(self, request: ModelReadyRequest, context: Context) -> ModelReadyResponse:
        """Whether a model is ready."""
        path = await _model_path(context, request.name, request.version)
        answer = await self._request(context, "GET", f"{path}/ready", accepted=[503])
        return ModelReadyResponse(ready=answer.status == 200)

    @override
    async def ServerMetadata(self, request: ServerMetadataRequest, context: Context) -> ServerMetadataResponse:
        """Name, version and extensions of the server."""
        content = orjson.loads((await self._request(context, "GET", "/v2")).body)
        return ServerMetadataResponse(name=content["name"], version=content["version"], extensions=EXTENSIONS)

    @override
    async def ModelMetadata(self, request: ModelMetadataRequest, context: Context) -> ModelMetadataResponse:
        """Inputs and outputs of a model."""
        answer = await self._request(context, "GET", await _model_path(context, request.name, request.version))
        return metadata_response(orjson.loads(answer.body))

    @override
    async def ModelInfer(self, request: ModelInferRequest, context: Context) -> ModelInferResponse:
        """Run a model."""
        path = await _model_path(context, request.model_name, request.model_version)
        try:
            body, head_length = infer_body(request)
        except InvalidInput as error:
            await context.abort(StatusCode.INVALID_ARGUMENT, str(error))
        request.Clear()  # its arrays are in the body
        answer = await self._request(context, "POST", f"{path}/infer", {HEAD_LENGTH.lower(): str(head_length)}, body)
        return infer_response(answer.body, int(answer.headers[HEAD_LENGTH.lower()]))

    async def _request(
        self,
        context: Context,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        accepted: Collection[int] = (),
    ) -> Answer:
        """The response of the application; an error of a status that is not `accepted` ends the call."""
        answer = await ask(self._app, method, path, {**_headers(context), **(headers or {})}, body)
        context.set_trailing_metadata([(name, answer.headers[name]) for name in RETURNED if name in answer.headers])
        if answer.status >= 400 and answer.status not in accepted:
            await _fail(context, answer)
        return answer


async def _fail(context: Context, answer: Answer) -> NoReturn:
    """End a call with the error of a response."""
    code = CODES.get(answer.status, StatusCode.INVALID_ARGUMENT)
    await context.abort(code, orjson.loads(answer.body)["error"], context.trailing_metadata())


def _headers(context: Context) -> dict[str, str]:
    """Headers of the request, from the metadata and the deadline of the call."""
    given = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
    headers = {name: given[name] for name in FORWARDED if name in given}
    if (left_s := context.time_remaining()) is not None:
        headers[TIMEOUT_HEADER] = str(min(max(math.ceil(1000 * left_s), 1), LONGEST_MS))
    return headers


async def _model_path(context: Context, name: str, version: str) -> str:
    """Path of a model. A name that no model can have, and that would change the route, ends the call."""
    # A route also matches a path that ends with a newline, as `$` of its pattern does.
    if not name or name == "stats" or not {"/", "\n"}.isdisjoint(name + version):
        await context.abort(StatusCode.NOT_FOUND, "no model of that name and version is served")
    return f"/v2/models/{name}" + (f"/versions/{version}" if version else "")
