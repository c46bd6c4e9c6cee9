"""The service on Ray Serve, in a cluster of two nodes on this machine: same answers, nothing lost with a node."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from benchmarks.lib.servers import free_port
from tests.support.node_failures import kill_under_load
from tests.support.paths import ROOT
from tests.support.ray_cluster import PYTHON, STOPPED_S, RayCluster
from tests.support.ray_commands import start
from tests.support.server import Server
from tests.support.telemetry import watched_telemetry
from tests.support.waiting import wait_until

pytestmark = pytest.mark.ray

CLIENTS = 4
SENT = 40
"""Requests after which each of two replicas has answered some."""
TEXT, JSON, NDJSON = "text/plain", "application/json", "application/x-ndjson"
REVIEW = "A wonderful film, with a weak ending. " * 200
REQUESTS: dict[str, tuple[str, str, bytes, str]] = {
    "documents": ("POST", "/v1/classify", json.dumps({"inputs": [REVIEW, "Dull."], "detail": True}).encode(), JSON),
    "text": ("POST", "/v1/classify", REVIEW.encode(), TEXT),
    "lines": ("POST", "/v1/classify", b"".join(b'{"text": "%d films"}\n' % number for number in range(40)), NDJSON),
    "rank": ("POST", "/v1/rank", (ROOT / "docs" / "rank.json").read_bytes(), JSON),
    "forecast": ("POST", "/v1/forecast", (ROOT / "docs" / "series.json").read_bytes(), JSON),
    "models": ("GET", "/v1/models", b"", JSON),
    "one model": ("GET", "/v1/models/imdb-s3", b"", JSON),
    "ready": ("GET", "/v2/health/ready", b"", JSON),
    "OpenAPI": ("GET", "/openapi.json", b"", JSON),
    "no such route": ("GET", "/v1/nothing", b"", JSON),
    "wrong method": ("DELETE", "/v1/classify", b"", JSON),
    "not JSON": ("POST", "/v1/classify", b"{", JSON),
    "missing field": ("POST", "/v1/classify", b"{}", JSON),
    "unknown model": ("POST", "/v1/classify", b'{"inputs": ["a"], "model": "none"}', JSON),
    "too large": ("POST", "/v1/classify", b"x" * (9 << 20), TEXT),
}  # fmt: skip
VARIABLE = re.compile(
    rb'"(queue_ms|compute_ms|total_ms|duration_ms|loaded_at|loaded_s|load_seconds|cached)":\s*"?[^,}"]*"?'
)
"""Times and the state of the cache in answers."""
NUMBER = re.compile(rb"-?[0-9]+[.][0-9]+(?:e-?[0-9]+)?")
"""Scores and forecasts in answers."""
TOLERANCE = 1e-6
"""Maximum relative difference of numbers. Which rows share a batch depends on the time, and with some processors the
last digits of a row depend on the size of its batch."""
COMPARED_HEADERS = ("content-type", "x-content-type-options", "allow", "x-request-id")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with RayCluster(tmp_path_factory.mktemp("ray") / "log", 2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("plain") / "log", "--device", "cpu") as server:
        yield server


def answer_of(url: str, request: tuple[str, str, bytes, str]) -> tuple[int, bytes, dict[str, str]]:
    """Status, body without times, and headers."""
    method, path, body, kind = request
    headers = {"content-type": kind, "x-request-id": "the-same"}
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        response = client.request(method, path, content=body, headers=headers)
    found = {name: response.headers[name] for name in COMPARED_HEADERS if name in response.headers}
    return response.status_code, VARIABLE.sub(b"", response.content), found


def check_same(url: str, other: str, name: str) -> None:
    """Check that two services give the same answer to a request, with the same numbers up to rounding."""
    (*found, body), (*wanted, other_body) = (
        (status, headers, body) for status, body, headers in (answer_of(each, REQUESTS[name]) for each in (url, other))
    )
    assert found == wanted
    assert NUMBER.sub(b"", body) == NUMBER.sub(b"", other_body)
    numbers, other_numbers = (list(map(float, NUMBER.findall(part))) for part in (body, other_body))
    assert numbers == pytest.approx(other_numbers, rel=TOLERANCE, abs=TOLERANCE)


@pytest.mark.parametrize("name", REQUESTS)
def test_answers_are_those_of_the_plain_service(name: str, cluster: RayCluster, plain: Server) -> None:
    for url in cluster.urls:
        check_same(url, plain.url, name)


@contextlib.contextmanager
def served(log: Path, *command: str, ready: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a command; yields its process when all of the URLs answer 200."""

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(httpx.TransportError):
            return all(httpx.get(url, trust_env=False, timeout=60).status_code == 200 for url in ready)
        return False

    with log.open("wb") as stream:
        process = start("-m", *command, stdout=stream, stderr=stream)
    try:
        wait_until(is_ready, log.read_text)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def metrics_of(url: str) -> dict[str, list[Sample]]:
    """Samples of `/metrics`, by name."""
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", trust_env=False, timeout=60).text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def classified(url: str) -> float:
    """Documents that were classified, as `/metrics` counts them."""
    samples = metrics_of(url).get("longdoc_documents_total", [])
    return sum(sample.value for sample in samples if sample.labels["model"] == "imdb-s3")


def test_command_serves_with_the_metrics_of_all_replicas_until_sigterm(tmp_path: Path) -> None:
    url, log = f"http://127.0.0.1:{free_port()}", tmp_path / "log"
    replicas = ("--min-replicas", "2", "--max-replicas", "2")
    command = ("service", "ray", "--port", url.rpartition(":")[2], "--device", "cpu", *replicas)
    with served(log, *command, ready=[f"{url}/v2/health/ready"]) as process:
        for _ in range(SENT):
            assert answer_of(url, REQUESTS["text"])[0] == 200
        wait_until(lambda: classified(url) == SENT, lambda: metrics_of(url))
        assert [classified(url) for _ in range(10)] == [SENT] * 10, "each replica answers for both"
        found = metrics_of(url)
        assert len(found["longdoc_worker_start_time_seconds"]) == 2
        process.terminate()
        assert process.wait(STOPPED_S) == 0, log.read_text()


def test_metrics_have_the_label_of_their_node(cluster: RayCluster) -> None:
    def nodes() -> set[str]:
        ready = [metrics_of(url)["longdoc_model_ready"] for url in cluster.urls]
        assert all(len({sample.labels["node"] for sample in samples}) == 1 for samples in ready)
        return {samples[0].labels["node"] for samples in ready}

    wait_until(lambda: len(nodes()) == len(cluster.urls), nodes)


def test_example_serves_each_group_of_models_behind_its_prefix(tmp_path: Path, plain: Server) -> None:
    port, config = free_port(), tmp_path / "serve.yaml"
    example = yaml.safe_load((ROOT / "deploy" / "ray" / "serve.yaml").read_text())
    example["http_options"]["port"] = port
    for application in example["applications"]:
        application["args"]["exports"] = str(ROOT / "exports")
    config.write_text(yaml.safe_dump(example))
    text, series = (f"http://127.0.0.1:{port}/{prefix}" for prefix in ("text", "series"))
    ready = [f"{url}/v2/health/ready" for url in (text, series)]
    with served(tmp_path / "log", "ray.serve.scripts", "run", str(config), ready=ready) as process:
        for url, name in ((text, "text"), (text, "rank"), (series, "forecast"), (text, "not JSON")):
            check_same(url, plain.url, name)
        for url, models in (
            (text, ["aan", "imdb-s3", "scotus", "un-debate"]),
            (series, ["any-series", "ettm2", "exchange", "ili", "weather"]),
        ):
            with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
                assert [model["name"] for model in client.get("/v1/models").json()["models"]] == models
                check_pages(client, plain)
                assert {sample.labels["model"] for sample in metrics_of(url)["longdoc_model_ready"]} == set(models)
        assert answer_of(series, REQUESTS["text"])[0] == 422, "no classifier is in this group"
        process.terminate()
        process.wait(STOPPED_S)


def check_pages(client: httpx.Client, plain: Server) -> None:
    """Check the documentation pages of an application behind a route prefix."""
    prefix = client.base_url.path.rstrip("/")
    assert client.get("/openapi.json").json() == plain.get("/openapi.json").json()
    assert client.get(client.base_url.copy_with(path=prefix)).headers["location"] == f"{prefix}/"
    for path in ("/", "/docs", "/redoc"):
        address = client.base_url.copy_with(path=f"{prefix}{path}")
        assets = re.findall(r'(?:src|href|spec-url)="([^"#]+)"', client.get(address).text)
        assert assets
        for asset in assets:
            assert client.get(address.join(asset)).status_code == 200, asset


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--min-replicas", "3", "--max-replicas", "2"), "min_replicas is 3; it must be at most max_replicas, 2"),
        (("--model-control", "--max-replicas", "2"), "model_control: a request would reach one of the replicas only"),
        (("--otlp-endpoint", "http://collector:4318"), "otlp_endpoint: traces are not supported on Ray"),
        (("--replica-cores", "0"), "setting replica_cores = '0': Input should be greater than 0"),
    ],
)
def test_wrong_settings_are_named(flags: tuple[str, ...], said: str) -> None:
    process = start("-m", "service", "ray", *flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=STOPPED_S)
    assert process.returncode == 2
    assert said in errors


def test_killed_node_loses_no_request_that_one_retry_does_not_save(cluster: RayCluster) -> None:
    found = kill_under_load(cluster, CLIENTS)
    assert not found.lost, found
    assert found.repeated, "the killed node took no request"


def test_replica_and_batch_do_not_start_the_telemetry_of_onnx_runtime(tmp_path: Path) -> None:
    program = "import service.scale.ray, service.scale.batch; import onnxruntime"
    with watched_telemetry(tmp_path) as telemetry:
        subprocess.run([PYTHON, "-c", program], cwd=ROOT, check=True)
    assert telemetry.files() == []
