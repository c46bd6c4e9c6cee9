"""Errors -> answers: the one map from `service.errors` to HTTP status, and the body of the native routes."""

import http
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from service import errors
from service.log import request_id
from service.schemas import Problem, self_contained

STATUS: Mapping[type[errors.ServiceError], int] = {
    errors.MalformedInput: 400,
    errors.InvalidInput: 422,
    errors.UnsupportedMedia: 415,
    errors.PayloadTooLarge: 413,
    errors.ModelNotFound: 404,
    errors.Overloaded: 429,
    errors.NotReady: 503,
    errors.ShuttingDown: 503,
    errors.DeadlineExceeded: 504,
    errors.InferenceFailed: 500,
    errors.NonFiniteOutput: 500,
}

MEDIA_TYPE = "application/problem+json"
CLIENT_LEFT = 499

DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {
        "content": {MEDIA_TYPE: {"schema": self_contained(Problem)}},
        "description": http.HTTPStatus(status).phrase,
    }
    for status in sorted(set(STATUS.values()))
}
"""For the OpenAPI document of a route."""


def install(app: FastAPI) -> None:
    """Register the handlers."""
    app.add_exception_handler(errors.ServiceError, service_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _client_left)


def problem(
    request: Request, status: int, code: str, title: str, detail: str, fields: list[tuple[str, str]] | None = None
) -> JSONResponse:
    """Build a problem; the detail is ours, never the client's input."""
    body: dict[str, object] = {
        "type": f"urn:longdoc:error:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": request.url.path,
        "code": code,
        "request_id": request_id.get(),
    }
    if fields:
        body["errors"] = [{"loc": place, "msg": message} for place, message in fields]
    return JSONResponse(body, status, media_type=MEDIA_TYPE)


def service_error(request: Request, error: Exception) -> JSONResponse:
    """Any `ServiceError`, with its status and when to come again."""
    assert isinstance(error, errors.ServiceError)
    fields = error.errors if isinstance(error, errors.InvalidInput) else None
    response = problem(request, STATUS[type(error)], error.code, error.title, str(error), fields)
    if isinstance(error, errors.RetryableError):
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def _http_error(request: Request, error: Exception) -> JSONResponse:
    """Errors of the router: no such path, method not allowed."""
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    response = problem(request, error.status_code, phrase.lower().replace(" ", "_"), phrase, error.detail)
    response.headers.update(error.headers or {})
    return response


def _client_left(request: Request, error: Exception) -> Response:
    """Nobody reads this; the metrics count it."""
    del request, error
    return Response(status_code=CLIENT_LEFT)


def server_fault(request: Request) -> JSONResponse:
    """A fault of ours, which `service.routes.middleware` answers and logs."""
    return problem(request, 500, "internal", "Internal error", "the server failed; the request id finds it in the log")
