"""Types of the answers, against the OpenAPI document."""

import json
from typing import Any, get_type_hints

import pytest
from longdoc_client import answers

from tests.support.paths import ROOT

SCHEMAS: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text())["components"]["schemas"]
NAMES = {
    "Score": "Score",
    "Coverage": "Coverage",
    "RecordingCoverage": "RecordingCoverage",
    "Window": "Window",
    "Stretch": "Stretch",
    "Classification": "ClassifyResult",
    "PairCoverage": "PairCoverage",
    "PairScore": "PairScore",
    "RankedDocument": "RankedDocument",
    "Ranking": "RankResponse",
    "SeriesCoverage": "SeriesCoverage",
    "Forecast": "ForecastResponse",
}
"""Types of the client, and the schemas that they are."""


@pytest.mark.parametrize("name", NAMES)
def test_type_has_the_fields_of_the_service(name: str) -> None:
    found, schema = getattr(answers, name), SCHEMAS[NAMES[name]]
    assert set(get_type_hints(found)) == set(schema["properties"])
    assert found.__required_keys__ == set(schema["required"])


def test_all_types_are_compared() -> None:
    assert set(NAMES) == {name for name, kind in vars(answers).items() if hasattr(kind, "__required_keys__")}
