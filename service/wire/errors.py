"""Errors -> answers: the one map from errors to HTTP status; each protocol gives the body a shape of its own."""

import http
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from artifact.errors import InferenceFailed, InvalidInput, LongdocError, NonFiniteOutput
from service import errors
from service.log import request_id
from service.wire.media import JSON, PROBLEM
from service.wire.responses import json_response
from service.wire.schemas import Problem

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
    InferenceFailed: 500,
    NonFiniteOutput: 500,
}
STATUSES = tuple(sorted(set(STATUS.values())))
"""Of everything that can go wrong with a request."""


@dataclass(frozen=True)
class Failure:
    """What went wrong, before a protocol gives it a body; the texts are ours, never the client's input."""

    status: int
    path: str
    """Of the request."""
    code: str
    title: str
    detail: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    """(place, message) of each value that is not allowed."""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Dialect:
    """How a protocol writes errors."""

    write: Callable[[Failure], Response]
    schema: Any
    """Of the body."""
    media_type: str = JSON
    without_body: frozenset[int] = frozenset()
    """Statuses whose answers have no body."""
    prefixes: tuple[str, ...] = ()
    """Of paths whose errors are written so where there is no route."""

    def answer(self, failed: Failure) -> Response:
        """The answer to a request that failed."""
        response = self.write(failed)
        response.headers.update(failed.headers)
        return response


def failure(error: Exception, path: str) -> Failure:
    """Describe an error of a request to a path; one that is not known is a fault of ours."""
    if isinstance(error, LongdocError):
        fields = error.errors if isinstance(error, InvalidInput) else []
        headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, errors.RetryableError) else {}
        if isinstance(error, errors.Unauthorized):
            headers["WWW-Authenticate"] = "Bearer"
        return Failure(STATUS[type(error)], path, error.code, error.title, str(error), fields, headers)
    if isinstance(error, HTTPException):  # of the router: no such path, method not allowed
        phrase = http.HTTPStatus(error.status_code).phrase
        code = phrase.lower().replace(" ", "_")
        return Failure(error.status_code, path, code, phrase, error.detail, headers=dict(error.headers or {}))
    detail = "the server failed; the request id finds it in the log"
    return Failure(500, path, "internal", "Internal error", detail)


def problem(failed: Failure) -> dict[str, Any]:
    """Body of RFC 9457, the native routes' shape."""
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
"""Of our own routes."""
