"""The OpenAPI document of a small route table."""

from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from service.openapi import create_api
from service.settings import Settings
from service.wire.errors import NATIVE, Dialect
from service.wire.media import JSON, NDJSON, TEXT
from service.wire.route import Lines, Route, Table
from tests.support.applications import fail


class Part(BaseModel):
    size: int = 1


class Whole(BaseModel):
    parts: list[Part]


class Sorry(BaseModel):
    why: str


POLITE = Dialect(NATIVE.write, Sorry, without_body=frozenset({401}))
HEADER = {"name": "X-A", "in": "header", "schema": {"type": "string"}}
TABLE = Table(
    [
        Route(
            method="POST",
            path="/wholes/{name}",
            handler=fail,
            bodies={JSON: Whole, TEXT: str, NDJSON: Lines(Part)},
            answers={JSON: list[Part]},
            statuses=(422,),
            parameters=(HEADER,),
        ),
        Route(method="GET", path="/open", handler=fail, dialect=POLITE, needs_key=False, statuses=(401, 503)),
        Route(method="POST", path="/bare", handler=fail, bodies={JSON: Part}, needs_body=False, statuses=()),
    ]
)


def document(*keys: str) -> dict[str, Any]:
    return create_api(Settings(api_keys=tuple(map(SecretStr, keys))), TABLE).openapi()


@pytest.fixture(scope="module")
def operation() -> dict[str, Any]:
    found: dict[str, Any] = document()["paths"]["/wholes/{name}"]["post"]
    return found


def reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def test_every_type_is_defined_once_by_name() -> None:
    schemas = document()["components"]["schemas"]
    assert set(schemas) == {"FieldError", "Part", "Problem", "Sorry", "Whole"}
    assert schemas["Whole"]["properties"]["parts"]["items"] == reference("Part")


def test_bodies_are_described_by_media_type(operation: dict[str, Any]) -> None:
    content = operation["requestBody"]["content"]
    assert operation["requestBody"]["required"] is True
    assert content[JSON]["schema"] == reference("Whole")
    assert content[TEXT]["schema"] == {"type": "string"}
    assert content[NDJSON]["schema"] == {
        "type": "string",
        "contentMediaType": NDJSON,
        "contentSchema": reference("Part"),
    }


def test_body_is_required_unless_the_route_needs_none(operation: dict[str, Any]) -> None:
    assert operation["requestBody"]["required"] is True
    assert document()["paths"]["/bare"]["post"]["requestBody"]["required"] is False


def test_responses_are_described_by_status(operation: dict[str, Any]) -> None:
    assert operation["responses"] == {
        "200": {
            "description": "Successful Response",
            "content": {JSON: {"schema": {"type": "array", "items": reference("Part")}}},
        },
        "422": {
            "description": operation["responses"]["422"]["description"],
            "content": {"application/problem+json": {"schema": reference("Problem")}},
        },
    }


def test_error_without_a_body_has_no_content() -> None:
    responses = document()["paths"]["/open"]["get"]["responses"]
    assert "content" not in responses["401"]
    assert responses["503"]["content"] == {JSON: {"schema": reference("Sorry")}}


def test_path_parameters_come_before_other_parameters(operation: dict[str, Any]) -> None:
    in_path = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}, "example": "imdb-s3"}
    assert operation["parameters"] == [in_path, HEADER]


def test_keys_are_described_only_if_they_are_set() -> None:
    without, with_keys = document(), document("secret")
    assert "security" not in without
    assert "securitySchemes" not in without["components"]
    assert with_keys["security"] == [{"bearer": []}, {"header": []}]
    assert set(with_keys["components"]["securitySchemes"]) == {"bearer", "header"}
    assert with_keys["paths"]["/open"]["get"]["security"] == []
    assert "security" not in with_keys["paths"]["/wholes/{name}"]["post"]
    assert "secret" not in str(with_keys)
