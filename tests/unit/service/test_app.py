"""The FastAPI application: routes, methods, keys, document, lifespan, in an application of somebody else."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from fastapi.routing import iter_route_contexts
from fastapi.security import HTTPBasic
from fastapi.testclient import TestClient
from pydantic import BaseModel, SecretStr
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from artifact.errors import BadExport
from artifact.loading import LoadedModel
from service.app import create_app, mount
from service.engine import loading
from service.errors import PayloadTooLarge
from service.metrics import Metrics
from service.runtime import Runtime
from service.settings import Settings
from tests.support.applications import BROKEN, application, send_to
from tests.support.contexts import receive_of, runtime_with
from tests.support.models import classifier, serving
from tests.support.problems import check_problem

SECRET = Settings(api_keys=(SecretStr("secret"),))
KEY = {"x-api-key": "secret"}
routes = APIRouter()


@routes.head("/it")
@routes.get("/it")
@routes.post("/it")
async def get_it() -> dict[str, str]:
    """Show it."""
    return {"it": "/it"}


@routes.get("/other")
async def get_other() -> None:
    """Show nothing."""


@routes.get("/them/{name}")
async def get_them(name: str) -> str:
    """Show a variable of the path."""
    return name


@routes.post("/them/{name}:do")
async def post_them(name: str) -> str:
    """Do something."""
    return name


def client_of(settings: Settings | None = None, root_path: str = "") -> httpx.AsyncClient:
    app = application(routes, BROKEN, settings=settings)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, root_path=root_path)
    return httpx.AsyncClient(transport=transport, base_url="http://x")


async def test_routes_below_a_root_path() -> None:
    async with client_of(root_path="/text") as client:
        assert (await client.get("/text/it")).json() == {"it": "/it"}
        assert (await client.put("/text/it")).headers["allow"] == "GET, HEAD, POST"
        assert check_problem(await client.get("/text/none"), 404, "not_found")["instance"] == "/none"


@pytest.mark.parametrize("path", ["/text", "/text/"])
async def test_wrong_method_of_the_root_gets_the_error_of_its_clients(path: str) -> None:
    async with client_of(root_path="/text") as client:
        found = await client.delete(path)
    assert (found.status_code, found.headers["allow"]) == (405, "GET, HEAD, POST")
    assert set(found.json()) == {"error", "error_type"}


async def test_root_path_needs_no_slash() -> None:
    async with client_of(SECRET, root_path="/text") as client:
        stranger = await client.post("/text", json={"inputs": "a"})
        known = await client.post("/text", json={"inputs": []}, headers=KEY)
    assert (stranger.status_code, known.status_code) == (401, 422)
    assert set(known.json()) == {"error", "error_type"}


async def test_variables_of_the_path_are_decoded_and_may_contain_a_colon() -> None:
    async with client_of() as client:
        assert (await client.get("/them/a%20b")).json() == "a b"
        assert (await client.get("/them/a:b")).json() == "a:b"
        assert (await client.post("/them/a:b:do")).json() == "a:b"
        for method, path in (("GET", "/them/"), ("GET", "/them/a/b"), ("GET", "/It")):
            check_problem(await client.request(method, path), 404, "not_found")


async def test_405_lists_the_allowed_methods() -> None:
    async with client_of() as client:
        both = await client.put("/it")
        one = await client.head("/other")
        model, verb = await client.get("/v1/models/a:predict"), await client.put("/v1/models/a")
    check_problem(both, 405, "method_not_allowed")
    assert both.headers["allow"] == "GET, HEAD, POST"
    assert (one.status_code, one.headers["allow"]) == (405, "GET")
    assert (model.status_code, model.headers["allow"]) == (405, "POST")
    assert (verb.status_code, verb.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("path", ["/none", "/it/", "//it"])
async def test_unknown_path_is_a_problem_and_not_a_redirect(path: str) -> None:
    async with client_of() as client:
        check_problem(await client.get(httpx.URL(f"http://x{path}")), 404, "not_found")


async def test_wrong_value_in_a_path_is_an_invalid_input_in_the_format_of_the_service() -> None:
    numbers = APIRouter()

    @numbers.get("/numbers/{number}")
    async def get_number(number: int) -> int:
        return number

    async with httpx.AsyncClient(transport=httpx.ASGITransport(application(numbers)), base_url="http://x") as client:
        problem = check_problem(await client.get("/numbers/secret"), 422, "invalid_input")
    assert problem["errors"][0]["loc"] == "number"
    assert "secret" not in problem["detail"]


class Note(BaseModel):
    """A body."""

    text: str


notes = APIRouter()


@notes.post("/notes")
async def post_note(note: Note) -> str:
    """Read a typed argument."""
    return note.text


@notes.get("/refused")
async def get_refused() -> None:
    """Raise an error of its own because of one of the service."""
    raise HTTPException(409, "ours") from PayloadTooLarge("theirs")


@notes.get("/status/{status}")
async def get_status(status: int) -> None:
    """Raise an error with a status."""
    raise HTTPException(status, "ours", {"x-ours": "yes"})


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b'{"text": "%s"}' % (b"a" * 100), {}, 413, "payload_too_large"),
        (b"no gzip", {"content-encoding": "gzip"}, 400, "malformed_input"),
        (b'{"text": ', {}, 400, "malformed_input"),
        (b'{"text": 1}', {}, 422, "invalid_input"),
    ],
)
async def test_errors_of_typed_bodies_are_those_of_other_bodies(
    body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    app = application(notes, settings=Settings(max_body_bytes=50))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        sent = {"content-type": "application/json", **headers}
        check_problem(await client.post("/notes", content=body, headers=sent), status, code)


async def test_error_of_a_route_is_answered_whatever_its_cause() -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application(notes)), base_url="http://x") as client:
        assert check_problem(await client.get("/refused"), 409, "conflict")["detail"] == "ours"


async def test_disconnect_while_a_typed_body_is_read_is_counted_and_gets_no_response() -> None:
    metrics = Metrics()
    assert await send_to(application(notes, metrics=metrics), "/notes", receive_of()) == []
    labels = {"route": "/notes", "method": "POST", "code": "499"}
    assert metrics.registry.get_sample_value("longdoc_http_requests_total", labels) == 1


@pytest.mark.parametrize(
    ("status", "title"), [(418, "I'm a Teapot"), (499, "Error"), (520, "Error"), (204, None), (304, None)]
)
async def test_route_may_answer_with_any_status(status: int, title: str | None) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application(notes)), base_url="http://x") as client:
        found = await client.get(f"/status/{status}")
    assert (found.status_code, found.headers["x-ours"]) == (status, "yes")
    if title is None:
        assert (found.content, "content-length" in found.headers) == (b"", False)
    else:
        assert (found.json()["detail"], found.json()["title"]) == ("ours", title)


async def test_application_may_handle_unknown_exceptions() -> None:
    app = application(BROKEN)

    @app.exception_handler(Exception)
    async def answer(request: Request, error: Exception) -> PlainTextResponse:
        return PlainTextResponse(f"{request.url.path}: {error}", 500)

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        assert (await client.get("/broken")).text == "/broken: secret cause"
        check_problem(await client.post("/v1/classify", headers={"origin": "http://y"}), 403, "cross_origin")


async def test_error_of_an_application_that_is_mounted_in_this_one_is_answered() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        scope["app"] = None  # as an application of another framework may do
        raise RuntimeError("inner")

    app = application()
    app.mount("/inner", fail)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        check_problem(await client.get("/inner/it"), 500, "internal")


async def test_key_is_checked_before_the_route_is_called() -> None:
    async with client_of(SECRET) as client:
        stranger = await client.get("/broken")
        known = await client.get("/broken", headers=KEY)
    check_problem(stranger, 401, "unauthorized")
    assert stranger.headers["www-authenticate"] == "Bearer"
    assert known.status_code == 500


async def test_every_route_needs_a_key_except_pages_and_health_checks() -> None:
    open_paths, closed = set[str](), 0
    async with serving(settings=SECRET) as client:
        for path, item in client.app.openapi()["paths"].items():
            for method in item:
                status = (await client.request(method, re.sub(r"\{\w+\}", "a", path), json={})).status_code
                closed += status == 401
                if status != 401:
                    open_paths.add(path)
    assert open_paths == {"/", "/metrics", "/health", "/v2/health/live", "/v2/health/ready"}
    assert closed > 25


async def test_key_may_be_required_by_one_method_of_a_path_only() -> None:
    """The path of the page is that of text-embeddings-inference, too."""
    async with client_of(SECRET) as client:
        statuses = [(await client.request(method, "/")).status_code for method in ("GET", "HEAD", "POST")]
        known = await client.post("/", headers=KEY, json={"inputs": "a"})
    assert (statuses, known.status_code) == ([200, 200, 401], 422)


async def test_unknown_path_or_method_is_answered_before_the_key_is_checked() -> None:
    async with client_of(SECRET) as client:
        check_problem(await client.get("/none"), 404, "not_found")
        check_problem(await client.put("/v1/classify"), 405, "method_not_allowed")


def posts() -> list[str]:
    """Paths of every route that reads a body."""
    paths = application().openapi()["paths"]
    return [re.sub(r"\{\w+\}", "a", path) for path in paths if "requestBody" in paths[path].get("post", {})]


async def never() -> Message:
    raise AssertionError("read")


@pytest.mark.parametrize("path", posts())
async def test_without_a_key_no_body_is_read(path: str) -> None:
    start, _ = await send_to(create_app(runtime=runtime_with(settings=SECRET)), path, never)
    assert start["status"] == 401


async def test_over_the_limit_no_body_is_read() -> None:
    app = create_app(runtime=runtime_with(settings=Settings(max_body_bytes=10)))
    headers = {"content-type": "application/json", "content-length": "1000000"}
    for path in ("/v1/classify", "/v1/score", "/v1/rank", "/v1/forecast", "/embed", "/v1/embeddings", "/v2/rerank"):
        start, _ = await send_to(app, path, never, headers)
        assert start["status"] == 413, path


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = application().openapi()
    return found


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for item in document["paths"].values():
        yield from item.values()


def test_every_route_of_the_service_is_in_the_document(document: dict[str, Any]) -> None:
    app = application()
    paths = {
        (route.path_format, method.lower())
        for route in iter_route_contexts(app.routes)
        if getattr(route, "include_in_schema", False) and (route.methods)
        for method in route.methods
    }
    assert {(path, method) for path, item in document["paths"].items() for method in item} == paths


def test_errors_have_their_headers(document: dict[str, Any]) -> None:
    for operation in operations(document):
        for status, response in operation["responses"].items():
            if status != "200":
                expected = {"X-Request-Id", "Retry-After"} if status in ("429", "503") else {"X-Request-Id"}
                assert set(response["headers"]) == expected, operation["operationId"]


def test_every_reference_of_the_document_resolves(document: dict[str, Any]) -> None:
    references = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references == set(document["components"]["schemas"])
    assert "$defs" not in json.dumps(document)


def test_keys_are_described_only_if_they_are_set(document: dict[str, Any]) -> None:
    with_keys = application(settings=SECRET).openapi()
    assert "securitySchemes" not in document["components"]
    assert not any("security" in operation for operation in operations(document))
    schemes = with_keys["components"]["securitySchemes"]
    assert [scheme["type"] for scheme in schemes.values()] == ["http", "apiKey"]
    assert with_keys["paths"]["/v1/classify"]["post"]["security"] == [{name: []} for name in schemes]
    assert "security" not in with_keys["paths"]["/metrics"]["get"]
    assert "secret" not in json.dumps(with_keys)


def test_keys_are_described_for_routes_of_an_application_too() -> None:
    own = APIRouter(dependencies=[Depends(HTTPBasic())])
    own.add_api_route("/own", get_other)
    with_keys, without = application(notes, own, settings=SECRET).openapi(), application(notes, own).openapi()
    ours: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]
    assert with_keys["paths"]["/notes"]["post"]["security"] == ours
    assert "security" not in without["paths"]["/notes"]["post"]
    assert with_keys["paths"]["/own"]["get"]["security"] == [{"HTTPBasic": []}, *ours]
    assert without["paths"]["/own"]["get"]["security"] == [{"HTTPBasic": []}]
    assert set(without["components"]["securitySchemes"]) == {"HTTPBasic"}


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the export of a classifier, which is loaded from memory."""

    def load_export(folder: Path, **options: object) -> LoadedModel:
        del options
        return classifier(folder.parent.name)

    monkeypatch.setattr(loading, "load_export", load_export)
    (tmp_path / "mood" / "1").mkdir(parents=True)
    return tmp_path


def test_lifespan_loads_serves_and_closes(exports: Path) -> None:
    app = create_app(Settings(exports=exports))
    loaded: Runtime | None = app.state.runtime
    assert loaded is None, "creating an application loads nothing"
    with TestClient(app) as client:
        found = client.post("/v1/classify", json={"inputs": "++-"})
        assert (found.status_code, found.json()["model"]) == (200, "mood")
        runtime: Runtime = app.state.runtime
        assert runtime.engine.is_ready
    assert not runtime.engine.is_ready
    assert not runtime.models["mood"].batcher.is_ready


def test_application_may_start_again(exports: Path) -> None:
    """Tests that share an application each run its lifespan."""
    app = create_app(Settings(exports=exports))
    for _ in range(2):
        with TestClient(app) as client:
            found = client.post("/v1/classify", json={"inputs": "+"})
            assert (found.status_code, found.headers.get("connection")) == (200, None)


def test_application_whose_lifespan_does_not_run_says_so(exports: Path) -> None:
    outer, app = FastAPI(), create_app(Settings(exports=exports))
    outer.mount("/ml", app)
    with pytest.raises(RuntimeError, match="TestClient"):
        TestClient(app).get("/v1/models")
    with TestClient(outer) as client, pytest.raises(RuntimeError, match="mount"):
        client.post("/ml/v1/classify", json={"inputs": "+"})


def test_models_that_are_loaded_already_are_served_and_closed() -> None:
    runtime = runtime_with(classifier())
    app = create_app(runtime=runtime)
    with TestClient(app) as client:
        assert client.post("/v1/classify", json={"inputs": "+"}).status_code == 200
    assert app.state.runtime is runtime
    assert not runtime.engine.is_ready


def test_settings_of_the_environment_are_the_default(exports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGDOC_EXPORTS", str(exports))
    monkeypatch.setenv("LONGDOC_MAX_DOCUMENTS", "1")
    with TestClient(create_app()) as client:
        assert client.post("/v1/classify", json={"inputs": ["+", "-"]}).status_code == 413


def test_application_without_models_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(BadExport), TestClient(create_app(Settings(exports=tmp_path))):
        pass


TRACED = Settings.model_validate({"otlp_endpoint": "http://127.0.0.1:1"})


def test_wrong_variables_of_the_collector_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0")
    with pytest.raises(BadExport, match="OpenTelemetry") as caught:
        create_app(TRACED)
    assert caught.value.reason == "backend"


@pytest.mark.parametrize("must_stop_now", [False, True])
def test_last_spans_are_sent_unless_the_server_must_stop_now(
    monkeypatch: pytest.MonkeyPatch, *, must_stop_now: bool
) -> None:
    closed = list[bool]()
    app = create_app(TRACED, runtime=runtime_with(classifier()))
    monkeypatch.setattr(app.state.tracing, "close", lambda: closed.append(True))
    with TestClient(app):
        if must_stop_now:
            app.state.runtime.must_stop_now.set()
    assert closed == [True] * (not must_stop_now)


def test_application_may_be_mounted_in_another_one(exports: Path) -> None:
    events = list[str]()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        del app
        events.append("start")
        yield {"ours": "kept"}
        events.append("stop")

    outer = FastAPI(lifespan=lifespan)

    @outer.get("/own")
    async def get_own() -> str:
        return "own"

    mounted = mount(outer, "/ml", Settings(exports=exports, max_body_bytes=100))
    with TestClient(outer) as client:
        assert events == ["start"]
        assert client.get("/own").json() == "own"
        assert client.post("/ml/v1/classify", json={"inputs": "+"}).json()["model"] == "mood"
        long = client.post("/ml/v1/classify", json={"inputs": "+" * 100})
        assert (long.status_code, long.json()["code"]) == (413, "payload_too_large")
        assert client.get("/ml/none").json()["instance"] == "/none"
        assert client.get("/ml/openapi.json").json() == mounted.openapi()
        assert "/v1/classify" not in client.get("/openapi.json").json()["paths"]
        runtime = mounted.state.runtime
    assert events == ["start", "stop"]
    assert not runtime.engine.is_ready


def test_mounted_application_is_closed_if_the_outer_one_fails() -> None:
    runtime = runtime_with(classifier())
    outer = FastAPI()
    mount(outer, "/ml", runtime=runtime)
    with pytest.raises(RuntimeError, match="outer"), TestClient(outer):
        raise RuntimeError("outer")
    assert not runtime.engine.is_ready
