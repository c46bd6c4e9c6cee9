"""The OpenAPI document of a small application whose path operations read their bodies themselves."""

import copy
from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.settings import Settings
from service.wire.errors import NATIVE, Dialect
from service.wire.media import JSON, NDJSON, TEXT
from service.wire.openapi import Lines, complete, contents, json_body, request_body, schema_of
from service.wire.schemas import LIMIT


class Part(BaseModel):
    size: int = 1


class Whole(BaseModel):
    parts: list[Part]


class Sorry(BaseModel):
    why: str


class Limited(BaseModel):
    texts: Annotated[list[str], Field(max_length=100_000, json_schema_extra={LIMIT: "max_documents"})]


HEADER = {"name": "X-A", "in": "header", "schema": {"type": "string"}}
POLITE = Dialect(NATIVE.write, Sorry, without_body=frozenset({401}))
native, polite = NATIVE.router("Native"), POLITE.router("Polite")


@native.post(
    "/wholes/{name}",
    name="whole",
    response_model=list[Part],
    responses={200: {"content": contents({NDJSON: Lines(Part)}, "serialization")}, **NATIVE.responses(422, 429)},
    openapi_extra=request_body({JSON: Whole, TEXT: str, NDJSON: Lines(Part)}, {TEXT: "a"}, [HEADER]),
)
async def post_whole(name: str) -> Response:
    """Do it.

    Slowly.
    """
    return Response(name)


@native.post("/limited", name="limited", openapi_extra=json_body(Limited, {"texts": ["a"]}))
async def post_limited() -> Response:
    """Do it within limits."""
    return Response()


@polite.get("/open", name="open", responses=POLITE.responses(401, 503))
async def get_open() -> Response:
    """Do it politely."""
    return Response()


def document(settings: Settings | None = None) -> dict[str, Any]:
    app = FastAPI(generate_unique_id_function=lambda route: route.name)
    app.include_router(native)
    app.include_router(polite)
    complete(app.openapi(), settings or Settings())
    return app.openapi()


def reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def test_every_type_is_defined_once_by_name() -> None:
    found = document()
    schemas = found["components"]["schemas"]
    assert set(schemas) == {"FieldError", "Limited", "Part", "Problem", "Sorry", "Whole"}, "none of FastAPI's own"
    assert list(schemas) == sorted(schemas)
    assert schemas["Whole"]["properties"]["parts"]["items"] == reference("Part")
    assert "$defs" not in str(found)
    assert document() == found, "the parts that applications share are not changed"


def test_limit_of_a_list_is_the_setting() -> None:
    for limit in (3, 4):
        schema = document(Settings(max_documents=limit))["components"]["schemas"]["Limited"]["properties"]["texts"]
        assert schema["maxItems"] == limit
        assert LIMIT not in schema


def test_type_that_is_already_described_is_kept() -> None:
    mine: dict[str, Any] = {"Part": {"title": "Mine"}}
    described = {
        "components": {"schemas": mine},
        "paths": {"/a": {"get": {"responses": {"200": copy.deepcopy(schema_of(Whole))}}}},
    }
    complete(described, Settings())
    assert described["components"]["schemas"]["Part"] == {"title": "Mine"}


def test_errors_of_validation_that_fastapi_adds_are_left_out() -> None:
    """Routes that can answer 422 declare it in the format of their protocol."""
    app = FastAPI()

    @app.get("/numbers/{number}")
    async def get_number(number: int) -> int:
        return number

    found = app.openapi()
    complete(found, Settings())
    assert list(found["paths"]["/numbers/{number}"]["get"]["responses"]) == ["200"]
    assert found["components"]["schemas"] == {}
