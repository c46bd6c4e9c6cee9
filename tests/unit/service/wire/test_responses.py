"""Encoding of response bodies, and bodies that clients share."""

import gzip

import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from service.sharing import CHUNK_BYTES, Content
from service.wire.responses import SharedResponse, json_response


def test_value_is_json_in_utf_8() -> None:
    response = json_response({"a": ["é", 1, 0.1, None]})
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert bytes(response.body) == '{"a":["é",1,0.1,null]}'.encode()
    assert int(response.headers["content-length"]) == len(response.body)


CONTENT = Content(b"some text " * CHUNK_BYTES)


async def messages_of(response: SharedResponse, method: str = "GET", **headers: str) -> list[Message]:
    """Return the ASGI messages of a response."""
    sent = list[Message]()

    async def receive() -> Message:
        raise AssertionError("the body of the request does not matter")

    async def send(message: Message) -> None:
        sent.append(message)

    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await response({"type": "http", "method": method, "headers": fields}, receive, send)
    return sent


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (None, None), ("", None), ("identity", None), ("br, deflate", None), ("gzip;q=0", None),
        ("*, gzip; Q = 0.000", None), ("gzip;q=0;x=1", None), ("gzip;x=1;q=0", None), ("xgzip", None),
        ("gzip", "gzip"), ("br;q=1.0, GZIP;q=0.8", "gzip"), ("gzip;q=0.001", "gzip"), ("*", "gzip"),
    ],
)  # fmt: skip
async def test_shared_body_is_compressed_for_clients_that_accept_it(accepted: str | None, coding: str | None) -> None:
    headers = {} if accepted is None else {"accept_encoding": accepted}
    start, *parts = await messages_of(SharedResponse(CONTENT, "text/x"), **headers)
    found = Headers(raw=start["headers"])
    body = b"".join(part["body"] for part in parts)
    assert found.get("content-encoding") == coding
    assert (found["content-type"], found["vary"]) == ("text/x", "Accept-Encoding")
    assert int(found["content-length"]) == len(body)
    assert (gzip.decompress(body) if coding else body) == b"".join(CONTENT.plain)
    assert [part["more_body"] for part in parts] == [True] * (len(parts) - 1) + [False]


async def test_clients_get_the_same_bytes_and_no_copies() -> None:
    _, *first = await messages_of(SharedResponse(CONTENT, "text/x"))
    _, *second = await messages_of(SharedResponse(CONTENT, "text/x"))
    assert len(first) == len(second) == 10
    assert all(one["body"] is two["body"] for one, two in zip(first, second, strict=True))


async def test_head_of_a_shared_response_has_its_headers_and_no_body() -> None:
    start, *parts = await messages_of(SharedResponse(CONTENT, "text/x"), "HEAD")
    assert Headers(raw=start["headers"])["content-length"] == str(10 * CHUNK_BYTES)
    assert [part["body"] for part in parts] == [b""]


@pytest.mark.parametrize(
    ("known", "status"), [('W/"1"', 304), ('W/"0", W/"1"', 304), ('W/"2"', 200), ("1", 200), ("", 200)]
)
async def test_client_that_has_the_version_of_the_tag_gets_no_body(known: str, status: int) -> None:
    response = SharedResponse(CONTENT, "text/x", {"etag": 'W/"1"', "cache-control": "no-cache"})
    start, *parts = await messages_of(response, if_none_match=known)
    headers = Headers(raw=start["headers"])
    assert start["status"] == status
    assert (headers["etag"], headers["cache-control"]) == ('W/"1"', "no-cache")
    assert any(part.get("body") for part in parts) is (status == 200)
