"""Cross-origin requests of browsers to a real server: preflights, responses and errors."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from artifact.cores import cpu_count
from service.__main__ import main
from tests.support.refusals import check_last_line
from tests.support.server import ControlledServer, Server

PAGE, SECOND, STRANGER = "https://example.org", "http://localhost:3000", "https://evil.example"
KEY = "sesame"
ASKS = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-request-timeout-ms",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--models", "imdb-s3", "--cors-origins", f"{PAGE}, {SECOND.upper()}", "--api-keys", KEY)
    with Server(tmp_path_factory.mktemp("shared") / "log", *flags, "--drain-delay-s", "0") as server:
        yield server
        assert server.stop() == 0


@pytest.fixture
def browser(shared: Server) -> Iterator[httpx.Client]:
    with shared.client() as client:
        yield client
    assert "Traceback" not in shared.text()


@pytest.mark.parametrize("origin", [PAGE, SECOND])
def test_page_asks_first_and_then_reads_the_answer(browser: httpx.Client, shared: Server, origin: str) -> None:
    labels = {"route": "unmatched", "method": "OPTIONS", "code": "200"}
    before = shared.metric("longdoc_http_requests_total", **labels)
    preflight = browser.options("/v1/classify", headers={"origin": origin, "x-request-id": "abc", **ASKS})
    assert shared.metric("longdoc_http_requests_total", **labels) == before + 1
    assert (preflight.status_code, preflight.headers["x-request-id"]) == (200, "abc")
    assert preflight.headers["access-control-allow-origin"] == origin
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert preflight.headers["access-control-allow-headers"] == ASKS["access-control-request-headers"]
    headers = {"origin": origin, "authorization": f"Bearer {KEY}"}
    for body in ({"json": {"inputs": "a"}}, {"content": '{"text":"a"}\n'}):
        kind = {} if "json" in body else {"content-type": "application/x-ndjson"}
        answer = browser.post("/v1/classify", headers={**headers, **kind}, **body)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == origin
        assert (answer.headers["access-control-expose-headers"], answer.headers["vary"]) == ("*", "Origin")
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/classify", 401),
        ("GET", "/v1/nothing", 404),
        ("DELETE", "/metrics", 405),
        ("POST", "/predict", 401),
        ("GET", "/health", 200),
    ],
)
def test_page_of_an_allowed_origin_reads_errors(browser: httpx.Client, method: str, path: str, status: int) -> None:
    answer = browser.request(method, path, headers={"origin": PAGE})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, PAGE)


@pytest.mark.parametrize("origin", [STRANGER, "null", PAGE + ".evil.example", PAGE.replace("https", "http"), "", "*"])
def test_other_origins_get_no_cors_headers(browser: httpx.Client, origin: str) -> None:
    assert browser.options("/v1/classify", headers={"origin": origin, **ASKS}).status_code == 400
    answer = browser.get("/health", headers={"origin": origin})
    assert (answer.status_code, answer.headers["vary"]) == (200, "Origin")
    assert "access-control-allow-origin" not in answer.headers


def test_asterisk_allows_all_origins(start: Callable[..., Server]) -> None:
    server = start("--cors-origins", "*", "--drain-delay-s", "0")
    for origin in (PAGE, STRANGER, "null"):
        answer = server.get("/health", headers={"origin": origin})
        assert answer.headers["access-control-allow-origin"] == "*"


def test_page_of_an_allowed_origin_reads_rejection_by_a_full_queue(
    start_controlled: Callable[..., ControlledServer],
) -> None:
    server = start_controlled("--cors-origins", PAGE, "--drain-delay-s", "0", "--max-queue-rows", "1")
    page = {"origin": PAGE}
    with server.held(), server.client() as client, ThreadPoolExecutor(cpu_count() + 1) as pool:
        post = partial(client.post, "/v1/classify", json={"inputs": "a"}, headers=page)
        running = []
        for batches in range(1, cpu_count() + 1):
            running.append(pool.submit(post))
            server.wait_for_batches(batches)
        running.append(pool.submit(post))
        server.wait_for(1, "longdoc_queue_depth")
        refused = post()
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (429, PAGE)
        assert refused.headers["retry-after"]
        server.release()
        assert [request.result().status_code for request in running] == [200] * len(running)


def test_no_cors_headers_are_sent_without_the_setting(client: httpx.Client) -> None:
    answer = client.get("/health", headers={"origin": PAGE})
    preflight = client.options("/v1/classify", headers={"origin": PAGE, **ASKS})
    assert (answer.status_code, preflight.status_code) == (200, 405)
    for headers in (answer.headers, preflight.headers):
        assert not [name for name in headers if name.startswith("access-control") or name == "vary"]


@pytest.mark.parametrize("origins", ["example.org", "https://example.org/", "https://*.example.org", "", f"{PAGE},"])
def test_invalid_origin_is_refused_at_start(origins: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cors-origins", origins]) == 2
    check_last_line(capsys.readouterr().err, "cors_origins", "https://example.org")


def test_cross_site_requests_without_preflight_are_rejected(server: Server) -> None:
    """A browser sends `text/plain` to any address without a preflight."""
    for path, body in (
        ("/v1/classify", b"A film to see twice."),
        ("/v2/repository/index", b"{}"),
        ("/v2/repository/models/imdb-s3/unload", b"{}"),
    ):
        headers = {"content-type": "text/plain", "origin": "https://other.example", "sec-fetch-site": "cross-site"}
        assert server.post(path, content=body, headers=headers).status_code == 403
    own = {"content-type": "text/plain", "origin": server.url, "sec-fetch-site": "same-origin"}
    assert server.post("/v1/classify", content=b"A film to see twice.", headers=own).status_code == 200
