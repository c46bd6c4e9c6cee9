import json

import pytest
from starlette.exceptions import HTTPException

from artifact.errors import InferenceFailed, InvalidInput, LongdocError, NonFiniteOutput
from service import errors
from service.log import request_id
from service.wire.errors import NATIVE, STATUS, failure


def leaf_classes(kind: type[LongdocError]) -> set[type[LongdocError]]:
    below = kind.__subclasses__()
    return set().union(*map(leaf_classes, below)) if below else {kind}


def test_every_error_has_a_status_and_a_title() -> None:
    found = leaf_classes(LongdocError)
    assert found == set(STATUS)
    for error in found:
        assert error.code
        assert error.title


def test_server_errors_are_never_4xx() -> None:
    for error in (InferenceFailed, NonFiniteOutput, errors.NotReady):
        assert STATUS[error] >= 500


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


def test_internal_error_does_not_show_its_cause() -> None:
    found = failure(RuntimeError("secret"), "/v1/x")
    assert (found.status, found.code) == (500, "internal")
    assert "secret" not in found.detail


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
