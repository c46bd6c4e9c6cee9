"""Errors of the Open Inference Protocol."""

import json

import pytest

from artifact.errors import InvalidInput
from service.compat.oip.errors import DIALECT
from service.errors import Overloaded
from service.table import TABLE
from service.wire.errors import failure


def test_body_has_only_the_detail() -> None:
    response = DIALECT.answer(failure(InvalidInput.at("a", "wrong"), "/v2/models/a/infer"))
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/json"
    assert json.loads(bytes(response.body)) == {"error": "a: wrong"}


def test_headers_of_the_error_are_kept() -> None:
    response = DIALECT.answer(failure(Overloaded("full", 7), "/v2/models/a/infer"))
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")


@pytest.mark.parametrize("path", ["/v2", "/v2/models/a", "/v2/models/a/infer", "/v2/health/live", "/v2/none"])
def test_every_path_of_the_protocol_has_its_error_body(path: str) -> None:
    assert TABLE.dialect(path) is DIALECT


@pytest.mark.parametrize("path", ["/v1/classify", "/v22", "/"])
def test_other_paths_have_no_such_error_body(path: str) -> None:
    assert TABLE.dialect(path) is not DIALECT
