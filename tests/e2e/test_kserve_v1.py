"""KServe's V1 protocol with requests as `kserve.InferenceRESTClient` sends them: no media type, errors in `error`."""

from collections.abc import Callable, Sequence
from typing import Any

import httpx
import orjson
import pytest

from artifact.manifest import ExportManifest
from tests.support.offline import Offline, OfflineForecaster, OfflineMatcher, agree, document, same_score
from tests.support.problems import SECRET
from tests.support.server import Server

SHORT, LONG = "A good film, even so.", document(9000).decode()


def send(client: httpx.Client, name: str, body: object) -> httpx.Response:
    return client.post(f"/v1/models/{name}:predict", content=orjson.dumps(body))


def predict(client: httpx.Client, name: str, *instances: object) -> list[dict[str, Any]]:
    response = send(client, name, {"instances": instances})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["predictions"]
    assert len(found) == len(instances)
    return found


def check_error(response: httpx.Response, status: int, message: str) -> None:
    """Check that the response has KServe's error body only."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"}
    assert message in response.json()["error"]
    assert SECRET[:20] not in response.text


def test_documents_are_classified(client: httpx.Client, manifest: ExportManifest, offline: Offline) -> None:
    bytes_of_any_kind = b"A good film, \xff\x00 even so."
    encoded = {"b64": "QSBnb29kIGZpbG0sIP8AIGV2ZW4gc28u"}
    found = predict(client, manifest.name, SHORT, {"text": LONG}, encoded, {"text": encoded})
    for prediction, given in zip(
        found, (SHORT.encode(), LONG.encode(), bytes_of_any_kind, bytes_of_any_kind), strict=True
    ):
        assert agree(prediction, offline(given))
        assert prediction["coverage"]["bytes_used"] == len(given)
    native = client.post("/v1/classify", json={"inputs": [SHORT, LONG]}).json()["results"]
    assert [prediction["label"] for prediction in found[:2]] == [result["label"] for result in native]
    assert [prediction.keys() for prediction in found[:2]] == [result.keys() for result in native]


def test_pairs_are_scored(client: httpx.Client, matcher: OfflineMatcher) -> None:
    pairs = [("a paper on parsing", "a parser " * 900), ("one on speech", "machine translation")]
    found = predict(client, "aan", *({"a": a, "b": b} for a, b in pairs))
    for prediction, (a, b) in zip(found, pairs, strict=True):
        assert same_score(prediction["score"], matcher(a, b))
        assert prediction["coverage"]["b"]["bytes_used"] == len(b)


def test_series_are_forecast(client: httpx.Client, forecaster: OfflineForecaster) -> None:
    m = forecaster.manifest
    series = [forecaster.series(m.context_length, seed) for seed in range(3)]
    named = dict(zip(m.channels, series[2], strict=True))
    found = predict(client, m.name, *({"series": columns} for columns in series[:2]), {"series": named})
    for prediction, columns in zip(found[:2], series, strict=False):
        assert forecaster.agree(prediction["forecast"], forecaster(columns))
        assert prediction["quantiles"] == {}
    assert forecaster.agree([found[2]["forecast"][name] for name in m.channels], forecaster(series[2]))


def test_response_names_the_version(client: httpx.Client, manifest: ExportManifest) -> None:
    answer = send(client, manifest.name, {"instances": ["a"], "signature_name": "serving_default"}).json()
    assert (answer["model"], answer["version"]) == (manifest.name, manifest.version)


@pytest.mark.parametrize(
    ("name", "instances", "message"),
    [
        ("imdb-s3", [SECRET, 1], "instances.1: Input should be a string"),
        ("imdb-s3", [SECRET, ""], "instances.1: the document is empty"),
        ("imdb-s3", [{"text": SECRET, "title": SECRET}], "instances.0.text.title: Extra inputs are not permitted"),
        ("imdb-s3", [{"b64": SECRET}], "instances.0.b64: not base64"),
        ("aan", [SECRET], "instances.0: Input should be an object"),
        ("aan", [{"a": SECRET}], "instances.0.b: Field required"),
        ("ettm2", [{"series": SECRET}], "instances.0.series"),
        ("ettm2", [{"series": [[1.0, 2.0]]}], "instances.0.series: ettm2 has 7 channels"),
    ],
)
def test_bad_instance_is_named_in_the_error(
    client: httpx.Client, name: str, instances: Sequence[object], message: str
) -> None:
    check_error(send(client, name, {"instances": instances}), 422, message)


def test_errors_have_kserves_body(client: httpx.Client) -> None:
    path = "/v1/models/imdb-s3:predict"
    check_error(send(client, SECRET[:9], {"instances": ["a"]}), 404, "no model of that name is served")
    check_error(send(client, "imdb-s3", {"inputs": ["a"]}), 422, "instances: Field required")
    check_error(send(client, "imdb-s3", ["a"]), 422, "body: Input should be an object")
    check_error(send(client, "imdb-s3", {"instances": ["a"] * 257}), 413, "instances: 257; at most 256")
    check_error(client.post(path, content=b'{"instances": '), 400, "not valid JSON")
    check_error(client.post(path, content=b" " * 9_000_000), 413, "the body has 9000000 bytes; at most 8388608")
    check_error(client.post(path, content=b"{}", headers={"content-encoding": "br"}), 415, "Content-Encoding")
    check_error(client.post(path, content=b"{}", headers={"X-Request-Timeout-Ms": "soon"}), 422, "milliseconds")
    refused = client.get(path)
    check_error(refused, 405, "the methods of this path: POST")
    assert refused.headers["allow"] == "POST"
    channels = len(client.get("/v1/models/weather").json()["channels"])
    many = {"instances": [{"series": [[0.0, 1.0] * 12] * channels}] * 256}
    check_error(send(client, "weather", many), 413, "numbers; at most 2500000")


def test_model_is_not_ready_while_the_server_drains(start: Callable[..., Server]) -> None:
    """KServe's client takes both 503 and `ready: false` as not ready."""
    server = start("--drain-delay-s", "3600", "--default-forecaster", "ettm2")
    path = "/v1/models/imdb-s3"
    ready = server.get(path).json()
    assert (ready["name"], ready["ready"]) == ("imdb-s3", True)
    server.drain()
    assert server.get(path).json()["ready"] is False
    with server.client() as client:
        predict(client, "imdb-s3", SHORT)
    assert server.stop() == 0
