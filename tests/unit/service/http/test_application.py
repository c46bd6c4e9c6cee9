"""The layers around every request: id, key, limits, metrics, timing, errors."""

import asyncio
import gc
import json
import logging
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from service.errors import DeadlineExceeded
from service.http.application import Application
from service.metrics import Metrics
from service.settings import Settings
from service.sharing import CHUNK_BYTES
from service.wire.call import Call
from service.wire.responses import json_response
from service.wire.route import Route
from tests.support.applications import BROKEN, application
from tests.support.calls import receive_of
from tests.support.models import backend_of, classifier, serving
from tests.support.problems import check_problem


async def echo(call: Call) -> Response:
    """Return the body and the path parameters."""
    call.server_timing["echo"] = 0.25
    body = await call.body.read()
    return json_response({"body": body.decode(), **call.path_params})


async def wait(call: Call) -> Response:
    """Wait until the request is cancelled."""
    del call
    await asyncio.Event().wait()
    raise AssertionError


class FailsAfterStart(Response):
    """A response that fails after its start."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("fails after start")


async def fail_after_start(call: Call) -> Response:
    """Return a response that fails after its start."""
    del call
    return FailsAfterStart()


ECHO = Route(method="POST", path="/echo/{name}", handler=echo)


@asynccontextmanager
async def client_of(
    *routes: Route, settings: Settings | None = None, metrics: Metrics | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(
        application(*routes, settings=settings, metrics=metrics), raise_app_exceptions=False
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        yield client


async def send_to(app: Application, path: str, receive: Receive | None = None) -> list[Message]:
    """Post to a path and return the messages of the response."""
    sent = list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "http_version": "1.0", "method": "POST", "path": path, "query_string": b"", "headers": []}
    await app(scope, receive or receive_of(b"x"), send)
    return sent


def count(metrics: Metrics, route: str, method: str, code: int) -> float | None:
    """Return the number of responses with these labels."""
    labels = {"route": route, "method": method, "code": str(code)}
    return metrics.registry.get_sample_value("longdoc_http_requests_total", labels)


async def test_route_gets_its_path_parameters() -> None:
    async with client_of(ECHO) as client:
        response = await client.post("/echo/a", content=b"body")
    assert (response.status_code, response.json()) == (200, {"body": "body", "name": "a"})
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_server_timing_is_in_milliseconds() -> None:
    async with client_of(ECHO) as client:
        response = await client.post("/echo/a")
    stages = dict(stage.split(";dur=") for stage in response.headers["server-timing"].split(", "))
    assert list(stages) == ["echo", "total"]
    assert float(stages["echo"]) == 250
    assert float(stages["total"]) >= 0


@pytest.mark.parametrize(("given", "is_kept"), [("abc-1", True), ("a b", False), ("", False), ("x" * 129, False)])
async def test_safe_request_id_of_the_client_is_kept(given: str, is_kept: bool) -> None:
    async with client_of(ECHO) as client:
        response = await client.post("/echo/a", headers={"X-Request-Id": given})
    found = response.headers["x-request-id"]
    assert (found == given) == is_kept
    assert is_kept or len(found) == 32


async def test_internal_error_is_a_problem_with_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(BROKEN) as client:
        with caplog.at_level(logging.ERROR):
            response = await client.get("/broken", headers={"X-Request-Id": "abc"})
    problem = check_problem(response, 500, "internal")
    assert problem["request_id"] == "abc"
    assert "secret" not in response.text
    assert "secret cause" in caplog.text


async def test_responses_are_counted_by_route() -> None:
    metrics = Metrics()
    async with client_of(ECHO, BROKEN, metrics=metrics) as client:
        await client.post("/echo/a")
        await client.post("/echo/b")
        await client.get("/broken")
        await client.get("/nowhere")
        await client.request("SECRET", "/echo/a")

    assert count(metrics, "/echo/{name}", "POST", 200) == 2
    assert count(metrics, "/broken", "GET", 500) == 1
    assert count(metrics, "unmatched", "GET", 404) == 1
    assert count(metrics, "/echo/{name}", "other", 405) == 1


async def test_401_responses_are_counted_by_route() -> None:
    metrics = Metrics()
    async with client_of(ECHO, BROKEN, settings=Settings(api_keys=(SecretStr("secret"),)), metrics=metrics) as client:
        for method, path in (("POST", "/echo/a"), ("GET", "/broken"), ("GET", "/nowhere")):
            assert (await client.request(method, path)).status_code == 401
        assert (await client.get("/docs", headers={"x-api-key": "secret"})).status_code == 200

    assert count(metrics, "/echo/{name}", "POST", 401) == 1
    assert count(metrics, "/broken", "GET", 401) == 1
    assert count(metrics, "unmatched", "GET", 401) == 1
    assert count(metrics, "/docs", "GET", 200) == 1


async def test_key_is_checked_before_the_route_is_called() -> None:
    async with client_of(BROKEN, settings=Settings(api_keys=(SecretStr("secret"),))) as client:
        stranger = await client.get("/broken")
        known = await client.get("/broken", headers={"x-api-key": "secret"})
    check_problem(stranger, 401, "unauthorized")
    assert stranger.headers["www-authenticate"] == "Bearer"
    assert known.status_code == 500


async def test_key_may_be_required_by_one_method_of_a_path_only() -> None:
    shown = Route(method="GET", path="/both", handler=echo, needs_key=False, answers_head=True)
    asked = Route(method="POST", path="/both", handler=echo)
    async with client_of(shown, asked, settings=Settings(api_keys=(SecretStr("secret"),))) as client:
        statuses = [(await client.request(method, "/both")).status_code for method in ("GET", "HEAD", "POST", "PUT")]
        known = await client.post("/both", headers={"x-api-key": "secret"})
    assert (statuses, known.status_code) == ([200, 200, 401, 401], 200)


async def test_body_over_the_limit_is_rejected() -> None:
    async with client_of(ECHO, settings=Settings(max_body_bytes=4)) as client:
        assert (await client.post("/echo/a", content=b"1234")).status_code == 200
        check_problem(await client.post("/echo/a", content=b"12345"), 413, "payload_too_large")


async def test_finished_bodies_are_no_longer_held() -> None:
    async with client_of(ECHO, settings=Settings(max_held_bytes=6)) as client:
        for _ in range(3):
            assert (await client.post("/echo/a", content=b"12345")).status_code == 200


@pytest.mark.parametrize("is_late", [False, True])
async def test_finished_request_is_freed_at_once(is_late: bool) -> None:
    """In a reference cycle, its body would stay until the garbage collector runs."""
    calls = list[weakref.ref[Call]]()

    async def handle(call: Call) -> Response:
        calls.append(weakref.ref(call))
        await call.body.read()
        if is_late:
            raise DeadlineExceeded("too late")
        return json_response({})

    app = application(Route(method="POST", path="/handle", handler=handle))
    gc.disable()
    try:
        start, _ = await send_to(app, "/handle")
        assert [call() for call in calls] == [None]
    finally:
        gc.enable()
    assert start["status"] == (504 if is_late else 200)


async def test_disconnect_is_counted_and_gets_no_response() -> None:
    metrics = Metrics()
    app = application(ECHO, metrics=metrics)
    assert await send_to(app, "/echo/a", receive_of()) == []
    assert count(metrics, "/echo/{name}", "POST", 499) == 1


async def test_request_cancelled_by_the_server_gets_503() -> None:
    app = application(Route(method="POST", path="/wait", handler=wait))
    task = asyncio.create_task(send_to(app, "/wait"))
    await asyncio.sleep(0)
    task.cancel()
    start, body = await task
    assert (start["status"], json.loads(body["body"])["code"]) == (503, "shutting_down")


async def test_response_that_fails_after_its_start_is_aborted() -> None:
    """If it ended normally, the client would take the part for the whole."""
    app = application(Route(method="POST", path="/fails-after-start", handler=fail_after_start))
    with pytest.raises(RuntimeError, match="fails after start"):
        await send_to(app, "/fails-after-start")


async def long_parts(call: Call) -> Response:
    """Return a response whose parts are longer than the pieces that are sent."""
    del call

    async def parts() -> AsyncIterator[bytes]:
        for letter in (b"a", b"b", b"c"):
            yield letter * (2 * CHUNK_BYTES + 1)

    return StreamingResponse(parts())


async def test_long_parts_of_a_response_are_sent_completely_in_pieces() -> None:
    async with client_of(Route(method="POST", path="/long", handler=long_parts)) as client:
        answer = await client.post("/long")
    assert answer.content == b"".join([letter * (2 * CHUNK_BYTES + 1) for letter in (b"a", b"b", b"c")])
    route = Route(method="POST", path="/long", handler=long_parts)
    sent = await send_to(application(route), "/long", receive_of(b"x", leaves=False))
    parts = [message for message in sent if "body" in message]
    assert max(len(part["body"]) for part in parts) == CHUNK_BYTES
    assert [part["more_body"] for part in parts] == [True] * 9 + [False]


async def test_draining_server_closes_its_connections() -> None:
    async with serving(classifier()) as client:
        before = await client.post("/v1/classify", json={"inputs": "+"})
        client.engine.begin_drain()
        after = await client.post("/v1/classify", json={"inputs": "+"})
    assert ("connection" in before.headers, after.headers["connection"]) == (False, "close")
    assert (before.status_code, after.status_code) == (200, 200)


async def test_early_rejection_equals_that_of_the_route() -> None:
    model = classifier()
    fields = [(b"x-request-id", b"abc"), (b"x-api-key", b"none")]
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/v1/classify",
        "headers": fields,
        "query_string": b"",
    }
    async with serving(model) as client:
        assert client.app.rejection(scope, lambda: None) is None
        client.engine.models["mood"].batcher.close()
        refused = client.app.rejection(scope, lambda: None)
        counted = client.count("longdoc_http_requests_total", route="/v1/classify", method="POST", code="503")
    assert refused is not None
    headers = dict(refused.fields)
    problem = json.loads(refused.body)
    assert (refused.status, problem["code"], problem["request_id"], counted) == (503, "shutting_down", "abc", 1)
    assert (headers[b"x-request-id"], headers[b"retry-after"]) == (b"abc", b"1")
    assert int(headers[b"content-length"]) == len(refused.body)
    assert backend_of(model).batches == []
