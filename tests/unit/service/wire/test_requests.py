"""Requests are read within their limits, including requests made to block the server."""

import asyncio
import functools
import gzip
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from artifact.errors import InvalidInput
from service.errors import DeadlineExceeded, MalformedInput, PayloadTooLarge, UnsupportedEncoding, UnsupportedMedia
from service.settings import Settings
from service.wire.context import RequestContext
from service.wire.parsing import FEW_TOKENS, SMALL_BODY, parse_json
from service.wire.requests import (
    MediaType,
    check_content_encoding,
    check_media_type,
    parse_body,
    read_body,
    read_document,
    read_json,
    read_query,
)
from service.wire.schemas import ClassifyOptions, ClassifyRequest
from tests.support import jobs
from tests.support.contexts import context, receive_of
from tests.support.growth import LINEAR, growth
from tests.support.waiting import PATIENCE_S

JSON = {"content-type": "application/json"}
LARGE = b" " * SMALL_BODY * 2
CLASSIFY = functools.partial(parse_json, ClassifyRequest)


@asynccontextmanager
async def large_context(**options: Any) -> AsyncIterator[RequestContext]:
    """A request with a parser process, which is closed with it; on a busy machine the process starts slowly."""
    asked = context(**{"settings": Settings(deadline_s=PATIENCE_S), **options})
    try:
        yield asked
    finally:
        asked.runtime.close()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("text/plain", MediaType("text/plain", "")),
        (" TEXT/Plain ; charset=utf-8", MediaType("text/plain", "utf-8")),
        ('text/plain; Charset="UTF-8"', MediaType("text/plain", "UTF-8")),
        ("text/plain; charset=windows-1252", MediaType("text/plain", "windows-1252")),
        ("application/octet-stream; charset=latin-1", MediaType("application/octet-stream", "latin-1")),
    ],
)
async def test_spellings_of_the_media_type_are_accepted(given: str, found: MediaType) -> None:
    asked = context(headers={"content-type": given})
    assert check_media_type(asked, "text/plain", "application/octet-stream") == found


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "text/plain, application/json"),
        ({"content-type": "text/html"}, "text/plain, application/json"),
        ({"content-type": "text/plain; charset=klingon"}, "UTF-8"),
        ({"content-type": "application/json; charset=latin-1"}, "UTF-8"),
    ],
)
async def test_other_media_types_are_rejected(headers: dict[str, str], message: str) -> None:
    with pytest.raises(UnsupportedMedia, match=message):
        check_media_type(context(headers=headers), "text/plain", "application/json")


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "gzip, br", "none", "deflate-raw"])
async def test_other_encodings_are_rejected(coding: str) -> None:
    asked = context(headers={"content-type": "text/plain", "content-encoding": coding})
    for check in (check_content_encoding, lambda asked: check_media_type(asked, "text/plain")):
        with pytest.raises(UnsupportedEncoding, match="gzip, deflate"):
            check(asked)


async def test_compressed_body_is_read_like_an_uncompressed_one() -> None:
    headers = {**JSON, "content-encoding": "gzip"}
    asked = await read_json(context(gzip.compress(b'{"inputs":"a"}'), headers=headers), CLASSIFY)
    assert asked.inputs == "a"
    with pytest.raises(MalformedInput, match="gzip"):
        await read_json(context(b'{"inputs":"a"}', headers=headers), CLASSIFY)


async def test_stalled_body_ends_at_the_deadline() -> None:
    asked = context(receive=receive_of(leaves=False))
    asked.deadline = asyncio.get_running_loop().time()
    with pytest.raises(DeadlineExceeded):
        await read_body(asked)


async def test_options_of_a_json_request_are_in_the_body() -> None:
    body = b'{"inputs":"a","top_k":1}'
    assert (await read_json(context(body, headers=JSON), CLASSIFY)).top_k == 1
    with pytest.raises(InvalidInput) as caught:
        await read_json(context(body, headers=JSON, query="top_k=1"), CLASSIFY)
    assert caught.value.errors == [("query", "not allowed with a JSON body")]


async def test_query_is_read() -> None:
    asked = ClassifyOptions(model="a b", top_k=2, detail=True)
    assert read_query(context(query="model=a%20b&top_k=2&detail=true"), ClassifyOptions) == asked
    assert read_query(context(), ClassifyOptions) == ClassifyOptions()


@pytest.mark.parametrize(
    ("query", "place", "message"),
    [
        ("top_k=1&top_k=2&detail=true", "top_k", "given more than once"),
        ("top_k=x", "top_k", None),
        ("more=1", "more", "no such field (fields: model, top_k, on_overflow, detail)"),
        ("topk=1", "topk", "no such field, use top_k (fields: model, top_k, on_overflow, detail)"),
    ],
)
async def test_error_names_the_wrong_query_parameter(query: str, place: str, message: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_query(context(query=query), ClassifyOptions)
    ((found, why),) = caught.value.errors
    assert (found, why if message else None) == (place, message)


def test_documents_are_limited_in_size() -> None:
    settings = Settings(max_document_bytes=2)
    with pytest.raises(PayloadTooLarge, match=r"a: .* 4 bytes; at most 2"):
        read_document(settings, "a", "éé")
    assert read_document(settings, "a", "é") == "é".encode()


@pytest.mark.parametrize("query", ["k{}=1", "{}"])
def test_cost_of_the_query_string_is_linear(query: str) -> None:
    def read(text: str) -> None:
        read_query(context(query=text), ClassifyOptions)

    assert growth(read, lambda length: "&".join(map(query.format, range(length))), 1000) < LINEAR


async def test_large_body_is_parsed_in_another_process() -> None:
    """Large bodies have many bytes, or many values in few bytes."""
    async with large_context(receive=receive_of(leaves=False)) as asked:
        for body, is_aside in ((b"[0]", False), (b"[" + b"0," * FEW_TOKENS + b"0]", True), (LARGE, True)):
            assert (await parse_body(asked, jobs.process, body) != os.getpid()) is is_aside


async def test_error_in_the_parser_process_is_the_same() -> None:
    body = json.dumps({"inputs": ["a"] * FEW_TOKENS * 2, "top_k": 0}).encode()
    receive = receive_of(body, leaves=False)
    async with large_context(headers=JSON, receive=receive) as asked:
        with pytest.raises(InvalidInput) as caught:
            await read_json(asked, CLASSIFY)
    assert caught.value.errors == [("top_k", "Input should be greater than or equal to 1")]


async def test_deadline_applies_while_a_body_is_parsed() -> None:
    async with large_context(receive=receive_of(leaves=False)) as asked:
        asked.deadline = asyncio.get_running_loop().time() + 0.01
        with pytest.raises(DeadlineExceeded):
            await parse_body(asked, jobs.wait, LARGE)


async def test_disconnect_ends_the_wait_for_the_body() -> None:
    async with large_context(receive=receive_of()) as asked:
        with pytest.raises(ClientDisconnect):
            await parse_body(asked, jobs.wait, LARGE)
