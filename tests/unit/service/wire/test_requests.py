"""Requests are checked within their limits, including requests made to block the server."""

import gzip
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from artifact.errors import InvalidInput
from artifact.matching import Text
from service.compat.kserve import KServeRequest
from service.compat.kserve_v1 import ClassifierInstances, ForecasterInstances, MatcherInstances
from service.compat.tei.scores import PredictRequest
from service.errors import DeadlineExceeded, MalformedInput, PayloadTooLarge, UnsupportedEncoding, UnsupportedMedia
from service.settings import Settings
from service.wire.call import TIMEOUT_HEADER, Call
from service.wire.requests import (
    FEW_TOKENS,
    MAX_VALUES,
    SMALL_BODY,
    check_content_encoding,
    check_count,
    check_media_type,
    check_size,
    check_tokens,
    decode_base64,
    parse_body,
    parse_json,
    read_body,
    read_document,
    read_documents,
    read_json,
    read_query,
    read_texts,
)
from service.wire.schemas import (
    MAX_TEXTS,
    ClassifyOptions,
    ClassifyRequest,
    ForecastRequest,
    RankRequest,
    ScoreRequest,
)
from tests.support import jobs
from tests.support.calls import call, receive_of
from tests.support.growth import LINEAR, growth
from tests.support.waiting import PATIENCE_S

COUNT = 300_000
NUMBERS = ",".join(["1"] * COUNT)
STRINGS = ",".join(['""'] * COUNT)
FIELDS = ",".join(f'"{i:x}":1' for i in range(COUNT // 4))


LARGE = b" " * SMALL_BODY * 2


@asynccontextmanager
async def large_call(**options: Any) -> AsyncIterator[Call]:
    """A call with a parser process, which is closed with it; on a busy machine the process starts slowly."""
    asked = call(**{"settings": Settings(deadline_s=PATIENCE_S), **options})
    try:
        yield asked
    finally:
        asked.parser.close()
        asked.engine.close()


def kserve(inputs: str) -> str:
    return f'{{"model":"a","options":{{"horizon":1}},"inputs":[{inputs}]}}'


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        (ClassifyRequest, f'{{"inputs":[{NUMBERS}]}}'),
        (ScoreRequest, f'{{"pairs":[{NUMBERS}]}}'),
        (RankRequest, f'{{"query":"a","documents":[{NUMBERS}]}}'),
        (RankRequest, f'{{"query":"a","documents":["a"],{FIELDS}}}'),
        (ForecastRequest, f'{{"series":[{NUMBERS}]}}'),
        (ForecastRequest, f'{{"series":[[{STRINGS}]]}}'),
        (ForecastRequest, f'{{"series":{{{FIELDS}}}}}'),
        (ForecastRequest, f'{{"series":[[1]],"quantiles":[{STRINGS}]}}'),
        (ClassifierInstances, f'{{"instances":[{NUMBERS}]}}'),
        (MatcherInstances, f'{{"instances":[{NUMBERS}]}}'),
        (ForecasterInstances, f'{{"instances":[{NUMBERS}]}}'),
        (ForecasterInstances, f'{{"instances":[{{"series":[[{STRINGS}]]}}]}}'),
        (KServeRequest, kserve(NUMBERS)),
        (KServeRequest, kserve(f'{{"frequency":"H","series":[{STRINGS}]}}')),
        (KServeRequest, kserve(f'{{"frequency":"H","series":[[],{NUMBERS}]}}')),
    ],
)
def test_error_about_many_wrong_values_is_short(schema: type[BaseModel], body: str) -> None:
    """Validation of a list stops at its first wrong item, since finding all takes seconds. Wrong fields are counted."""
    with pytest.raises(InvalidInput) as caught:
        parse_json(schema, body.encode())
    assert ("75000 values are not allowed" in str(caught.value)) == (FIELDS in body)
    assert 1 <= len(caught.value.errors) <= 2
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("schema", "inputs", "place", "message"),
    [
        (ClassifyRequest, [1], "inputs.list.0", "a valid string"),
        (ClassifyRequest, None, "inputs", "a string or a list of strings"),
        (ClassifyRequest, {"text": "a"}, "inputs", "a string or a list of strings"),
        (PredictRequest, ["a", 1], "inputs.list.1", "a valid string"),
        (PredictRequest, [["a"], 1], "inputs.batch.1", "a valid array"),
        (PredictRequest, [["a"], ["a", 1]], "inputs.batch.1.1", "a valid string"),
        (PredictRequest, 1, "inputs", "a string, a list of strings or a list of such lists"),
    ],
)
def test_one_wrong_value_is_one_error(schema: type[BaseModel], inputs: object, place: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_json(schema, json.dumps({"inputs": inputs}).encode())
    assert caught.value.errors == [(place, f"Input should be {message}")]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("text/plain", "text/plain"),
        (" TEXT/Plain ; charset=utf-8", "text/plain"),
        ('text/plain; Charset="UTF-8"', "text/plain"),
        ("text/plain; charset=windows-1252", "text/plain"),
        ("application/octet-stream; charset=latin-1", "application/octet-stream"),
    ],
)
async def test_spellings_of_the_media_type_are_accepted(given: str, found: str) -> None:
    asked = call(headers={"content-type": given})
    assert check_media_type(asked, "text/plain", "application/octet-stream") == found


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "send the body as text/plain, application/json"),
        ({"content-type": "text/html"}, "send the body as text/plain, application/json"),
        ({"content-type": "text/plain; charset=klingon"}, "the charset is unknown; send text as UTF-8"),
        ({"content-type": "application/json; charset=latin-1"}, "send application/json as UTF-8"),
    ],
)
async def test_other_media_types_are_rejected(headers: dict[str, str], message: str) -> None:
    with pytest.raises(UnsupportedMedia, match=message):
        check_media_type(call(headers=headers), "text/plain", "application/json")


async def test_identity_and_compressed_codings_are_accepted() -> None:
    for coding in ("Identity", "gzip", "X-GZIP", "deflate"):
        check_content_encoding(call(headers={"content-encoding": coding}))


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "gzip, br", "none", "deflate-raw"])
async def test_other_encodings_are_rejected(coding: str) -> None:
    asked = call(headers={"content-type": "text/plain", "content-encoding": coding})
    for check in (check_content_encoding, lambda asked: check_media_type(asked, "text/plain")):
        with pytest.raises(UnsupportedEncoding, match=r"without Content-Encoding, or with one of gzip, deflate$"):
            check(asked)


async def test_compressed_body_is_read_like_an_uncompressed_one() -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    asked = await read_json(call(gzip.compress(b'{"inputs":"a"}'), headers=headers), ClassifyRequest)
    assert asked.inputs == "a"
    with pytest.raises(MalformedInput, match="the body is not valid gzip"):
        await read_json(call(b'{"inputs":"a"}', headers=headers), ClassifyRequest)


async def test_stalled_body_ends_at_the_deadline() -> None:
    asked = call(headers={TIMEOUT_HEADER: "1"}, receive=receive_of(leaves=False))
    with pytest.raises(DeadlineExceeded, match="before the body had arrived"):
        await read_body(asked)


async def test_options_of_a_json_request_are_in_the_body() -> None:
    headers = {"content-type": "application/json"}
    body = b'{"inputs":"a","top_k":1}'
    assert (await read_json(call(body, headers=headers), ClassifyRequest)).top_k == 1
    with pytest.raises(InvalidInput) as caught:
        await read_json(call(body, headers=headers, query="top_k=1"), ClassifyRequest)
    assert caught.value.errors == [("query", "not allowed with a JSON body")]
    with pytest.raises(InvalidInput, match="X-Request-Timeout-Ms"):
        await read_json(call(b"{", headers={**headers, TIMEOUT_HEADER: "x"}), ClassifyRequest)


async def test_query_is_read() -> None:
    asked = ClassifyOptions(model="a b", top_k=2, detail=True)
    assert read_query(call(query="model=a%20b&top_k=2&detail=true"), ClassifyOptions) == asked
    assert read_query(call(), ClassifyOptions) == ClassifyOptions()


@pytest.mark.parametrize(
    ("query", "place", "message"),
    [
        ("top_k=1&top_k=2&detail=true", "top_k", "given more than once"),
        ("top_k=x", "top_k", None),
        ("more=1", "more", "Extra inputs are not permitted"),
    ],
)
async def test_error_names_the_wrong_query_parameter(query: str, place: str, message: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_query(call(query=query), ClassifyOptions)
    ((found, why),) = caught.value.errors
    assert (found, why if message else None) == (place, message)


async def test_documents_are_read_from_json_or_from_the_body() -> None:
    asked = call(b'{"inputs":["\\u00e9","b"],"detail":true}', headers={"content-type": "application/json"})
    assert await read_documents(asked) == (
        ["é".encode(), b"b"],
        ClassifyRequest(inputs=["é", "b"], detail=True),
    )
    raw = call(b"\xff", headers={"content-type": "application/octet-stream"}, query="detail=true")
    assert await read_documents(raw) == ([b"\xff"], ClassifyOptions(detail=True))


async def test_documents_are_limited_in_number_and_size() -> None:
    settings = Settings(max_documents=1, max_document_bytes=2)
    headers = {"content-type": "application/json"}
    with pytest.raises(PayloadTooLarge, match="inputs: 2; at most 1 in one request"):
        await read_documents(call(b'{"inputs":["a","b"]}', headers=headers, settings=settings))
    with pytest.raises(PayloadTooLarge, match="input 0: the document has 3 bytes; at most 2"):
        await read_documents(call(b'{"inputs":["abc"]}', headers=headers, settings=settings))
    with pytest.raises(PayloadTooLarge, match="a: the document has 4 bytes; at most 2"):
        read_document(call(settings=settings), "a", "éé")
    assert read_document(call(settings=settings), "a", "é") == "é".encode()


def test_document_may_be_base64() -> None:
    assert decode_base64("a", "/wA=") == b"\xff\x00"
    assert decode_base64("a", "") == b""
    for text in ("/wA", "_wA=", "/w A=", "é"):
        with pytest.raises(InvalidInput) as caught:
            decode_base64("inputs.0", text)
        assert caught.value.errors == [("inputs.0", "not base64")]


def test_values_at_the_limits_are_accepted() -> None:
    check_count("documents", 3, 3)
    check_size("a", b"abc", 3)
    for count, error in ((0, InvalidInput), (4, PayloadTooLarge)):
        with pytest.raises(error):
            check_count("documents", count, 3)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"inputs":"a"}}'])
def test_body_that_is_not_json_is_malformed_input(body: bytes) -> None:
    with pytest.raises(MalformedInput, match="the body is not valid JSON in UTF-8"):
        parse_json(ClassifyRequest, body)


def test_name_of_an_unknown_field_is_truncated_in_the_error() -> None:
    """The client chose the name; the error must not repeat a whole document."""
    with pytest.raises(InvalidInput) as caught:
        parse_json(ClassifyRequest, json.dumps({"inputs": "a", "x" * 1000: 1}).encode())
    assert caught.value.errors == [(32 * "x" + "...", "Extra inputs are not permitted")]


def test_too_many_lists_are_rejected_but_not_brackets_in_strings() -> None:
    parse_json(ClassifyRequest, json.dumps({"inputs": COUNT * "[" + '\\"'}).encode())
    with pytest.raises(PayloadTooLarge, match="lists, objects and keys; at most 100000"):
        parse_json(ClassifyRequest, b'{"inputs":[' + COUNT * b"[")


def test_too_many_keys_and_values_are_rejected() -> None:
    keys = ",".join(f'"{i:x}":1' for i in range(COUNT))
    with pytest.raises(PayloadTooLarge, match="lists, objects and keys; at most 100000"):
        parse_json(ClassifyRequest, f"{{{keys}}}".encode())
    with pytest.raises(PayloadTooLarge, match="1500000 values; at most 1000000"):
        parse_json(ForecastRequest, b'{"series":[[' + 1_500_000 * b"0," + b"0]]}")


@pytest.mark.parametrize("text", [b'"', b'\\"', b'"\\', b"\\", b'",', b"[", b'"[', b"{", b":"])
def test_cost_of_counting_tokens_is_linear(text: bytes) -> None:
    """Also in an unterminated string: a search from each of its quotation marks to its end would be quadratic."""
    commas = b"," * (MAX_VALUES + 1)
    assert growth(check_tokens, lambda length: commas + b'"' + text * length, 20_000) < LINEAR


def test_tokens_in_an_unterminated_string_do_not_count() -> None:
    check_tokens(b'"' + COUNT * b"[" + b'\\"')
    check_tokens(b'"' + COUNT * b"[" + b"\\")
    with pytest.raises(PayloadTooLarge):
        check_tokens(COUNT * b"[" + b'"')


@pytest.mark.parametrize("query", ["k{}=1", "{}"])
def test_cost_of_the_query_string_is_linear(query: str) -> None:
    def read(text: str) -> None:
        read_query(call(query=text), ClassifyOptions)

    assert growth(read, lambda length: "&".join(map(query.format, range(length))), 1000) < LINEAR


async def test_large_body_is_parsed_in_another_process() -> None:
    """Large bodies have many bytes, or many values in few bytes."""
    async with large_call(receive=receive_of(leaves=False)) as asked:
        for body, is_aside in ((b"[0]", False), (b"[" + b"0," * FEW_TOKENS + b"0]", True), (LARGE, True)):
            assert (await parse_body(asked, jobs.process, body) != os.getpid()) is is_aside


async def test_error_in_the_parser_process_is_the_same() -> None:
    body = json.dumps({"inputs": ["a"] * FEW_TOKENS * 2, "top_k": 0}).encode()
    receive = receive_of(body, leaves=False)
    async with large_call(headers={"content-type": "application/json"}, receive=receive) as asked:
        with pytest.raises(InvalidInput) as caught:
            await read_json(asked, ClassifyRequest)
    assert caught.value.errors == [("top_k", "Input should be greater than or equal to 1")]


async def test_deadline_applies_while_a_body_is_parsed() -> None:
    async with large_call(settings=Settings(deadline_s=0.01), receive=receive_of(leaves=False)) as asked:
        with pytest.raises(DeadlineExceeded, match="before the body was parsed"):
            await parse_body(asked, jobs.wait, LARGE)


async def test_disconnect_ends_the_wait_for_the_body() -> None:
    async with large_call(receive=receive_of()) as asked:
        with pytest.raises(ClientDisconnect):
            await parse_body(asked, jobs.wait, LARGE)


def test_more_texts_than_any_setting_allows_are_rejected_by_the_parser() -> None:
    texts = ",".join(['"a"'] * (MAX_TEXTS + 1))
    for schema, body in (
        (ClassifyRequest, f'{{"inputs":[{texts}]}}'),
        (RankRequest, f'{{"query":"a","documents":[{texts}]}}'),
    ):
        with pytest.raises(InvalidInput, match="at most 100000 items"):
            parse_json(schema, body.encode())


async def test_texts_have_locations_and_limits() -> None:
    asked = call(settings=Settings(max_document_bytes=2))
    assert read_texts(asked, "texts", ["a", "é"]) == [Text("texts.0", b"a"), Text("texts.1", "é".encode())]
    with pytest.raises(PayloadTooLarge, match=r"texts\.1: the document has 3 bytes; at most 2"):
        read_texts(asked, "texts", ["a", "abc"])
