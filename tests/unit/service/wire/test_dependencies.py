"""Dependencies of path operations: runtime, key, deadline, body, model."""

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends
from pydantic import BaseModel, SecretStr
from starlette.requests import Request
from starlette.types import Message, Receive

from artifact.errors import InvalidInput
from service.batching.admission import ClientLimit
from service.errors import ModelNotFound
from service.settings import Settings
from service.wire.context import KEY, RequestContext
from service.wire.dependencies import (
    TIMEOUT_HEADER,
    JsonBody,
    NamedModel,
    get_context,
    get_named_model,
    get_runtime,
    require_key,
)
from tests.support.applications import application, send_to
from tests.support.contexts import context, receive_of, runtime_with, scope_of
from tests.support.models import classifier


class Asked(BaseModel):
    """A body."""

    size: int


routes = APIRouter()
AskedBody = Annotated[Asked, Depends(JsonBody(Asked))]


@routes.post("/asked")
async def post_asked(asked: AskedBody) -> int:
    """Return a field of the body."""
    return asked.size


@routes.get("/named/{name}")
async def get_version(model: NamedModel) -> int:
    """Return the version of a model."""
    return model.manifest.version


async def never() -> Message:
    """Fail if a body is read."""
    raise AssertionError("read")


async def post(
    receive: Receive, settings: Settings, headers: Mapping[str, str] = MappingProxyType({})
) -> tuple[int, Any]:
    """Post JSON to the test's route; return status and body."""
    app = application(routes, settings=settings)
    start, body = await send_to(app, "/asked", receive, {"content-type": "application/json", **headers})
    return start["status"], json.loads(body["body"])


SECRET = Settings(api_keys=(SecretStr("secret"),))


async def test_without_a_valid_key_no_body_is_read() -> None:
    for key in ("", "wrong"):
        status, problem = await post(never, SECRET, {"x-api-key": key})
        assert (status, problem["code"]) == (401, "unauthorized")
    assert await post(receive_of(b'{"size": 7}'), SECRET, {"x-api-key": "secret"}) == (200, 7)


async def test_application_may_replace_the_check_of_the_key() -> None:
    app = application(routes, settings=SECRET)
    app.dependency_overrides[require_key] = lambda: None
    start, _ = await send_to(app, "/asked", receive_of(b'{"size": 7}'), {"content-type": "application/json"})
    assert start["status"] == 200


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"content-length": "5"}, 413, "payload_too_large"),
        ({"content-type": "text/plain"}, 415, "unsupported_media_type"),
        ({"content-encoding": "br"}, 415, "unsupported_encoding"),
        ({"x-request-timeout-ms": "0"}, 422, "invalid_input"),
    ],
)
async def test_body_of_a_request_that_its_headers_reject_is_not_read(
    headers: dict[str, str], status: int, code: str
) -> None:
    found, problem = await post(never, Settings(max_body_bytes=4), headers)
    assert (found, problem["code"]) == (status, code)


async def test_json_body_is_validated() -> None:
    status, problem = await post(receive_of(b'{"size": "x"}'), Settings())
    assert (status, problem["errors"]) == (422, [{"loc": "size", "msg": "Input should be a valid integer"}])
    lenient = JsonBody(Asked, strict=None)
    asked = context(b'{"size": "7"}', headers={"content-type": "application/json"})
    assert await lenient(asked) == Asked(size=7)


def request_of(asked: RequestContext, **path_params: str) -> Request:
    return Request({**scope_of(), KEY: asked, "path_params": path_params})


async def test_runtime_is_that_of_the_application() -> None:
    asked = context()
    assert await get_runtime(request_of(asked)) is asked.runtime
    transport = httpx.ASGITransport(application(routes, settings=Settings(deadline_s=7)))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        assert (await client.get("/named/none")).status_code == 404


async def test_model_is_named_by_the_path() -> None:
    runtime = runtime_with(classifier(version=2), classifier(version=1))
    for path_params, version in (({}, 2), ({"version": "1"}, 1)):
        found = await get_named_model(request_of(context(), **path_params), runtime, "mood")
        assert found.manifest.version == version
    for name in ("mood", "none"):
        with pytest.raises(ModelNotFound):
            await get_named_model(request_of(context(), version="3"), runtime, name)
    runtime.close()


@pytest.mark.parametrize(
    ("header", "seconds"), [(None, 30.0), ("1", 0.001), (" 500 ", 0.5), ("30001", 30.0), ("999999999", 30.0)]
)
async def test_deadline_is_the_earlier_of_client_and_server(header: str | None, seconds: float) -> None:
    headers = {} if header is None else {TIMEOUT_HEADER: header}
    before = asyncio.get_running_loop().time()
    asked = context(headers=headers, settings=Settings(deadline_s=30))
    assert await get_context(request_of(asked)) is asked
    assert before + seconds <= asked.deadline <= asyncio.get_running_loop().time() + seconds
    assert isinstance(asked.deadline, ClientLimit) == (seconds < 30)


@pytest.mark.parametrize("header", ["0", "000", "-1", "1.5", "", "x", "1000000000", "²"])
async def test_error_names_the_wrong_deadline(header: str) -> None:
    asked = request_of(context(headers={TIMEOUT_HEADER: header}))
    with pytest.raises(InvalidInput) as caught:
        await get_context(asked)
    assert caught.value.errors == [("x-request-timeout-ms", "must be a positive number of milliseconds")]
