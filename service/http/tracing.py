"""OpenTelemetry traces: a span for each request, with child spans for its time in the queue and its inference.

`service.server` imports this module only if `otlp_endpoint` is set, because its dependencies are an extra. All spans
are created here, from the times in the `RequestContext`. Spans are sent to another machine, so they never contain
documents, queries or error messages.
"""

import logging
import threading
import time
import uuid

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from artifact import __version__
from service.http.context import COUNTED_METHODS
from service.log import request_id, trace_id, trace_of
from service.wire.context import Inference, RequestContext, context_of, path_of, route_of
from service.wire.headers import header_values

log = logging.getLogger(__name__)

UNTRACED = frozenset({"/metrics", "/health", "/v2/health/live", "/v2/health/ready"})
"""Paths of health checks and metrics."""
FLUSH_S = 2.0
"""Time limit for sending the last spans when the server stops."""
COMPLAIN_S = 60.0
"""Minimum time between two log lines about a collector that does not accept spans."""


class Tracing:
    """Creates the spans of one process and sends them in batches from a thread.

    The standard `OTEL_...` variables set sampling and sending. The provider is not installed globally, because FastAPI
    would then add its own spans.

    Args:
        endpoint: URL of the collector, without `/v1/traces`.

    """

    def __init__(self, endpoint: str) -> None:
        library = logging.getLogger("opentelemetry")
        library.handlers = [_RateLimitedHandler(logging.WARNING)]
        library.propagate = False
        ours = {
            "service.name": "longdoc-serve",
            "service.version": __version__,
            "service.instance.id": uuid.uuid4().hex,
        }
        resource = Resource.create().merge(Resource(ours)).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")))

    def add_to(self, app: Starlette) -> None:
        """Trace the requests of an application; call it before other middlewares are added around this one."""
        app.add_middleware(TracingMiddleware, provider=self._provider)

    def close(self) -> None:
        """Send the remaining spans for at most FLUSH_S; the library would wait for up to 30 s."""
        flush = threading.Thread(target=self._provider.shutdown, daemon=True)
        flush.start()
        flush.join(FLUSH_S)


class TracingMiddleware:
    """A middleware that traces requests, except health checks and scrapes of metrics.

    Args:
        app: the application; its `ContextMiddleware` keeps the times of the inference.
        provider: creates the spans.

    """

    def __init__(self, app: ASGIApp, provider: TracerProvider) -> None:
        self._app = app
        self._tracer = provider.get_tracer("service", __version__)
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or path_of(scope) in UNTRACED:
            await self._app(scope, receive, send)
            return
        started_ns = time.time_ns()
        to_epoch_ns = started_ns - time.perf_counter_ns()  # one clock for all later times of the span and its children
        name = scope["method"] if scope["method"] in COUNTED_METHODS else "HTTP"
        span = self._tracer.start_span(name, self._parent(scope), SpanKind.SERVER, start_time=started_ns)
        if not span.is_recording():  # not sampled
            await self._app(scope, receive, send)
            return
        token = trace_id.set(format_trace_id(span.get_span_context().trace_id))
        facts: dict[str, str | int | float] = {
            "http.request.method": "_OTHER" if name == "HTTP" else name,
            "url.scheme": scope["scheme"],
        }

        async def send_traced(message: Message) -> None:
            if message["type"] == "http.response.start":
                facts["http.response.status_code"] = code = message["status"]
                facts["longdoc.request_id"] = request_id.get()
                if code >= 500:  # a client's mistake is not an error of the server span
                    facts["error.type"] = str(code)
            await send(message)

        try:
            await self._app(scope, receive, send_traced)
        except BaseException as error:
            facts["error.type"] = type(error).__qualname__  # without its message, which may contain input
            raise
        finally:
            trace_id.reset(token)
            if (route := route_of(scope)) is not None:  # any other path is text of the client
                span.update_name(f"{name} {route}")
                facts |= {"http.route": route, "url.path": scope["path"]}
            if (inference := context_of(scope).inference) is not None:
                facts |= self._add_inference_spans(span, context_of(scope), inference, to_epoch_ns)
            if "error.type" in facts:
                span.set_status(StatusCode.ERROR)
            span.set_attributes(facts)
            span.end(to_epoch_ns + time.perf_counter_ns())

    def _parent(self, scope: Scope) -> Context:
        """Context of the client's span, if `traceparent` is valid; else an empty one."""
        sent = header_values(scope, b"traceparent")
        if not trace_of(sent):
            return Context()
        return self._propagator.extract(
            {"traceparent": sent, "tracestate": header_values(scope, b"tracestate")}, Context()
        )

    def _add_inference_spans(
        self, parent: Span, request: RequestContext, inference: Inference, to_epoch_ns: int
    ) -> dict[str, str | int | float]:
        """Add the child spans `queue` and `compute`; return attributes for the request's span.

        For a request in several batches, the child spans show its longest wait and its longest batch, as if the two had
        come last.
        """
        timing = inference.timing
        computing = max(request.started, request.computed - timing.compute)
        queued = max(request.started, computing - timing.queue)
        context = set_span_in_context(parent, Context())
        for name, start, end in (("queue", queued, computing), ("compute", computing, request.computed)):
            span = self._tracer.start_span(name, context, start_time=to_epoch_ns + int(1e9 * start))
            span.end(to_epoch_ns + int(1e9 * end))
        return {
            "longdoc.model.name": inference.manifest.name,
            "longdoc.model.version": inference.manifest.version,
            "longdoc.decode_s": timing.decode,
            "longdoc.encode_s": inference.finished - request.computed,
        }


class _RateLimitedHandler(logging.Handler):
    """Logs at most one line in COMPLAIN_S: the library logs every lost span and batch while a collector is down."""

    _next = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record, or drop it."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + COMPLAIN_S
            log.warning("traces: %s", record.getMessage())
