"""OpenTelemetry traces: a span for each request, with child spans for its time in the queue and its inference.

`service.server` imports this module only if `otlp_endpoint` is set, because its dependencies are an extra. All spans
are created here, from the times that `Call` measured. Spans are sent to another machine, so they never contain
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
from starlette.types import Message, Receive, Scope, Send

from artifact import __version__
from service.http.admission import RejectionResponse
from service.http.application import COUNTED_METHODS, Application
from service.http.state import ArrivedBody, state_of
from service.log import request_id, trace_of
from service.wire.call import Inference
from service.wire.headers import RequestHeaders

log = logging.getLogger(__name__)

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

    def wrap(self, app: Application) -> "Traced":
        """Wrap the application to trace its requests."""
        return Traced(app, self._provider)

    def close(self) -> None:
        """Send the remaining spans for at most FLUSH_S; the library would wait for up to 30 s."""
        flush = threading.Thread(target=self._provider.shutdown, daemon=True)
        flush.start()
        flush.join(FLUSH_S)


class Traced:
    """An application that traces its requests, except to routes that need no key: health checks and metrics.

    Args:
        app: the application; it stores the route and the times of the inference in the `RequestState`.
        provider: creates the spans.

    """

    def __init__(self, app: Application, provider: TracerProvider) -> None:
        self._app = app
        self._tracer = provider.get_tracer("service", __version__)
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        found = self._app.table.find(scope["method"], scope["path"])
        if found is not None and not found.route.needs_key:
            await self._app(scope, receive, send)
            return
        started_ns = time.time_ns()
        to_epoch_ns = started_ns - time.perf_counter_ns()  # one clock for all later times of the span and its children
        name = scope["method"] if scope["method"] in COUNTED_METHODS else "HTTP"
        state = state_of(scope)
        parent = self._parent(state.headers)
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, start_time=started_ns)
        if not span.is_recording():  # not sampled
            await self._app(scope, receive, send)
            return
        state.trace_id = format_trace_id(span.get_span_context().trace_id)
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
            if state.route is not None:  # any other path is text of the client
                span.update_name(f"{name} {state.route}")
                facts |= {"http.route": state.route, "url.path": scope["path"]}
            if state.inference is not None:
                facts |= self._add_inference_spans(span, state.inference, to_epoch_ns)
            if "error.type" in facts:
                span.set_status(StatusCode.ERROR)
            span.set_attributes(facts)
            span.end(to_epoch_ns + time.perf_counter_ns())

    def rejection(self, scope: Scope, body: ArrivedBody) -> RejectionResponse | None:
        """The application's rejection; it gets no span, because a rejection has to be cheap."""
        return self._app.rejection(scope, body)

    def _parent(self, headers: RequestHeaders) -> Context:
        """Context of the client's span, if `traceparent` is valid; else an empty one."""
        sent = headers.getlist("traceparent")
        if not trace_of(sent):
            return Context()
        return self._propagator.extract({"traceparent": sent, "tracestate": headers.getlist("tracestate")}, Context())

    def _add_inference_spans(
        self, parent: Span, inference: Inference, to_epoch_ns: int
    ) -> dict[str, str | int | float]:
        """Add the child spans `queue` and `compute`; return attributes for the request's span.

        For a request in several batches, the child spans show its longest wait and its longest batch, as if the two had
        come last.
        """
        timing = inference.timing
        computing = max(inference.started, inference.computed - timing.compute)
        queued = max(inference.started, computing - timing.queue)
        context = set_span_in_context(parent, Context())
        for name, start, end in (("queue", queued, computing), ("compute", computing, inference.computed)):
            span = self._tracer.start_span(name, context, start_time=to_epoch_ns + int(1e9 * start))
            span.end(to_epoch_ns + int(1e9 * end))
        return {
            "longdoc.model.name": inference.manifest.name,
            "longdoc.model.version": inference.manifest.version,
            "longdoc.decode_s": timing.decode,
            "longdoc.encode_s": inference.finished - inference.computed,
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
