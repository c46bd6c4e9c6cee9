"""Bodies with very many wrong values: a client must not stop the server with them."""

import json

import pytest
from pydantic import BaseModel

from artifact.errors import InvalidInput
from service.compat.kserve import KServeRequest
from service.compat.tei import PredictRequest
from service.wire.requests import parse_json
from service.wire.schemas import ClassifyRequest, ForecastRequest, RankRequest, ScoreRequest

COUNT = 300_000
NUMBERS = ",".join(["1"] * COUNT)
STRINGS = ",".join(['""'] * COUNT)
FIELDS = ",".join(f'"{i:x}":1' for i in range(COUNT))


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
        (KServeRequest, kserve(NUMBERS)),
        (KServeRequest, kserve(f'{{"frequency":"H","series":[{STRINGS}]}}')),
        (KServeRequest, kserve(f'{{"frequency":"H","series":[[],{NUMBERS}]}}')),
    ],
)
def test_error_of_very_many_wrong_values_is_short(schema: type[BaseModel], body: str) -> None:
    """The first wrong item of a list ends the check: finding all takes seconds. Wrong fields are counted."""
    with pytest.raises(InvalidInput) as caught:
        parse_json(schema, body.encode())
    assert ("300000 values are not allowed" in str(caught.value)) == (FIELDS in body)
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
