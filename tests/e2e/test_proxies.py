"""The configurations of proxies in `deploy/proxy`, with the real programs."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from benchmarks.lib.haproxy import haproxy
from tests.support.problems import check_problem
from tests.support.proxies import FILES, running
from tests.support.server import ControlledServer, Server
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.wire import Wire, request

pytestmark = pytest.mark.proxy

TEXT = {"content-type": "text/plain"}
HOST_OF_NGINX = "proxy_set_header Host $http_host;"
PREFIXES = ("", "/longdoc")
LIMIT = 8 * 2**20
"""Bytes of the longest body that the proxies accept."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that accepts longer bodies than the proxies."""
    limits = ("--max-body-bytes", str(4 * LIMIT), "--max-document-bytes", str(4 * LIMIT))
    with Server(tmp_path_factory.mktemp("service") / "log", "--models", "imdb-s3", *limits) as server:
        yield server


@pytest.fixture(scope="module", params=FILES)
def url(request: pytest.FixtureRequest, service: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a proxy."""
    with running(request.param, service.url, tmp_path_factory.mktemp(request.param)) as url:
        yield url


def post_from(origin: str, url: str, path: str, **headers: str) -> httpx.Response:
    """Post as a browser does for a page that it has loaded by plain HTTP: it does not send `Sec-Fetch-Site`."""
    headers = {**TEXT, "origin": origin, **headers}
    return httpx.post(f"{url}{path}", content=b"A delight.", headers=headers, verify=False, timeout=PATIENCE_S)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_page_can_send_requests_and_pages_of_other_origins_cannot(url: str, prefix: str) -> None:
    own = post_from(url, url, f"{prefix}/v1/classify")
    assert (own.status_code, own.json()["model"]) == (200, "imdb-s3")
    check_problem(post_from("http://other.example", url, f"{prefix}/v1/classify"), 403, "cross_origin")


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("path", ["/", "/docs", "/redoc"])
def test_pages_load_their_files_below_the_prefix(url: str, prefix: str, path: str) -> None:
    with httpx.Client(verify=False, timeout=PATIENCE_S) as client:
        address = f"{url}{prefix}{path}"
        files = re.findall(r'(?:src|href|spec-url)="([^"#]+)"', client.get(address).text)
        assert len(files) >= 3
        for file in files:
            found = client.get(urljoin(address, file))
            assert (found.status_code, bool(found.content)) == (200, True), file
            assert str(found.url).startswith(f"{url}{prefix}/")


@pytest.mark.parametrize("url", ["nginx", "haproxy"], indirect=True)
def test_body_beyond_the_limit_does_not_reach_the_service(url: str) -> None:
    """The service would accept it. Each of its answers has a request id."""
    with httpx.Client(verify=False, timeout=PATIENCE_S) as client:
        longest = client.post(f"{url}/v1/classify", content=b"x" * LIMIT, headers={"content-type": "image/png"})
        longer = client.post(f"{url}/v1/classify", content=b"x" * (LIMIT + 1), headers=TEXT)
    assert (longest.status_code, "x-request-id" in longest.headers) == (415, True)
    assert (longer.status_code, "x-request-id" in longer.headers) == (413, False)


@pytest.mark.parametrize("url", ["nginx", "haproxy"], indirect=True)
def test_answers_come_while_an_upload_is_sent(url: str) -> None:
    """Caddy reads an upload to its end first, except over HTTP/2."""

    def chunk(text: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(text), text)

    with Wire(url) as wire:
        head = request(body=None, content_type="application/x-ndjson", transfer_encoding="chunked", host=url[8:])
        wire.send(head, chunk(b'{"id": 1, "text": "A delight."}\n'))
        assert wire.head()[0] == 200
        answers = wire.chunks()
        assert json.loads(next(answers))["id"] == 1
        wire.send(chunk(b'{"id": 2, "text": "Dull."}\n'), chunk(b""))
        assert json.loads(b"".join(answers))["id"] == 2


@pytest.mark.parametrize(
    ("name", "former", "lower"),
    [
        ("nginx", "zone=requests burst=100 nodelay", "zone=requests"),
        ("nginx", "limit_conn connections 32;", "limit_conn connections 1;"),
        ("haproxy", "sc0_http_req_rate gt 500", "sc0_http_req_rate gt 5"),
    ],
)
def test_client_beyond_its_limit_gets_429_that_says_when_to_retry(
    name: str, former: str, lower: str, service: Server, tmp_path: Path
) -> None:
    def change(text: str) -> str:
        assert former in text
        return text.replace(former, lower)

    with running(name, service.url, tmp_path, change) as url, Wire(url) as wire:
        wire.send(request(body=None, content_length="1", host=url[8:]))  # a connection with an open request
        refused = [httpx.get(f"{url}/v1/models", verify=False, timeout=PATIENCE_S) for _ in range(8)][-1]
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert (refused.headers["content-type"], refused.json()["code"]) == ("application/problem+json", "overloaded")


def without(line: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert line in text
        return text.replace(line, "")

    return change


def test_default_of_nginx_needs_the_name_that_the_client_asked_for(service: Server, tmp_path: Path) -> None:
    """It sends the address of the service as `Host`."""
    with running("nginx", service.url, tmp_path, without(HOST_OF_NGINX)) as url:
        check_problem(post_from(url, url, "/v1/classify"), 403, "cross_origin")
        host = url.removeprefix("https://")
        assert post_from(url, url, "/v1/classify", **{"x-forwarded-host": host}).status_code == 200


@pytest.mark.parametrize(("size", "former"), [(100, 128), (20_000, 32)])
def test_balancer_refuses_what_exceeds_its_limit(
    size: int, former: int, start_controlled: Callable[..., ControlledServer]
) -> None:
    """A longer request than any that is limited, and one whose body has not arrived, take no place."""
    server, limit, body = start_controlled("--models", "imdb-s3", "--drain-delay-s", "0"), 2, b"x" * size

    def lower(text: str) -> str:
        assert f"maxconn {former}\n" in text
        return text.replace(f"maxconn {former}\n", f"maxconn {limit}\n")

    with ExitStack() as stack:
        url = stack.enter_context(haproxy("haproxy", [server.url], lower))
        slow, *others = wires = [stack.enter_context(Wire(url)) for _ in range(2 + limit)]
        with server.held():
            slow.send(request(body=b"", content_length=str(size)))
            others[0].send(request(body=b"x" * 100_000))
            for wire in others[1:]:
                wire.send(request(body=body))
            server.wait_for(len(others), "longdoc_requests_in_flight")
            refused = httpx.post(f"{url}/v1/classify", content=body, headers=TEXT, timeout=PATIENCE_S)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert (refused.json()["code"], "x-request-id" in refused.headers) == ("overloaded", False)
        slow.send(body)
        assert [wire.answer().status for wire in wires] == [200] * len(wires)
        assert server.metric("longdoc_requests_rejected_total") == 0
        assert server.stop() == 0
        wait_until(lambda: httpx.post(f"{url}/v1/classify", content=b"x", headers=TEXT).status_code == 503)
