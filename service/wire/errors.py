"""Errors -> answers: the one map from `service.errors` to HTTP status; each protocol gives the body its own shape."""

import http
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from artifact.errors import InvalidInput, LongdocError, NonFiniteOutput
from service import errors
from service.log import request_id
from service.wire.responses import json_response
from service.wire.schemas import Problem, self_contained

STATUS: Mapping[type[LongdocError], int] = {
    errors.MalformedInput: 400,
    InvalidInput: 422,
    errors.UnsupportedMedia: 415,
    errors.PayloadTooLarge: 413,
    errors.Unauthorized: 401,
    errors.ModelNotFound: 404,
    errors.Overloaded: 429,
    errors.NotReady: 503,
    errors.ShuttingDown: 503,
    errors.DeadlineExceeded: 504,
    errors.InferenceFailed: 500,
    NonFiniteOutput: 500,
}

MEDIA_TYPE = "application/problem+json"

DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {
        "content": {MEDIA_TYPE: {"schema": self_contained(Problem)}},
        "description": http.HTTPStatus(status).phrase,
    }
    for status in sorted(set(STATUS.values()))
}
"""For the OpenAPI document of a route."""


@dataclass(frozen=True)
class Failure:
    """What went wrong, before a protocol gives it a body; the texts are ours, never the client's input."""

    status: int
    code: str
    title: str
    detail: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    """(place, message) of each value that is not allowed."""
    headers: dict[str, str] = field(default_factory=dict)


Dialect = Callable[[Failure], Response]
"""A protocol's body for a failure."""

FAULT = Failure(500, "internal", "Internal error", "the server failed; the request id finds it in the log")


def install(app: FastAPI) -> None:
    """Register the handlers of what the framework's own routes raise."""
    for kind in (LongdocError, HTTPException, Exception):
        app.add_exception_handler(kind, _handle)


def _handle(request: Request, error: Exception) -> Response:
    failed = failure(error)
    if failed.status == 405:  # the router names the methods of the last route it tried; GET and HEAD are two
        routes: list[Route] = request.app.state.routes
        matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
        failed.headers["Allow"] = ", ".join(sorted(method for route in matching for method in route.methods or ()))
    return answer(request, failed)


def failure(error: Exception) -> Failure:
    """Describe an error; one that is not known is a fault of ours."""
    if isinstance(error, LongdocError):
        fields = error.errors if isinstance(error, InvalidInput) else []
        headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, errors.RetryableError) else {}
        if isinstance(error, errors.Unauthorized):
            headers["WWW-Authenticate"] = "Bearer"
        return Failure(STATUS[type(error)], error.code, error.title, str(error), fields, headers)
    if isinstance(error, HTTPException):  # of the router: no such path, method not allowed
        phrase = http.HTTPStatus(error.status_code).phrase
        code = phrase.lower().replace(" ", "_")
        return Failure(error.status_code, code, phrase, error.detail, headers=dict(error.headers or {}))
    return FAULT


def answer(request: Request, failed: Failure) -> Response:
    """A failure in the shape of the protocol that the path belongs to."""
    dialects: Mapping[str, Dialect] = request.app.state.dialects
    path: str = request.scope["path"]
    below = (d for prefix, d in dialects.items() if prefix.endswith("/") and path.startswith(prefix))
    dialect = dialects.get(path) or next(below, None)
    response = _problem(path, failed) if dialect is None else dialect(failed)
    response.headers.update(failed.headers)
    return response


def problem(path: str, failed: Failure) -> dict[str, Any]:
    """Body of RFC 9457, the native routes' shape."""
    body: dict[str, Any] = {
        "type": f"urn:longdoc:error:{failed.code}",
        "title": failed.title,
        "status": failed.status,
        "detail": failed.detail,
        "instance": path,
        "code": failed.code,
        "request_id": request_id.get(),
    }
    if failed.fields:
        body["errors"] = [{"loc": place, "msg": message} for place, message in failed.fields]
    return body


def _problem(path: str, failed: Failure) -> Response:
    return json_response(problem(path, failed), failed.status, MEDIA_TYPE)
