"""Trace ids in the log, with and without the extra; spans of cases that are rare on a socket."""

import json
import logging
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from starlette.types import ASGIApp, Receive, Scope, Send

from service import log as logs
from service.engine.served import Timing
from service.http.tracing import TracingMiddleware
from service.wire.context import KEY, Inference, context_of
from tests.support.applications import BROKEN, application
from tests.support.contexts import context

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


class Bare:
    """An application without the layers that every request of the service needs."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[KEY] = context()
        await self._app(scope, receive, send)


def traced(provider: TracerProvider) -> FastAPI:
    """Return an application whose requests are traced."""
    app = application(BROKEN)
    app.add_middleware(TracingMiddleware, provider=provider)
    return app


async def ask(app: ASGIApp, path: str, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.get(path, headers=headers)


def lines(captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the log records of the service, without those of httpx."""
    found = map(json.loads, captured.readouterr().err.splitlines())
    return [line for line in found if line["logger"].startswith("service")]


@pytest.mark.usefixtures("restored_log")
async def test_json_log_records_have_the_trace_id(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json")
    app = application(BROKEN)
    await ask(app, "/broken", traceparent=TRACEPARENT)
    await ask(app, "/broken", traceparent="malformed")
    logging.getLogger("service").info("outside")
    first, second, outside = lines(capsys)
    assert first["trace_id"] == TRACE
    assert first["request_id"] != "-"
    assert "trace_id" not in second
    assert "trace_id" not in outside


@pytest.mark.usefixtures("restored_log")
async def test_text_log_records_have_the_trace_id(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("text")
    await ask(application(BROKEN), "/broken", traceparent=TRACEPARENT, **{"x-request-id": "abc"})
    logging.getLogger("service").info("outside")
    written = capsys.readouterr().err
    assert f"[abc trace_id={TRACE}] GET /broken failed" in written
    assert "[-] outside" in written


@pytest.fixture
def sent() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(sent: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(sent))
    return provider


def only(sent: InMemorySpanExporter) -> ReadableSpan:
    (span,) = sent.get_finished_spans()
    return span


@pytest.mark.usefixtures("restored_log")
async def test_log_records_have_the_id_of_a_new_trace(
    capsys: pytest.CaptureFixture[str], provider: TracerProvider, sent: InMemorySpanExporter
) -> None:
    logs.configure("json")
    await ask(traced(provider), "/broken")
    (line,) = lines(capsys)
    assert line["trace_id"] == f"{only(sent).context.trace_id:032x}"


async def test_internal_error_is_marked_without_its_cause(provider: TracerProvider, sent: InMemorySpanExporter) -> None:
    response = await ask(traced(provider), "/broken")
    assert response.status_code == 500
    span = only(sent)
    assert span.name == "GET /broken"
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "500"
    assert "secret" not in span.to_json()


async def test_aborted_response_is_an_error(provider: TracerProvider, sent: InMemorySpanExporter) -> None:
    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("secret cause")

    await ask(TracingMiddleware(Bare(cut), provider), "/")
    span = only(sent)
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert (span.attributes["http.response.status_code"], span.attributes["error.type"]) == (200, "RuntimeError")
    assert "secret" not in span.to_json()


async def test_unknown_method_is_not_in_the_span_name(provider: TracerProvider, sent: InMemorySpanExporter) -> None:
    transport = httpx.ASGITransport(traced(provider))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        await client.request("SECRET", "/nowhere")
    span = only(sent)
    assert span.name == "HTTP"
    assert span.attributes is not None
    assert span.attributes["http.request.method"] == "_OTHER"


async def test_spans_of_stages_stay_within_the_request(provider: TracerProvider, sent: InMemorySpanExporter) -> None:
    """The longest queue time and the longest batch may belong to different rows and exceed the total together."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        manifest: Any = SimpleNamespace(name="m", version=3)
        asked = context_of(scope)
        asked.started, asked.computed = 10.0, 14.0
        asked.inference = Inference(manifest, Timing(1.0, 4.0, 3.0), finished=14.5)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    await ask(TracingMiddleware(Bare(app), provider), "/")
    stages = {span.name: span for span in sent.get_finished_spans() if span.parent}
    seconds = {name: (span.end_time - span.start_time) / 1e9 for name, span in stages.items()}  # type: ignore[operator]
    assert seconds == pytest.approx({"queue": 1, "compute": 3}, abs=1e-6)
