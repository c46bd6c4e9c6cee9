"""Requests that are rejected before they are routed."""

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from service.errors import CrossOrigin
from service.http.guard import GuardMiddleware, check_host, check_origin
from service.metrics import Metrics
from service.settings import Settings
from service.wire.context import KEY
from tests.support.applications import BROKEN, application
from tests.support.contexts import context, receive_of, scope_of
from tests.support.problems import check_problem

OTHER, ALLOWED = "https://other.example", "https://allowed.example"
SETTINGS = Settings(cors_origins=(ALLOWED,))


async def ask(method: str, path: str, *headers: tuple[str, str], metrics: Metrics | None = None) -> httpx.Response:
    app = application(BROKEN, settings=SETTINGS, metrics=metrics)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.send(client.build_request(method, path, headers=list(headers)))


@pytest.mark.parametrize("path", ["/broken", "/none"])
async def test_request_with_several_hosts_is_rejected_before_it_is_routed(path: str) -> None:
    metrics = Metrics()
    response = await ask("GET", path, ("host", "a"), ("host", "b"), metrics=metrics)
    check_problem(response, 400, "bad_request")
    labels = {"route": "unmatched", "method": "GET", "code": "400"}
    assert metrics.registry.get_sample_value("longdoc_http_requests_total", labels) == 1


async def test_format_of_the_error_is_that_of_the_protocol() -> None:
    response = await ask("GET", "/v2/none", ("host", "a b"))
    assert (response.status_code, set(response.json())) == (400, {"error"})


@pytest.mark.parametrize(("version", "status"), [("0.9", 505), ("1.0", 200), ("1.1", 200), ("2", 200), ("2.0", 505)])
async def test_unknown_version_of_http_is_rejected(version: str, status: int) -> None:
    status_of = list[int]()

    async def send(message: Message) -> None:
        status_of.append(message.get("status", 0))

    scope = {**scope_of({"host": "x"}), "method": "GET", "path": "/v2/health/live", "http_version": version}
    await application()(scope, receive_of(), send)
    assert status_of[0] == status


@pytest.mark.parametrize("coding", ["gzip, chunked", "GZIP,chunked", "identity, chunked"])
async def test_unknown_transfer_coding_is_rejected(coding: str) -> None:
    response = await ask("POST", "/none", ("host", "x"), ("transfer-encoding", coding))
    check_problem(response, 501, "not_implemented")
    assert response.headers["connection"] == "close"
    assert (await ask("POST", "/none", ("host", "x"), ("transfer-encoding", "Chunked"))).status_code == 404


@pytest.mark.parametrize("path", ["/v1/classify", "/none"])
async def test_page_of_another_origin_cannot_post(path: str) -> None:
    check_problem(await ask("POST", path, ("host", "x"), ("origin", OTHER)), 403, "cross_origin")
    for origin in (ALLOWED, "http://x"):
        assert (await ask("POST", path, ("host", "x"), ("origin", origin))).status_code in (404, 415)


async def test_page_of_another_origin_may_read_what_everybody_may() -> None:
    """Browsers then keep the response from the page."""
    assert (await ask("GET", "/docs", ("host", "x"), ("origin", OTHER))).status_code == 200


async def test_body_of_a_rejected_request_is_not_read() -> None:
    async def never() -> Message:
        raise AssertionError("read")

    async def send(message: Message) -> None:
        raise AssertionError(message)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError(scope, receive, send)

    headers = {"host": "x", "origin": OTHER}
    scope = {**scope_of(headers), "http_version": "1.1", KEY: context(headers=headers)}
    with pytest.raises(CrossOrigin):
        await GuardMiddleware(app, [])(scope, never, send)


async def test_other_events_of_the_server_pass() -> None:
    passed = list[str]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        passed.append(scope["type"])

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        del message

    await GuardMiddleware(app, [])({"type": "lifespan"}, receive, send)
    assert passed == ["lifespan"]


def check(*hosts: str, version: str = "1.1") -> None:
    check_host({"http_version": version, "headers": [(b"host", host.encode("latin-1")) for host in hosts]})


@pytest.mark.parametrize("host", ["x", "127.0.0.1:8000", "[::1]:8000", "a-b.example", ""])
def test_one_host_is_accepted(host: str) -> None:
    check(host)


@pytest.mark.parametrize("host", ["a b", "a/b", "user@host", "a?b", "é", "a#b"])
def test_other_characters_are_rejected(host: str) -> None:
    with pytest.raises(HTTPException) as caught:
        check(host)
    assert caught.value.status_code == 400


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_several_hosts_are_rejected(version: str) -> None:
    with pytest.raises(HTTPException):
        check("a", "a", version=version)


def test_only_http_1_1_needs_a_host() -> None:
    check(version="1.0")
    with pytest.raises(HTTPException):
        check()


HERE = "http://127.0.0.1:8000"
HOST = {"host": "127.0.0.1:8000"}
CROSS = {"sec-fetch-site": "cross-site"}


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"origin": HERE}, {"origin": HERE, "sec-fetch-site": "same-origin"},
        {"origin": OTHER, "sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}, {"origin": ALLOWED},
        {"origin": ALLOWED, **CROSS}, {"origin": OTHER, "x-forwarded-host": "other.example"},
        {"origin": OTHER, "x-forwarded-host": "other.example, inner.example"},
    ],
)  # fmt: skip
def test_clients_same_origin_pages_and_allowed_origins_are_accepted(headers: dict[str, str]) -> None:
    check_origin({**HOST, **headers}, [ALLOWED])
    check_origin({**HOST, **headers}, ["*"])


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": OTHER}, {"origin": "null"}, {"origin": "null", "host": ""},
        {"origin": "null", "x-forwarded-host": ""},
        {"origin": OTHER, "x-forwarded-host": "inner.example, other.example"},
        {"origin": OTHER, "x-forwarded-host": "other.example", **CROSS}, {"origin": ""}, {"origin": "http://["},
        {"origin": OTHER, **CROSS}, {"origin": HERE, **CROSS}, CROSS, {"origin": OTHER, "sec-fetch-site": "same-site"},
    ],
)  # fmt: skip
def test_pages_of_other_origins_are_rejected(headers: dict[str, str]) -> None:
    with pytest.raises(CrossOrigin, match="cors_origins"):
        check_origin({**HOST, **headers}, [ALLOWED])
    check_origin({**HOST, **headers}, ["*"])
