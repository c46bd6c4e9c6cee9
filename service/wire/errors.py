"""Error responses: maps each error to an HTTP status; each protocol has its own format of the body."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http.client import responses
from typing import Any

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.utils import is_body_allowed_for_status_code
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from artifact.errors import InferenceFailed, InvalidInput, LongdocError, NonFiniteOutput
from service import errors
from service.log import request_id
from service.wire.context import path_of
from service.wire.decompression import ACCEPTED
from service.wire.media import JSON, PROBLEM
from service.wire.openapi import schema_of
from service.wire.parsing import NOT_JSON, place_of, refused
from service.wire.responses import json_response
from service.wire.schemas import Problem

STATUS: Mapping[type[LongdocError], int] = {
    errors.MalformedInput: 400,
    InvalidInput: 422,
    errors.UnsupportedMedia: 415,
    errors.UnsupportedEncoding: 415,
    errors.PayloadTooLarge: 413,
    errors.Unauthorized: 401,
    errors.CrossOrigin: 403,
    errors.ModelNotFound: 404,
    errors.ControlRefused: 400,
    errors.Overloaded: 429,
    errors.NotReady: 503,
    errors.ShuttingDown: 503,
    errors.DeadlineExceeded: 504,
    InferenceFailed: 500,
    NonFiniteOutput: 500,
}
STATUSES = tuple(sorted(set(STATUS.values())))
"""All statuses of errors."""
RETRYABLE = (429, 503)
HEADERS: Mapping[str, Any] = {
    "X-Request-Id": {
        "schema": {"type": "string"},
        "description": "The id that the client sent (1 to 128 visible ASCII characters), or a new one.",
    }
}
RETRY_HEADERS: Mapping[str, Any] = {
    "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds after which the request can be sent again."}
}


@dataclass(frozen=True)
class Failure:
    """An error before a protocol formats it. Its texts never contain the client's input."""

    status: int
    path: str
    """Path of the request."""
    code: str
    title: str
    detail: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    """(location, message) of each invalid value."""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Dialect:
    """A protocol's format of errors."""

    write: Callable[[Failure], Response]
    schema: Any
    """Type of the body, for the OpenAPI document."""
    media_type: str = JSON
    without_body: frozenset[int] = frozenset()
    """Statuses that are sent without a body."""
    prefix: str | None = None
    """Paths with this prefix use this format even if no route matches."""

    def answer(self, failed: Failure) -> Response:
        """The response to a failed request."""
        has_body = is_body_allowed_for_status_code(failed.status)
        response = self.write(failed) if has_body else Response(status_code=failed.status)
        response.headers.update(failed.headers)
        return response

    def router(self, tag: str) -> APIRouter:
        """A router whose errors have this format; `tag` is its group in the OpenAPI document."""
        return APIRouter(tags=[tag], route_class=type("ProtocolRoute", (APIRoute,), {"dialect": self}))

    def responses(self, *statuses: int) -> dict[int | str, dict[str, Any]]:
        """Error responses for the OpenAPI document; by default with all statuses."""
        return {status: self._response(status) for status in statuses or STATUSES}

    def _response(self, status: int) -> dict[str, Any]:
        described: dict[str, Any] = {"description": responses[status], "headers": HEADERS}
        if status in RETRYABLE:
            described["headers"] = {**HEADERS, **RETRY_HEADERS}
        if status not in self.without_body:
            described["content"] = {self.media_type: {"schema": schema_of(self.schema, "serialization")}}
        return described


def failure(error: BaseException, path: str) -> Failure:
    """Describe an error of a request to `path`; an unknown exception becomes 500."""
    if isinstance(error, RequestValidationError):
        error = _invalid_parameters(error)
    if isinstance(error, LongdocError):
        fields = error.errors if isinstance(error, InvalidInput) else []
        headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, errors.RetryableError) else {}
        if isinstance(error, errors.Unauthorized):
            headers["WWW-Authenticate"] = "Bearer"
        if isinstance(error, errors.UnsupportedEncoding):
            headers["Accept-Encoding"] = ACCEPTED  # RFC 9110, 15.5.16
        return Failure(STATUS[type(error)], path, error.code, error.title, str(error), fields, headers)
    if isinstance(error, HTTPException):  # no such path, method not allowed; or from a route of the application
        phrase = responses.get(error.status_code, "Error")
        code = phrase.lower().replace(" ", "_")
        detail = _hint(error) if error.detail == phrase else error.detail
        return Failure(error.status_code, path, code, phrase, detail, headers=dict(error.headers or {}))
    detail = "the server failed; its log has the cause under this request id"
    return Failure(500, path, "internal", "Internal error", detail)


def _hint(error: HTTPException) -> str:
    """What to do about an error for which Starlette gives no detail."""
    if error.status_code == 404:
        return "no such path; the OpenAPI document lists all"
    allowed = (error.headers or {}).get("Allow")
    return f"the methods of this path: {allowed}" if allowed else error.detail


def _invalid_parameters(error: RequestValidationError) -> LongdocError:
    """Convert FastAPI's validation errors of typed arguments, without the input."""
    found = error.errors()
    if found[0]["type"] == "json_invalid":
        return errors.MalformedInput(NOT_JSON)
    return refused([(place_of(tuple(e["loc"][1:])), e["msg"]) for e in found])


def problem(failed: Failure) -> dict[str, Any]:
    """Body of an error as RFC 9457 problem details, the format of `/v1/...`."""
    body: dict[str, Any] = {
        "type": f"urn:longdoc:error:{failed.code}",
        "title": failed.title,
        "status": failed.status,
        "detail": failed.detail,
        "instance": failed.path,
        "code": failed.code,
        "request_id": request_id.get(),
    }
    if failed.fields:
        body["errors"] = [{"loc": place, "msg": message} for place, message in failed.fields]
    return body


def _problem(failed: Failure) -> Response:
    return json_response(problem(failed), failed.status, PROBLEM)


NATIVE = Dialect(_problem, Problem, PROBLEM)
"""Format of the service's own routes."""


def error_response(scope: Scope, error: Exception, dialects: Collection[Dialect] = ()) -> Response:
    """The response to a request that failed, in the format of its route.

    Args:
        scope: the request.
        error: why it failed.
        dialects: formats of paths without a route, by their prefix.

    """
    path = path_of(scope)
    dialect: Dialect | None = getattr(scope.get("route"), "dialect", None)
    if dialect is None:
        dialect = next((one for one in dialects if one.prefix and path.startswith(one.prefix)), NATIVE)
    return dialect.answer(failure(error, path))
