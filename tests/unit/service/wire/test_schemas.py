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
    ("schema", "value"),
    [
        (ClassifyRequest, {"inputs": "a"}),
        (ClassifyRequest, {"inputs": ["a", ""]}),
        (ScoreRequest, {"pairs": [["a", "b"]]}),
        (RankRequest, {"query": "a", "documents": [], "top_n": 1}),
        (ForecastRequest, {"series": {"a": [1, None, 2.5]}}),
        (ForecastRequest, {"series": [[1], [2]], "quantiles": [0.1, 0.9], "horizon": 1}),
        (BulkLine, {"id": -(2**63), "text": ""}),
        (BulkLine, {"id": "x" * 256, "base64": ""}),
    ],
)
def test_valid_value_is_accepted(schema: type[BaseModel], value: dict[str, Any]) -> None:
    assert schema.model_validate(value).model_dump(mode="json", exclude_unset=True) == value


@pytest.mark.parametrize(
    ("schema", "value", "place"),
    [
        (ClassifyRequest, {}, "inputs"),
        (ClassifyRequest, {"inputs": "a", "more": 1}, "more"),
        (ClassifyRequest, {"inputs": "a", "top_k": 0}, "top_k"),
        (ClassifyRequest, {"inputs": "a", "on_overflow": "cut"}, "on_overflow"),
        (ClassifyRequest, {"inputs": "a", "model": ""}, "model"),
        (ScoreRequest, {"pairs": [["a", "b", "c"]]}, "pairs.0"),
        (RankRequest, {"query": "a", "documents": ["a"], "top_n": 0}, "top_n"),
        (ForecastRequest, {"series": [["1"]]}, "series.positional.0.0"),
        (ForecastRequest, {"series": [[float("nan")]]}, "series.positional.0.0"),
        (ForecastRequest, {"series": [[True]]}, "series.positional.0.0"),
        (ForecastRequest, {"series": {"a": 1}}, "series.named.a"),
        (ForecastRequest, {"series": [[1]], "quantiles": [1.0]}, "quantiles.0"),
        (ForecastRequest, {"series": [[1]], "horizon": 0}, "horizon"),
        (BulkLine, {"text": "a", "more": 1}, "more"),
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
