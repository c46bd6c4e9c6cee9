"""Schemas of the native routes."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from service.wire.schemas import (
    BulkLine,
    ClassifyRequest,
    ForecastRequest,
    RankRequest,
    ScoreRequest,
)


@pytest.mark.parametrize(
    ("schema", "value", "place"),
    [
        (ClassifyRequest, {"inputs": 1}, "inputs"),
        (ClassifyRequest, {"series": {"x": ["1"]}}, "series.named.x.0"),
        (ClassifyRequest, {"series": [[1], [True]]}, "series.positional.1.0"),
        (ClassifyRequest, {"series": [1, [2]]}, "series.flat.1"),
        (ClassifyRequest, {"series": [{"x": [1]}, {"x": [float("inf")]}]}, "series.several.1.x.0"),
        (ClassifyRequest, {"series": [{"x": [1]}, [1]]}, "series.several.1"),
        (ClassifyRequest, {"series": [1], "rate": 0}, "rate"),
        (ClassifyRequest, {"series": [1], "rate": float("inf")}, "rate"),
        (ClassifyRequest, {"inputs": "a", "more": 1}, "more"),
        (ClassifyRequest, {"inputs": "a", "top_k": 0}, "top_k"),
        (ClassifyRequest, {"inputs": "a", "on_overflow": "cut"}, "on_overflow"),
        (ClassifyRequest, {"inputs": "a", "model": ""}, "model"),
        (ScoreRequest, {"pairs": [["a", "b", "c"]]}, "pairs.0"),
        (RankRequest, {"query": "a", "documents": ["a"], "top_n": 0}, "top_n"),
        (ForecastRequest, {"series": [["1"]]}, "series.positional.0.0"),
        (ForecastRequest, {"series": [[float("nan")]]}, "series.positional.0.0"),
        (ForecastRequest, {"series": [[True]]}, "series.positional.0.0"),
        (ForecastRequest, {"series": [1, "2"]}, "series.flat.1"),
        (ForecastRequest, {"series": [1, [2]]}, "series.flat.1"),
        (ForecastRequest, {"series": [[1], 2]}, "series.positional.1"),
        (ForecastRequest, {"series": {"a": 1}}, "series.named.a"),
        (ForecastRequest, {"series": [[1]], "quantiles": [1.0]}, "quantiles.0"),
        (ForecastRequest, {"series": [[1]], "horizon": 0}, "horizon"),
        (BulkLine, {"text": "a", "more": 1}, "more"),
        (BulkLine, {"series": [{"x": [1]}]}, "series.flat.0"),
    ],
)
def test_error_names_the_wrong_value(schema: type[BaseModel], value: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        schema.model_validate(value)
    (error,) = caught.value.errors()
    assert ".".join(map(str, error["loc"])) == place


@pytest.mark.parametrize("name", [2**63, -(2**63) - 1, "x" * 257, 1.5])
def test_id_that_cannot_be_returned_unchanged_is_rejected(name: object) -> None:
    with pytest.raises(ValidationError):
        BulkLine.model_validate({"id": name, "text": "a"}, strict=True)


@pytest.mark.parametrize("pair", ["ab", ["a"], ["a", "b", "c"], {"a": "x", "b": "y"}, None])
def test_error_says_what_a_pair_is(pair: object) -> None:
    with pytest.raises(ValidationError, match="a list of two strings, the documents of a pair") as caught:
        ScoreRequest.model_validate({"pairs": [["a", "b"], pair]})
    assert [error["loc"] for error in caught.value.errors()] == [("pairs", 1)]
