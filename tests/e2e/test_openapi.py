"""The OpenAPI document describes what a running server does, on every route.

Schemathesis generates valid and invalid requests from the document and checks every response: no server error, a
documented status and media type, a body that fits its schema, invalid requests rejected, valid ones accepted, 405 with
a correct `Allow` for other methods. The valid requests below cover what random ones rarely reach.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from schemathesis.schemas import BaseSchema

from artifact.exports import version_folder
from service.compat.oip.tensors import HEAD_LENGTH
from tests.support.offline import OfflineForecaster
from tests.support.paths import EXPORTS, ROOT
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

JSON, NDJSON, TEXT, BINARY = "application/json", "application/x-ndjson", "text/plain", "application/octet-stream"
OPEN = {"GET /", "GET /metrics", "GET /health", "GET /v2/health/live", "GET /v2/health/ready"}
"""Routes that need no key."""
TEI = {"/predict", "/rerank", "/similarity", "/embed", "/info", "/"}
"""Routes whose 401 has no body."""
BINARY_HEAD = b'{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":5}}]}'
TEXT_TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["one"]}
PAIR = {"inputs": [{**TEXT_TENSOR, "name": "a"}, {**TEXT_TENSOR, "name": "b"}]}
VERSION = version_folder(EXPORTS / "imdb-s3").name
MODEL, MODEL_VERSION = {"name": "imdb-s3"}, {"name": "imdb-s3", "version": VERSION}
SERIES = "a series of the forecaster's, filled in by the test"
VALID: dict[str, list[dict[str, Any]]] = {
    "POST /v1/classify": [
        {"body": {"inputs": ["a", "b"], "model": "imdb-s3", "top_k": 1, "detail": True, "on_overflow": "head"}},
        {"body": "a text", "media_type": TEXT, "query": {"detail": "true", "top_k": "1"}},
        {"body": b"\xff\x00", "media_type": BINARY, "query": {"model": "imdb-s3", "on_overflow": "tail"}},
        {"body": b'{"id": "x", "text": "a"}\nno JSON\n', "media_type": NDJSON},
        {"body": b'{"id": 7, "base64": "YQ=="}', "media_type": NDJSON, "query": {"on_overflow": "head_tail"}},
    ],
    "POST /v1/score": [{"body": {"pairs": [["one", "two"], ["three", "four" * 2000]]}}],
    "POST /v1/rank": [
        {"body": {"query": "a query", "documents": ["one", "two"], "top_n": 1, "return_documents": True}}
    ],
    "POST /v1/forecast": [
        {"body": {"series": SERIES, "horizon": 2, "quantiles": [0.1], "start": "2016-07-01", "frequency": "15min"}},
        {"body": {"series": SERIES}},
    ],
    "GET /v1/models": [{}],
    "GET /v1/models/{name}": [{"path_parameters": MODEL}, {"path_parameters": {"name": "ettm2"}}],
    "GET /v1/models/{name}/card": [{"path_parameters": MODEL}, {"path_parameters": {"name": f"imdb-s3@{VERSION}"}}],
    "GET /v1/timeseries/models": [{}],
    "POST /v1/timeseries/forecast": [
        {
            "body": {
                "model": "ettm2",
                "inputs": [{"series": SERIES, "frequency": "15min", "start_timestamp": "2016-07-01"}],
                "options": {"horizon": 2, "quantiles": [0.1, 0.9]},
            }
        },
        {"body": {"model": "ettm2", "inputs": [{"series": SERIES, "frequency": "15min"}], "options": {"horizon": 2}}},
    ],
    "GET /v2": [{}],
    "GET /v2/health/live": [{}],
    "GET /v2/health/ready": [{}],
    "GET /v2/models/{name}": [{"path_parameters": {"name": name}} for name in ("imdb-s3", "aan", "ettm2")],
    "GET /v2/models/{name}/versions/{version}": [{"path_parameters": MODEL_VERSION}],
    "GET /v2/models/{name}/ready": [{"path_parameters": MODEL}],
    "GET /v2/models/{name}/versions/{version}/ready": [{"path_parameters": MODEL_VERSION}],
    "POST /v2/models/{name}/infer": [
        {"path_parameters": MODEL, "body": {"id": "7", "inputs": [TEXT_TENSOR], "outputs": [{"name": "label"}]}},
        {"path_parameters": {"name": "aan"}, "body": PAIR},
        {"path_parameters": MODEL, "body": {"inputs": [TEXT_TENSOR], "parameters": {"binary_data_output": True}}},
        {
            "path_parameters": MODEL,
            "body": BINARY_HEAD + b"\1\0\0\0a",
            "media_type": BINARY,
            "headers": {"Inference-Header-Content-Length": str(len(BINARY_HEAD))},
        },
    ],
    "POST /v2/models/{name}/versions/{version}/infer": [
        {"path_parameters": MODEL_VERSION, "body": {"inputs": [TEXT_TENSOR]}}
    ],
    "GET /v2/models/{name}/config": [{"path_parameters": {"name": name}} for name in ("imdb-s3", "aan", "ettm2")],
    "GET /v2/models/{name}/versions/{version}/config": [{"path_parameters": MODEL_VERSION}],
    "GET /v2/models/stats": [{}],
    "GET /v2/models/{name}/stats": [{"path_parameters": MODEL}],
    "GET /v2/models/{name}/versions/{version}/stats": [{"path_parameters": MODEL_VERSION}],
    "POST /v2/repository/index": [{"body": {"ready": True}}, {"body": {}}],
    "POST /v1/models/{name}:predict": [
        {"path_parameters": MODEL, "body": {"instances": ["a", {"text": "b"}, {"b64": "Yw=="}]}},
        {"path_parameters": {"name": "aan"}, "body": {"instances": [{"a": "one", "b": {"b64": "dHdv"}}]}},
        {"path_parameters": {"name": "ettm2"}, "body": {"instances": [{"series": SERIES}]}},
    ],
    "GET /health": [{}],
    "GET /info": [{}],
    "POST /predict": [{"body": {"inputs": given}} for given in ("a", ["one", "two"], [["a"], ["b"]], [["one", "two"]])],
    "POST /rerank": [
        {"body": {"query": "a query", "texts": ["one", "two"], "return_text": True}},
        {"body": {"query": "a query", "documents": ["one", {"text": "two"}], "return_documents": True}},
    ],
    "POST /similarity": [{"body": {"inputs": {"source_sentence": "a query", "sentences": ["one", "two"]}}}],
    "POST /embed": [{"body": {"inputs": "one"}}, {"body": {"inputs": ["one", "two"], "normalize": False}}],
    "POST /": [
        {"body": {"inputs": "a", "parameters": {"top_k": 1}}},
        {"body": {"inputs": ["a", "b"]}},
        {"body": {"inputs": {"source_sentence": "a query", "sentences": ["one"]}, "parameters": {}}},
    ],
    "POST /v1/embeddings": [
        {"body": {"input": "one", "model": "aan"}},
        {"body": {"input": ["one", "two"], "encoding_format": "base64", "dimensions": 320}},
    ],
    **{
        f"POST /{version}/rerank": [
            {"body": {"query": "a query", "documents": ["one", {"text": "two"}], "model": "aan"}},
            {"body": {"query": "a query", "documents": ["one", "two"], "return_documents": True, "top_n": 1}},
        ]
        for version in ("v1", "v2")
    },
    "GET /metrics": [{}],
    "GET /": [{}],
}
"""Requests that get 200; every route has one, except those in the next constant."""
CONTROL = {f"POST /v2/repository/models/{{name}}/{action}" for action in ("load", "unload")}
"""Routes that return 400 unless a setting allows them; test_versions.py tests them with that setting."""

CONFIGURATION = f"""
hooks = "tests.e2e.test_openapi"
request-timeout = {PATIENCE_S}

[generation]  # header fields that are not known are ignored (RFC 9110, 5.1)
allow-extra-parameters = false

[dictionaries]
names.values = ["imdb-s3", "aan", "ettm2"]
versions.values = ["{VERSION}"]
timeouts.values = [20000]

[parameters]  # random names would all be 404, random deadlines most often 504
"path.name" = {{ dictionary = "names", probability = 0.8 }}
"path.version" = {{ dictionary = "versions", probability = 0.8 }}
"header.X-Request-Timeout-Ms" = {{ dictionary = "timeouts", probability = 0.8 }}

[checks]
# A schema cannot say what depends on the model and the settings: channels, lengths, limits.
positive_data_acceptance.expected-statuses = ["200", "404", "413", "422", "504"]
# Who gives a millisecond gets 504.
not_a_server_error.expected-statuses = ["2xx", "4xx", "504"]
# 413 is the answer to too much of something, which a schema may limit too.
negative_data_rejection.expected-statuses = ["400", "404", "405", "413", "415", "422", "504"]

[[operations]]  # bytes before tensors have to be JSON
include-path-regex = "/infer$"
checks.positive_data_acceptance.expected-statuses = ["200", "400", "404", "413", "422", "504"]

[[operations]]  # not allowed by this server
include-path-regex = "/repository/models/"
checks.positive_data_acceptance.expected-statuses = ["400", "404", "504"]
"""


@schemathesis.serializer(NDJSON)
def encode_lines(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Encode lines as sent over the network; schemathesis loads this module for its hooks."""
    del context
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    """Skip requests that are not invalid to the server: with an unknown header field, any JSON as a line, or any bytes.

    HTTP ignores such fields; an invalid line of NDJSON is answered with its error in a response of status 200; where
    the length of the JSON before tensors is 0, the body is a text of any bytes.
    """
    del context
    headers: Mapping[str, object] = case.headers or {}
    is_line = case.media_type == NDJSON and not isinstance(case.body, str | bytes)
    is_raw = str(headers.get(HEAD_LENGTH)) == "0"
    return not is_line and not is_raw and "x-schemathesis-unknown-property" not in headers


@pytest.fixture(autouse=True)
def check_log(server: Server) -> Iterator[None]:
    before = len(server.text())
    yield
    assert "Traceback" not in server.text()[before:]


@pytest.mark.parametrize("examples", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_server_behaves_as_its_document_says(server: Server, tmp_path: Path, examples: int) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run", "--seed", "1"]
    options = ["--max-examples", str(examples), "--continue-on-failure", "--no-color"]
    address = f"{server.url}/openapi.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [*command, *options, address], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def document(server: Server) -> BaseSchema:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def filled(value: Any, series: object) -> Any:
    """Return a body with the series inserted in its place."""
    if isinstance(value, dict):
        return {key: filled(item, series) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, series) for item in value]
    return series if value is SERIES else value


@pytest.mark.parametrize("route", VALID)
def test_responses_to_valid_requests_are_documented(
    document: BaseSchema, forecaster: OfflineForecaster, route: str
) -> None:
    method, path = route.split()
    series = forecaster.series(forecaster.manifest.context_length)
    for request in VALID[route]:
        kind = {"media_type": JSON} if method == "POST" else {}
        case = document[path][method].Case(**{**kind, **filled(request, series)})
        response = case.call_and_validate(timeout=PATIENCE_S)
        assert response.status_code == 200, response.text


def operations(server: Server) -> dict[str, dict[str, Any]]:
    paths = server.get("/openapi.json").json()["paths"]
    return {f"{method.upper()} {path}": found for path, item in paths.items() for method, found in item.items()}


def test_every_route_is_documented(server: Server) -> None:
    assert operations(server).keys() == VALID.keys() | CONTROL


@pytest.mark.parametrize("route", VALID)
def test_documented_examples_are_accepted(fresh: Server, route: str) -> None:
    """Sends the bodies that `/docs` shows, unchanged."""
    method, path = route.split()
    operation = operations(fresh)[route]
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", parameter["schema"]["examples"][0])
    contents = operation["requestBody"]["content"] if method == "POST" else {None: {"example": None}}
    examples = {kind: media["example"] for kind, media in contents.items() if "example" in media}
    assert examples
    for kind, example in examples.items():
        sent = {"json": example} if kind == JSON else {"content": example, "headers": {"content-type": kind}}
        response = fresh.post(path, **sent) if kind else fresh.get(path, follow_redirects=True)
        assert response.status_code == 200, response.text
        assert b'"error":{' not in response.content


def test_native_routes_are_listed_first(server: Server) -> None:
    document = server.get("/openapi.json").json()
    groups = [tag["name"] for tag in document["tags"]]
    native = [
        "Classify documents and series",
        "Score and rank documents",
        "Forecast time series",
        "Models",
        "Operations",
    ]
    assert groups[: len(native)] == native
    items = [item for path, item in document["paths"].items() if path != "/"]  # which belongs to two groups
    used = [tag for item in items for operation in item.values() for tag in operation["tags"]]
    assert list(dict.fromkeys(used)) == groups


def accepts_anything(schema: dict[str, Any]) -> bool:
    """Return whether the schema accepts any object, or any value at all."""
    return not schema or (
        schema.get("type") == "object"
        and not schema.get("properties")
        and schema.get("additionalProperties", True) is True
    )


@pytest.mark.parametrize("route", [*VALID, *sorted(CONTROL)])
def test_document_has_complete_schemas_and_statuses(server: Server, route: str) -> None:
    """Checks what responses cannot show: schemas that accept anything, and statuses that do not occur in tests."""
    method, path = route.split()
    operation = operations(server)[route]
    for status, response in operation["responses"].items():
        empty = "200" if path == "/health" else "401" if path in TEI else None
        schemas = [media["schema"] for media in response.get("content", {}).values()]
        assert schemas or status == empty, f"{status} has no body"
        assert not any(accepts_anything(schema) for schema in schemas), f"the schema of {status} accepts anything"
    expected = {"200"}
    if route not in OPEN:
        expected |= {"401"}
    if "{name}" in path:
        expected |= {"404"}
    if path.endswith("/ready") or path == "/health":
        expected |= {"503"}
    if method == "POST":
        expected |= {"400", "413", "415", "422", "429", "503", "504"}
    if method == "POST" and path != "/v2/repository/index":  # names no model and computes nothing
        expected |= {"404", "500"}
        assert {"X-Request-Timeout-Ms", "X-Request-Id"} <= {given["name"] for given in operation["parameters"]}
    assert expected <= operation["responses"].keys()
    assert method == "POST" or path == "/info" or "422" not in operation["responses"], "no input can be invalid"
