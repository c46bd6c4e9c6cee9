import json

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Scope

from artifact.errors import InferenceFailed, InvalidInput, LongdocError
from service import errors
from service.log import request_id
from service.wire.errors import NATIVE, STATUS, Dialect, error_response, failure
from service.wire.responses import json_response


def leaf_classes(kind: type[LongdocError]) -> set[type[LongdocError]]:
    below = kind.__subclasses__()
    return set().union(*map(leaf_classes, below)) if below else {kind}


def test_every_error_has_a_status_and_a_title() -> None:
    found = leaf_classes(LongdocError)
    assert found == set(STATUS)
    for error in found:
        assert error.code
        assert error.title


def test_handled_errors_keep_no_frames() -> None:
    def fail() -> None:
        try:
            raise ValueError("first")
        except ValueError:
            raise InferenceFailed("second") from None

    with pytest.raises(InferenceFailed) as caught:
        fail()
    error = caught.value
    first = error.__context__
    assert first is not None
    assert first.__traceback__ is not None
    first.__context__ = error  # a cycle
    errors.clear_tracebacks(error)
    assert [dealt_with.__traceback__ for dealt_with in (error, first)] == [None, None]
    errors.clear_tracebacks(None)


def test_failure_has_detail_and_retry_after() -> None:
    wrong = failure(InvalidInput.at("a", "too long"), "/v1/x")
    assert (wrong.status, wrong.code, wrong.detail, wrong.fields) == (
        422,
        "invalid_input",
        "a: too long",
        [("a", "too long")],
    )
    assert failure(errors.Overloaded("full", 7), "/v1/x").headers == {"Retry-After": "7"}
    assert failure(errors.Unauthorized("no key"), "/v1/x").headers == {"WWW-Authenticate": "Bearer"}
    coded = failure(errors.UnsupportedEncoding("no"), "/v1/x")
    assert (coded.status, coded.headers) == (415, {"Accept-Encoding": "gzip, deflate"})
    assert failure(errors.UnsupportedMedia("no"), "/v1/x").headers == {}


def test_router_error_keeps_its_status_and_headers() -> None:
    found = failure(HTTPException(405, headers={"Allow": "GET"}), "/v1/x")
    assert (found.status, found.code, found.title) == (405, "method_not_allowed", "Method Not Allowed")
    assert found.headers == {"Allow": "GET"}
    assert found.detail == "the methods of this path: GET"


def test_path_that_does_not_exist_has_a_hint() -> None:
    assert failure(HTTPException(404), "/v1/x").detail == "no such path; the OpenAPI document lists all"
    assert failure(HTTPException(404, "no such report"), "/v1/x").detail == "no such report"
    assert failure(HTTPException(405), "/v1/x").detail == "Method Not Allowed"


def test_errors_of_native_routes_are_problems() -> None:
    token = request_id.set("abc")
    response = NATIVE.answer(failure(InvalidInput.at("a", "too long"), "/v1/x"))
    request_id.reset(token)
    assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json")
    assert json.loads(bytes(response.body)) == {
        "type": "urn:longdoc:error:invalid_input",
        "title": "A value is not allowed",
        "status": 422,
        "detail": "a: too long",
        "instance": "/v1/x",
        "code": "invalid_input",
        "request_id": "abc",
        "errors": [{"loc": "a", "msg": "too long"}],
    }
    busy = NATIVE.answer(failure(errors.Overloaded("full", 7), "/v1/x"))
    assert (busy.headers["retry-after"], "errors" in json.loads(bytes(busy.body))) == ("7", False)


def dialect_of(code: str, prefix: str | None = None) -> Dialect:
    """Return a format of errors with a status of its own."""
    return Dialect(lambda failed: json_response({code: failed.path}), NATIVE.schema, prefix=prefix)


@pytest.mark.parametrize(
    ("path", "code"), [("/other/none", "other"), ("/other", "code"), ("/none", "code"), ("/strange/a", "strange")]
)
def test_format_is_that_of_the_route_or_of_the_prefix_of_its_path(path: str, code: str) -> None:
    router = dialect_of("strange").router("Strange")
    router.add_api_route("/strange/{name}", test_format_is_that_of_the_route_or_of_the_prefix_of_its_path)
    scope: Scope = {"path": path, "root_path": ""}
    if path.startswith("/strange"):
        (scope["route"],) = router.routes
    response = error_response(scope, HTTPException(404), [dialect_of("other", "/other/")])
    assert code in json.loads(bytes(response.body))


def test_path_in_an_error_is_the_one_below_the_root_path() -> None:
    response = error_response({"path": "/text/none", "root_path": "/text"}, HTTPException(404))
    assert json.loads(bytes(response.body))["instance"] == "/none"


def test_wrong_parameter_is_an_invalid_input_without_the_input() -> None:
    """A location in FastAPI's error begins with where the parameter is sent."""
    wrong = {"type": "missing", "loc": ("query", "top_k", 0), "msg": "wrong", "input": "secret"}
    found = failure(RequestValidationError([wrong]), "/v1/x")
    assert (found.status, found.code, found.fields) == (422, "invalid_input", [("top_k.0", "wrong")])
    assert found.detail == "top_k.0: wrong"
