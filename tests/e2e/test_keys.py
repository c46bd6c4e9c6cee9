"""API keys: which routes need one, how it is sent, and that it stays secret."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.problems import check_problem
from tests.support.refusals import check_refusal, run
from tests.support.server import Server
from tests.support.wire import Wire, request

FIRST, SECOND = "first-secret-key", "second secret with spaces"
TEXT = {"content-type": "text/plain"}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--api-keys", f"{FIRST}, {SECOND}", "--default-forecaster", "ettm2", "--drain-delay-s", "0")
    with Server(tmp_path_factory.mktemp("locked") / "log", *flags) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture
def anonymous(locked: Server) -> Iterator[httpx.Client]:
    """A client without a key."""
    with locked.client() as client:
        yield client
    for key in (FIRST, SECOND):
        assert key not in locked.text()
    assert "Traceback" not in locked.text()


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {FIRST}"},
        {"authorization": f"bearer {FIRST}"},
        {"authorization": f"BEARER   {SECOND}"},
        {"authorization": f"Bearer {SECOND}"},
        {"x-api-key": FIRST},
        {"x-api-key": SECOND},
        {"x-api-key": FIRST, "authorization": "Basic dXNlcjpwYXNz"},
    ],
)
def test_valid_key_is_accepted(anonymous: httpx.Client, headers: dict[str, str]) -> None:
    for kind in ("text/plain", "application/x-ndjson"):
        body = b'{"text": "x"}\n'
        answer = anonymous.post("/v1/classify", content=body, headers={"content-type": kind, **headers})
        assert answer.status_code == 200
    assert anonymous.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": FIRST},
        {"authorization": f"Basic {FIRST}"},
        {"authorization": f"Bearer {FIRST[:-1]}"},
        {"authorization": f"Bearer {FIRST}x"},
        {"authorization": f"Bearer {FIRST.upper()}"},
        {"authorization": f"Bearer {FIRST}, {SECOND}"},
        {"x-api-key": ""},
        {"x-api-key": f"Bearer {FIRST}"},
        {"x-api-key": f"{FIRST},{SECOND}"},
        {"cookie": f"x-api-key={FIRST}"},
    ],
)
def test_missing_or_wrong_key_is_rejected(anonymous: httpx.Client, headers: dict[str, str]) -> None:
    refused = anonymous.post("/v1/classify", content=b"x", headers={**TEXT, **headers})
    check_problem(refused, 401, "unauthorized")
    assert refused.headers["www-authenticate"].split()[0] == "Bearer"
    assert FIRST not in refused.text


@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
@pytest.mark.parametrize("value", ["\xe9", "Bearer \xff\xfe", "Bearer schl\xfcssel", "\x80" * 1000])
def test_key_with_invalid_characters_is_rejected(
    locked: Server, anonymous: httpx.Client, name: str, value: str
) -> None:
    del anonymous
    with Wire(locked.url) as wire:
        wire.send(request(**{name: value}))  # type: ignore[arg-type]  # a header
        assert wire.answer().status == 401


@pytest.mark.parametrize(
    ("path", "body", "read"),
    [
        ("/models", None, "data"),
        ("/embeddings", {"model": "aan", "input": ["on parsing"], "encoding_format": "base64"}, "data"),
        ("/rerank", {"model": "aan", "query": "on parsing", "documents": ["of speech"]}, "results"),
    ],
)
def test_clients_with_the_base_url_v1_need_a_key(
    anonymous: httpx.Client, path: str, body: dict[str, object] | None, read: str
) -> None:
    """As OpenAI's client and those of Infinity and Jina send it."""
    anonymous.base_url = f"{anonymous.base_url}/v1"
    method = "GET" if body is None else "POST"
    for headers in ({}, {"authorization": "Bearer wrong"}):
        refused = anonymous.request(method, path, json=body, headers=headers)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert "send a valid key" in refused.text
    answer = anonymous.request(method, path, json=body, headers={"authorization": f"Bearer {FIRST}"})
    assert (answer.status_code, bool(answer.json()[read])) == (200, True)


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/metrics"])
def test_health_and_metrics_stay_open(anonymous: httpx.Client, path: str) -> None:
    assert anonymous.get(path).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/models", "/v1/models/imdb-s3", "/v2/models/imdb-s3/ready"),
        *("/v1/timeseries/models", "/v2", "/v2/", "/v1/models?/metrics", "/info"),
    ],
)
def test_all_other_routes_need_a_key(locked: Server, anonymous: httpx.Client, path: str) -> None:
    del anonymous
    with Wire(locked.url) as wire:
        assert wire.send(request(path, None, "GET")).answer().status == 401


@pytest.mark.parametrize(
    "path",
    [
        *("/nothing", "//metrics", "/Metrics", "/v1/classify#/metrics"),
        *("/healthxyz", "/metricsfoo", "/pingpong", "/metrics/", "/v2/health/", "/v2/health/live/x"),
        *("/metrics/../v1/classify", "/metrics/%2e%2e/v1/classify", "/metrics%2f..%2fv1/classify"),
        *("/health/../v1/models", "/v2/health/../../v1/classify", "/metrics;/v1/classify", "/metrics\\..\\v1/classify"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_paths_similar_to_open_ones_do_not_bypass_the_key(
    locked: Server, anonymous: httpx.Client, path: str, method: str
) -> None:
    del anonymous
    with Wire(locked.url) as wire:
        assert wire.send(request(path, method=method)).answer().status in (401, 404, 405)


@pytest.mark.parametrize("path", ["/", "/docs", "/redoc", "/openapi.json", "/static-offline-docs/swagger-ui.css"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_docs_pages_are_open(anonymous: httpx.Client, method: str, path: str) -> None:
    """The browser loads the page before the user can enter a key."""
    answer = anonymous.request(method, path, follow_redirects=True)
    assert answer.status_code == 200
    assert bool(answer.content) is (method == "GET")


def test_files_of_the_page_are_open(anonymous: httpx.Client) -> None:
    files = re.findall(r'(?:src|href)="\./([^"]+)"', anonymous.get("/").text)
    assert len(files) == 3
    assert [anonymous.get(f"/{file}").status_code for file in files] == [200, 200, 200]
    assert anonymous.get("/assets/../v1/models").status_code == 401


def test_401_has_the_shape_of_the_protocol(anonymous: httpx.Client) -> None:
    refused = anonymous.get("/v1/timeseries/models")
    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "unauthorized"


def test_upload_without_a_key_is_not_read(locked: Server, anonymous: httpx.Client) -> None:
    """The client gets 401 before it has sent the body."""
    del anonymous
    for kind in ("text/plain", "application/x-ndjson"):
        with Wire(locked.url) as wire:
            wire.send(request(body=b"", content_type=kind, content_length="1000000", expect="100-continue"))
            assert wire.answer().status == 401


def test_keys_are_read_from_the_environment(tmp_path: Path) -> None:
    with Server(tmp_path / "log", variables={"LONGDOC_API_KEYS": f"{FIRST},{SECOND}"}) as server:
        codes = [
            server.get("/v1/models", headers={"x-api-key": key}).status_code
            for key in (FIRST, SECOND, f"{FIRST},{SECOND}")
        ]
        assert codes == [200, 200, 401]


def test_error_about_another_setting_does_not_show_the_key() -> None:
    refused = run("--port", "70000", LONGDOC_API_KEYS=FIRST)
    check_refusal(refused, "port")
    assert FIRST not in refused.stderr


def test_openapi_document_describes_the_keys(anonymous: httpx.Client) -> None:
    document = anonymous.get("/openapi.json", headers={"x-api-key": FIRST}).json()
    schemes = document["components"]["securitySchemes"]
    assert {name: scheme["type"] for name, scheme in schemes.items()} == {"bearer": "http", "header": "apiKey"}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            is_open = "security" not in operation
            assert is_open or operation["security"] == [{"bearer": []}, {"header": []}]
            answer = anonymous.request(method, path.replace("{name}", "none"))
            assert (answer.status_code == 401) == (not is_open), (method, path)


def test_openapi_document_without_keys_has_no_security(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    assert not any("security" in operation for item in document["paths"].values() for operation in item.values())
    assert "securitySchemes" not in document.get("components", {})
