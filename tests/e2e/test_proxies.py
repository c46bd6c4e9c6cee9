"""The configurations of proxies in `deploy/proxy`, with the real programs."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from tests.support.problems import check_problem
from tests.support.proxies import FILES, running
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

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
