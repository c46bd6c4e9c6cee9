"""Traces over real sockets: what a collector receives, and what happens without a collector."""

import json
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from subprocess import run
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.offline import OfflineForecaster
from tests.support.paths import ROOT
from tests.support.problems import SECRET
from tests.support.server import ControlledServer, Server
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.wire import LAST_CHUNK, Wire, chunked, request

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
TEXT = {"content-type": "text/plain"}
STAGES = ["queue", "compute"]


def values(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    found = {}
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        assert kind is not None
        found[attribute.key] = getattr(attribute.value, kind)
    return found


class Collector(ThreadingHTTPServer):
    """Receives OTLP over HTTP in protobuf."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Intake)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.bodies: list[bytes] = []
        self.requests: list[ExportTraceServiceRequest] = []

    def spans(self) -> list[Span]:
        scopes = (s for request in self.requests for r in request.resource_spans for s in r.scope_spans)
        return [span for scope in scopes for span in scope.spans]

    def resources(self) -> list[dict[str, Any]]:
        return [values(r.resource.attributes) for request in self.requests for r in request.resource_spans]

    def trace(self, response: httpx.Response) -> tuple[Span, list[Span]]:
        """Wait for the span of a request and return it with the spans below it."""
        return self.trace_of(response.headers["x-request-id"])

    def trace_of(self, request_id: str) -> tuple[Span, list[Span]]:
        """Do the same for a request id."""

        def arrived() -> list[Span]:
            return [s for s in self.spans() if values(s.attributes).get("longdoc.request_id") == request_id]

        (span,) = wait_until(arrived, lambda: "no span has arrived")
        return span, [child for child in self.spans() if child.parent_span_id == span.span_id]


class Intake(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
        self.server.bodies.append(body)
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        yield collector
        collector.shutdown()


@pytest.fixture(scope="module")
def traced(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledServer]:
    """A server that exports each span at once."""
    log, flags = tmp_path_factory.mktemp("traced") / "log", ("--default-forecaster", "ettm2", "--drain-delay-s", "0")
    at_once = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
    with ControlledServer(log, "--otlp-endpoint", collector.url, *flags, variables=at_once) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture
def client(traced: ControlledServer) -> Iterator[httpx.Client]:
    with traced.client() as client:
        yield client
    assert "Traceback" not in traced.text()
    assert "Warning" not in traced.text()
    assert "service.http.tracing" not in traced.text(), "the server logged a problem with the collector"


@pytest.fixture
def own_collector() -> Iterator[Collector]:
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        yield collector
        collector.shutdown()


def test_request_is_a_span_in_the_clients_trace_with_its_stages(client: httpx.Client, collector: Collector) -> None:
    name, before = uuid.uuid4().hex, time.time_ns()
    headers = {**SAMPLED, "tracestate": "vendor=1", "X-Request-Id": name}
    response = client.post("/v1/classify", json={"inputs": [SECRET, SECRET * 200]}, headers=headers)
    assert response.status_code == 200
    span, children = collector.trace(response)
    after = time.time_ns()
    assert (span.name, span.kind) == ("POST /v1/classify", Span.SPAN_KIND_SERVER)
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.trace_state) == (TRACE, PARENT, "vendor=1")
    assert span.status.code == Status.STATUS_CODE_UNSET
    found = values(span.attributes)
    assert found.pop("longdoc.decode_s") > 0
    assert found.pop("longdoc.encode_s") > 0
    assert found == {
        "http.request.method": "POST",
        "http.route": "/v1/classify",
        "http.response.status_code": 200,
        "url.path": "/v1/classify",
        "url.scheme": "http",
        "longdoc.model.name": response.json()["model"],
        "longdoc.model.version": response.json()["version"],
        "longdoc.request_id": name,
    }
    assert not span.events
    assert [child.name for child in sorted(children, key=lambda c: c.start_time_unix_nano)] == STAGES
    for child in children:
        assert child.trace_id == span.trace_id
        assert child.kind == Span.SPAN_KIND_INTERNAL
        assert not child.attributes
    edges = [before, span.start_time_unix_nano]
    for kind in STAGES:
        (stage,) = [child for child in children if child.name == kind]
        edges += [stage.start_time_unix_nano, stage.end_time_unix_nano]
    edges += [span.end_time_unix_nano, after]
    assert edges == sorted(edges)
    durations = dict(re.findall(r"(\w+);dur=([\d.]+)", response.headers["server-timing"]))
    (compute,) = [child for child in children if child.name == "compute"]
    assert (compute.end_time_unix_nano - compute.start_time_unix_nano) / 1e6 == pytest.approx(
        float(durations["compute"]), abs=0.1
    )


@pytest.mark.parametrize(
    "traceparent",
    [None, f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-more", f"00-{TRACE.upper()}-{PARENT}-01"],
)
def test_request_without_a_valid_parent_starts_a_trace(
    client: httpx.Client, collector: Collector, traceparent: str | None
) -> None:
    headers = {"traceparent": traceparent} if traceparent else {}
    span, _ = collector.trace(client.post("/v1/classify", json={"inputs": "x"}, headers=headers))
    assert span.parent_span_id == b""
    assert span.trace_id.hex() not in (TRACE, "0" * 32)


def test_two_traceparent_headers_are_ignored(client: httpx.Client, collector: Collector) -> None:
    headers = [("traceparent", SAMPLED["traceparent"]), ("traceparent", f"00-{'1' * 32}-{PARENT}-01")]
    span, _ = collector.trace(client.get("/v1/models", headers=headers))
    assert span.parent_span_id == b""


def test_request_of_an_unsampled_trace_creates_no_span(client: httpx.Client, collector: Collector) -> None:
    silent = "c" * 32
    client.post("/v1/classify", json={"inputs": "x"}, headers={"traceparent": f"00-{silent}-{PARENT}-00"})
    collector.trace(client.post("/v1/classify", json={"inputs": "x"}))
    assert silent not in {span.trace_id.hex() for span in collector.spans()}


def test_every_task_and_protocol_is_traced(
    client: httpx.Client, collector: Collector, forecaster: OfflineForecaster
) -> None:
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a text"]}
    asked: dict[str, dict[str, Any]] = {
        "/v1/score": {"pairs": [["one text", "another text"]]},
        "/v1/rank": {"query": "a text", "documents": ["one text", "another text"]},
        "/v1/forecast": {"series": forecaster.series(forecaster.manifest.context_length)},
        "/v2/models/imdb-s3/infer": {"inputs": [tensor]},
    }
    for path, body in asked.items():
        response = client.post(path, json=body)
        assert response.status_code == 200, response.text
        span, children = collector.trace(response)
        assert span.name == f"POST {path}".replace("imdb-s3", "{name}")
        assert values(span.attributes)["url.path"] == path
        assert "longdoc.model.name" in values(span.attributes)
        assert sorted(child.name for child in children) == sorted(STAGES)


def test_rejected_request_is_not_marked_as_an_error(client: httpx.Client, collector: Collector) -> None:
    response = client.post("/v1/classify", json={"inputs": SECRET, SECRET: SECRET})
    assert response.status_code == 422
    span, children = collector.trace(response)
    assert values(span.attributes)["http.response.status_code"] == 422
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert not children


def test_span_of_an_unknown_path_does_not_contain_the_path(client: httpx.Client, collector: Collector) -> None:
    span, _ = collector.trace(client.get(f"/{SECRET}", params={"q": SECRET}))
    assert span.name == "GET"
    found = values(span.attributes)
    assert found["http.response.status_code"] == 404
    assert not {"http.route", "url.path", "url.query"} & found.keys()


def test_server_error_is_marked(client: httpx.Client, traced: ControlledServer, collector: Collector) -> None:
    with traced.held():
        response = client.post("/v1/classify", content=SECRET, headers={**TEXT, "X-Request-Timeout-Ms": "20"})
    assert response.status_code == 504
    span, _ = collector.trace(response)
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert span.status.message == ""
    assert values(span.attributes)["error.type"] == "504"


def test_span_of_lines_lasts_until_the_last_answer(traced: Server, collector: Collector) -> None:
    line = chunked(json.dumps({"text": SECRET}).encode() + b"\n")
    with Wire(traced.url) as wire:
        head = request(body=None, content_type="application/x-ndjson", transfer_encoding="chunked", **SAMPLED)
        wire.send(head + line)
        status, headers = wire.head()
        chunks = wire.chunks()
        first = next(chunks)
        answered = time.time_ns()
        wire.send(line + line)
        last = time.time_ns()
        wire.send(LAST_CHUNK)
        answers = first + b"".join(chunks)
    assert (status, len(answers.splitlines())) == (200, 3)
    span, children = collector.trace_of(headers["x-request-id"])
    assert (span.name, span.trace_id.hex()) == ("POST /v1/classify", TRACE)
    assert values(span.attributes)["http.response.status_code"] == 200
    assert span.start_time_unix_nano < answered < last < span.end_time_unix_nano
    assert not children


def test_probes_are_not_traced(client: httpx.Client, collector: Collector) -> None:
    for path in ("/metrics", "/v2/health/live", "/v2/health/ready"):
        assert client.get(path).status_code == 200
    collector.trace(client.get("/v1/models"))
    assert not any("health" in span.name or "metrics" in span.name for span in collector.spans())


def test_spans_contain_no_text_of_documents(client: httpx.Client, collector: Collector) -> None:
    """Covers the spans of all previous tests too."""
    client.post("/v1/classify", json={"inputs": SECRET})
    collector.trace(client.post("/v1/classify", content=SECRET, headers=TEXT))
    words = SECRET.encode()
    assert collector.bodies
    assert not any(words in body or words.replace(b" ", b"%20") in body for body in collector.bodies)


def test_workers_send_their_last_spans_before_they_exit(
    start: Callable[..., Server], own_collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-documents")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    flags = ("--otlp-endpoint", own_collector.url, "--workers", "2", "--drain-delay-s", "0")
    server = start(*flags, constants={"service.http.tracing.FLUSH_S": PATIENCE_S})
    wait_until(lambda: server.text().count("listening on") == 2)
    for _ in range(20):  # each on a new connection, so that both workers get some
        assert server.post("/v1/classify", json={"inputs": "x"}).status_code == 200
    assert not own_collector.requests
    assert server.stop() == 0
    assert sum(span.name == "POST /v1/classify" for span in own_collector.spans()) == 20
    resources = own_collector.resources()
    assert {(r["service.name"], r["deployment.environment.name"]) for r in resources} == {("my-documents", "test")}
    assert len({r["service.instance.id"] for r in resources}) == len(resources)


def test_sampler_is_set_by_the_opentelemetry_variables(
    start: Callable[..., Server], own_collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    constants = {"service.http.tracing.FLUSH_S": PATIENCE_S}
    server = start("--otlp-endpoint", own_collector.url, "--drain-delay-s", "0", constants=constants)
    assert server.post("/v1/classify", json={"inputs": "x"}).status_code == 200
    assert server.post("/v1/classify", json={"inputs": "x"}, headers=SAMPLED).status_code == 200
    assert server.stop() == 0
    assert {span.trace_id.hex() for span in own_collector.spans()} == {TRACE}
    assert [r["service.name"] for r in own_collector.resources()] == ["longdoc-serve"]


def test_no_spans_are_sent_unless_tracing_is_on(
    start: Callable[..., Server], own_collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", own_collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    server = start("--drain-delay-s", "0")
    for path, body in (("/v1/classify", {"inputs": "x"}), ("/v2/models/imdb-s3/infer", {})):
        server.post(path, json=body, headers=SAMPLED)
    assert server.stop() == 0
    assert not own_collector.bodies


def test_opentelemetry_is_not_imported_unless_tracing_is_on() -> None:
    code = "import sys, service.__main__; sys.exit('opentelemetry.sdk' in sys.modules)"
    assert run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("is_silent", [False, True], ids=["refuses", "never answers"])
def test_requests_are_answered_while_the_collector_is_down(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, *, is_silent: bool
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if is_silent:
            listener.listen()
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        constants = {"service.http.tracing.COMPLAIN_S": 36_000}
        server = start("--otlp-endpoint", endpoint, "--drain-delay-s", "0", constants=constants)
        with server.client() as client:

            def ask() -> bool:
                """Send a request and return whether the server has logged the missing collector."""
                assert client.post("/v1/classify", json={"inputs": "x"}).status_code == 200
                return "traces: " in server.text()

            wait_until(ask)
            assert all(ask() for _ in range(200))
        assert server.stop() == 0
    lines = [line for line in server.text().splitlines() if "traces: " in line]
    assert len(lines) == 1, server.text()
    assert "Traceback" not in server.text()


def test_missing_extra_and_wrong_variables_are_rejected() -> None:
    def refusal(prepare: str) -> str:
        code = f"import os, sys; {prepare}; from service.__main__ import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "--port", "0", "--otlp-endpoint", "http://127.0.0.1:4318"]
        done = run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert "loaded in" not in done.stderr, "models are loaded after the check"
        return done.stderr.splitlines()[-1]

    assert "pip install '.[otel]'" in refusal("sys.modules['opentelemetry.sdk'] = None")
    assert "pip install '.[otel]'" in refusal("sys.modules['opentelemetry.exporter'] = None")
    assert "max_export_batch_size" in refusal("os.environ['OTEL_BSP_MAX_QUEUE_SIZE'] = '1'")
