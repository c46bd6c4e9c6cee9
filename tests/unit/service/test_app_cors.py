"""CORS headers of responses, and preflight requests, of the application."""

import httpx
import pytest
from pydantic import SecretStr

from service.metrics import Metrics
from service.settings import Settings
from tests.support.applications import BROKEN, application
from tests.support.models import classifier, serving

PAGE, OTHER = "https://example.org", "http://localhost:3000"
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
EXPOSED = {"access-control-expose-headers": "*"}


async def ask(
    origins: tuple[str, ...],
    method: str = "GET",
    path: str = "/broken",
    *,
    keys: tuple[SecretStr, ...] = (),
    metrics: Metrics | None = None,
    headers: dict[str, str],
) -> httpx.Response:
    """The response of an application that allows these origins."""
    app = application(BROKEN, settings=Settings(cors_origins=origins, api_keys=keys), metrics=metrics)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.request(method, path, headers=headers)


def cors_headers(response: httpx.Response) -> dict[str, str]:
    """Return the headers that browsers use."""
    return {
        name: value for name, value in response.headers.items() if name.startswith("access-control-") or name == "vary"
    }


@pytest.mark.parametrize(
    ("origins", "origin", "expected"),
    [
        ((PAGE,), PAGE, {"vary": "Origin", "access-control-allow-origin": PAGE, **EXPOSED}),
        ((OTHER, PAGE), PAGE, {"vary": "Origin", "access-control-allow-origin": PAGE, **EXPOSED}),
        (("*",), PAGE, {"vary": "Origin", "access-control-allow-origin": "*", **EXPOSED}),
        ((PAGE,), OTHER, {"vary": "Origin", **EXPOSED}),
        ((PAGE,), PAGE + ".evil.org", {"vary": "Origin", **EXPOSED}),
        ((PAGE,), "null", {"vary": "Origin", **EXPOSED}),
        ((PAGE,), None, {"vary": "Origin"}),
        (("*",), None, {"vary": "Origin"}),
    ],
)
async def test_responses_list_the_allowed_origin(
    origins: tuple[str, ...], origin: str | None, expected: dict[str, str]
) -> None:
    headers = {} if origin is None else {"origin": origin}
    for path, status in (("/broken", 500), ("/none", 404), ("/docs", 200)):
        response = await ask(origins, path=path, headers=headers)
        assert (response.status_code, cors_headers(response)) == (status, expected)


async def test_preflight_is_answered_without_a_key() -> None:
    answer = await ask((PAGE,), "OPTIONS", keys=(SecretStr("secret"),), headers={"Origin": PAGE, **ASKS})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-headers"] == ASKS["Access-Control-Request-Headers"]
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST"
    assert "access-control-allow-credentials" not in answer.headers
    everybody = await ask(("*",), "OPTIONS", headers={"Origin": OTHER, **ASKS})
    assert (everybody.status_code, everybody.headers["access-control-allow-origin"]) == (200, "*")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Origin": OTHER, **ASKS}, "origin"),
        ({"Origin": PAGE, **ASKS, "Access-Control-Request-Method": "DELETE"}, "method"),
    ],
)
async def test_preflight_of_another_origin_or_method_is_rejected(headers: dict[str, str], reason: str) -> None:
    answer = await ask((PAGE,), "OPTIONS", headers=headers)
    assert (answer.status_code, answer.text) == (400, f"Disallowed CORS {reason}")
    assert answer.headers.get("access-control-allow-origin") in (None, PAGE)


async def test_preflights_have_a_request_id_and_are_counted() -> None:
    metrics = Metrics()

    def counted(code: int) -> float | None:
        labels = {"route": "unmatched", "method": "OPTIONS", "code": str(code)}
        return metrics.registry.get_sample_value("longdoc_http_requests_total", labels)

    for count, path in enumerate(("/v1/classify", "/secret"), 1):
        answer = await ask((PAGE,), "OPTIONS", path, metrics=metrics, headers={"Origin": PAGE, **ASKS})
        assert (answer.status_code, len(answer.headers["x-request-id"])) == (200, 32)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert counted(200) == count
    answer = await ask((PAGE,), "OPTIONS", metrics=metrics, headers={"X-Request-Id": "abc", "Origin": OTHER, **ASKS})
    assert (answer.status_code, answer.headers["x-request-id"], counted(400)) == (400, "abc", 1)


@pytest.mark.parametrize("headers", [{}, {"Origin": PAGE}, {"Access-Control-Request-Method": "POST"}])
async def test_other_options_requests_are_no_preflights(headers: dict[str, str]) -> None:
    answer = await ask((PAGE,), "OPTIONS", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


async def test_without_origins_nothing_is_added() -> None:
    for method, status in (("OPTIONS", 405), ("GET", 500)):
        answer = await ask((), method, headers={"Origin": PAGE, **ASKS})
        assert (answer.status_code, cors_headers(answer)) == (status, {})


async def test_rejection_before_the_body_is_read_has_cors_headers_too() -> None:
    async with serving(classifier(), settings=Settings(cors_origins=(PAGE,))) as client:
        client.engine.models["mood"].batcher.close()
        rejected = await client.post("/v1/classify", json={"inputs": "+"}, headers={"origin": PAGE})
    assert (rejected.status_code, rejected.headers["access-control-allow-origin"]) == (503, PAGE)
    assert rejected.headers["vary"] == "Origin"
