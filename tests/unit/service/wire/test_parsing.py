"""What requests contain is checked within limits, including bodies made to block the server."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from artifact.errors import InvalidInput
from service.compat.kserve import KServeRequest
from service.compat.kserve_v1 import ClassifierInstances, MatcherInstances, SeriesInstances
from service.compat.tei.scores import PredictRequest
from service.errors import MalformedInput, PayloadTooLarge
from service.wire.parsing import (
    FEW_TOKENS,
    MAX_VALUES,
    SMALL_BODY,
    TINY_BODY,
    check_tokens,
    decode_base64,
    invalid,
    is_quick,
    parse_json,
    with_options,
)
from service.wire.schemas import (
    MAX_TEXTS,
    BulkLine,
    ClassifyOptions,
    ClassifyRequest,
    ForecastLine,
    ForecastRequest,
    RankRequest,
    ScoreRequest,
)
from tests.support.growth import LINEAR, growth

COUNT = 300_000
NUMBERS = ",".join(["1"] * COUNT)
STRINGS = ",".join(['""'] * COUNT)
FIELDS = ",".join(f'"{i:x}":1' for i in range(COUNT // 4))


def kserve(inputs: str) -> str:
    return f'{{"model":"a","options":{{"horizon":1}},"inputs":[{inputs}]}}'


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        (ClassifyRequest, f'{{"inputs":[{NUMBERS}]}}'),
        (ScoreRequest, f'{{"pairs":[{NUMBERS}]}}'),
        (RankRequest, f'{{"query":"a","documents":[{NUMBERS}]}}'),
        (RankRequest, f'{{"query":"a","documents":["a"],{FIELDS}}}'),
        (ForecastRequest, f'{{"series":[{STRINGS}]}}'),
        (ForecastRequest, f'{{"series":[[{STRINGS}]]}}'),
        (ForecastRequest, f'{{"series":{{{FIELDS}}}}}'),
        (ForecastRequest, f'{{"series":[[1]],"quantiles":[{STRINGS}]}}'),
        (ClassifierInstances, f'{{"instances":[{NUMBERS}]}}'),
        (MatcherInstances, f'{{"instances":[{NUMBERS}]}}'),
        (SeriesInstances, f'{{"instances":[{NUMBERS}]}}'),
        (SeriesInstances, f'{{"instances":[{{"series":[[{STRINGS}]]}}]}}'),
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
        (ClassifyRequest, [1], "inputs.0", "a valid string"),
        (ClassifyRequest, 1, "inputs", "a string or a list of strings"),
        (ClassifyRequest, {"text": "a"}, "inputs", "a string or a list of strings"),
        (PredictRequest, ["a", 1], "inputs.1", "a valid string"),
        (PredictRequest, [["a"], 1], "inputs.1", "a valid array"),
        (PredictRequest, [["a"], ["a", 1]], "inputs.1.1", "a valid string"),
        (PredictRequest, 1, "inputs", "a string, a list of strings or a list of such lists"),
    ],
)
def test_one_wrong_value_is_one_error(schema: type[BaseModel], inputs: object, place: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_json(schema, json.dumps({"inputs": inputs}).encode())
    assert caught.value.errors == [(place, f"Input should be {message}")]


def test_document_may_be_base64() -> None:
    assert decode_base64("a", "/wA=") == b"\xff\x00"
    assert decode_base64("a", "") == b""
    for text in ("/wA", "_wA=", "/w A=", "é"):
        with pytest.raises(InvalidInput) as caught:
            decode_base64("inputs.0", text)
        assert caught.value.errors == [("inputs.0", "not base64")]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"inputs":"a"}}'])
def test_body_that_is_not_json_is_malformed_input(body: bytes) -> None:
    with pytest.raises(MalformedInput, match="JSON in UTF-8"):
        parse_json(ClassifyRequest, body)


@pytest.mark.parametrize(
    ("body", "query", "expected"),
    [
        ({}, {"top_k": 2}, {"top_k": 2}),
        ({"top_k": 2}, {"top_k": 2}, {"top_k": 2}),
        (
            {"top_k": None, "on_overflow": "windows"},
            {"top_k": 2, "on_overflow": "head"},
            {"top_k": 2, "on_overflow": "head"},
        ),
        ({"on_overflow": "head"}, {"on_overflow": "windows", "detail": False}, {"on_overflow": "head"}),
        ({"model": "a"}, {"detail": True}, {"model": "a", "detail": True}),
    ],
)
def test_options_may_be_in_the_query_string_and_in_the_body(
    body: dict[str, Any], query: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Defaults, which generated clients send, contradict nothing."""
    found = with_options(ClassifyRequest(inputs="a", **body), ClassifyOptions(**query))
    assert found == ClassifyRequest(inputs="a", **expected)


def test_options_that_contradict_each_other_are_named() -> None:
    asked = ClassifyRequest(inputs="a", top_k=1, on_overflow="head", model="a")
    with pytest.raises(InvalidInput) as caught:
        with_options(asked, ClassifyOptions(top_k=2, on_overflow="tail", model="a"))
    assert [place for place, _ in caught.value.errors] == ["top_k", "on_overflow"]
    assert "the query string and the body have different values" in str(caught.value)


@pytest.mark.parametrize("levels", [201, 100_000])
def test_body_that_is_nested_too_deep_is_told_what_is_allowed(levels: int) -> None:
    for end in (b"", levels * b"]" + b"}"):
        body = b'{"inputs":"[{","top_k":' + levels * b"[" + end
        with pytest.raises(MalformedInput, match=r"^the body is nested too deep; at most 200 levels"):
            parse_json(ClassifyRequest, body[:100_000])


@pytest.mark.parametrize(
    ("schema", "body", "place"),
    [
        (ClassifyRequest, rb'{"inputs":["a","\ud800"]}', "inputs.1"),
        (ClassifyRequest, rb'{"inputs":"\udc00\ud800"}', "inputs"),
        (ClassifyRequest, b'{"inputs":["a","b\xed\xa0\x80"]}', "inputs.1"),
        (ScoreRequest, rb'{"pairs":[["\ud83d\ude00","a"],["a","\ud800x"]]}', "pairs.1.1"),
        (RankRequest, rb'{"query":"a","documents":["a"],"\ud800":1}', "body"),
        (RankRequest, rb'["\ud800"]', "0"),
    ],
)
def test_text_with_a_lone_surrogate_is_named(schema: type[BaseModel], body: bytes, place: str) -> None:
    with pytest.raises(MalformedInput, match=f"^{place}: contains a lone surrogate, which UTF-8 cannot encode$"):
        parse_json(schema, body)


@pytest.mark.parametrize("value", [[], "text", 1, None])
def test_error_does_not_name_the_class_of_an_object(value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        ScoreRequest.model_validate(value)
    assert str(invalid(caught.value, ScoreRequest)) == "body: Input should be an object"


def test_name_of_an_unknown_field_is_truncated_in_the_error() -> None:
    """The client chose the name; the error must not repeat a whole document."""
    with pytest.raises(InvalidInput) as caught:
        parse_json(ClassifyRequest, json.dumps({"inputs": "a", "x" * 1000: 1}).encode())
    ((place, message),) = caught.value.errors
    assert place == 32 * "x" + "..."
    assert message == "no such field (fields: model, top_k, on_overflow, detail, inputs, series, rate)"


@pytest.mark.parametrize(
    ("schema", "name", "field"),
    [
        *((ClassifyRequest, name, "inputs") for name in ("text", "texts", "document", "documents", "input", "Inputs")),
        (ClassifyRequest, "values", "series"),
        (ClassifyRequest, "top_n", "top_k"),
        (ClassifyRequest, "on_overlow", "on_overflow"),
        (ClassifyRequest, "zzz", None),
        (BulkLine, "inputs", "text"),
        (BulkLine, "document", "text"),
        (ScoreRequest, "documents", "pairs"),
        (ScoreRequest, "inputs", "pairs"),
        (ScoreRequest, "pair", "pairs"),
        (RankRequest, "texts", "documents"),
        (RankRequest, "question", "query"),
        (RankRequest, "top_k", "top_n"),
        (ForecastRequest, "data", "series"),
        (ForecastRequest, "inputs", "series"),
        (ForecastRequest, "prediction_length", "horizon"),
        (ForecastRequest, "freq", "frequency"),
        (ForecastLine, "values", "series"),
    ],
)
def test_unknown_field_is_answered_with_the_one_to_use(schema: type[BaseModel], name: str, field: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_json(schema, json.dumps({name: []}).encode())
    message = dict(caught.value.errors)[name]
    assert message.startswith(f"no such field, use {field} (" if field else "no such field (")
    assert message.endswith(f"(fields: {', '.join(schema.model_fields)})")


def test_too_many_lists_are_rejected_but_not_brackets_in_strings() -> None:
    parse_json(ClassifyRequest, json.dumps({"inputs": COUNT * "[" + '\\"'}).encode())
    with pytest.raises(PayloadTooLarge, match="at most 100000"):
        parse_json(ClassifyRequest, b'{"inputs":[' + COUNT * b"[")


def test_too_many_keys_and_values_are_rejected() -> None:
    keys = ",".join(f'"{i:x}":1' for i in range(COUNT))
    with pytest.raises(PayloadTooLarge, match="at most 100000"):
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


def test_more_texts_than_any_setting_allows_are_rejected_by_the_parser() -> None:
    texts = ",".join(['"a"'] * (MAX_TEXTS + 1))
    for schema, body in (
        (ClassifyRequest, f'{{"inputs":[{texts}]}}'),
        (RankRequest, f'{{"query":"a","documents":[{texts}]}}'),
    ):
        with pytest.raises(InvalidInput, match="100000"):
            parse_json(schema, body.encode())


@pytest.mark.parametrize(
    ("body", "is_small"),
    [
        (b"[" * TINY_BODY, True),
        (b" " * SMALL_BODY, True),
        (b" " * (SMALL_BODY + 1), False),
        (b" " * TINY_BODY + b"," * FEW_TOKENS, True),
        (b" " * TINY_BODY + b"," * (FEW_TOKENS + 1), False),
    ],
)
def test_small_bodies_have_few_bytes_and_few_tokens(body: bytes, *, is_small: bool) -> None:
    assert is_quick(body) is is_small
