"""Encoding of response bodies."""

import json

from service.wire.media import PROBLEM
from service.wire.responses import json_response


def test_value_is_json_in_utf_8() -> None:
    response = json_response({"a": ["é", 1, 0.1, None]})
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert bytes(response.body) == '{"a":["é",1,0.1,null]}'.encode()
    assert int(response.headers["content-length"]) == len(response.body)


def test_status_and_media_type_are_set() -> None:
    response = json_response([], 404, PROBLEM)
    assert (response.status_code, response.headers["content-type"]) == (404, "application/problem+json")
    assert json.loads(bytes(response.body)) == []


def test_numbers_are_read_back_unchanged() -> None:
    number = 1 / 3
    assert json.loads(bytes(json_response(number).body)) == number
