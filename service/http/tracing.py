"""Traces in OpenTelemetry's format: a span for each request; below it one for its wait and one for its computation.

Imported by `service.server` if `otlp_endpoint` is set, since what it needs is an extra. Nothing else knows of spans:
they are made around the application, from what `Call` has measured. They leave the machine, and therefore
hold nothing of a document, of a query or of an error's message.
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
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from artifact import __version__
from service.http.admission import Refused
from service.http.application import METHODS, Application
from service.log import request_id, trace_of
from service.wire.call import Work

log = logging.getLogger(__name__)

FLUSH_S = 2.0
"""Time to send the last spans when the server stops."""
COMPLAIN_S = 60.0
"""Time between two log lines about a collector that does not take spans."""


class Tracing:
    """Spans of one process, sent from a thread in batches; the `OTEL_...` variables say how, and which are sampled.

    The provider is not made the global one: FastAPI would add spans of its own.

    Args:
        endpoint: address of the collector, to which `/v1/traces` is added.

    """

    def __init__(self, endpoint: str) -> None:
        library = logging.getLogger("opentelemetry")
        library.handlers = [_Seldom(logging.WARNING)]
        library.propagate = False
        ours = {
            "service.name": "longdoc-serve",
            "service.version": __version__,
            "service.instance.id": uuid.uuid4().hex,
        }
        resource = Resource.create().merge(Resource(ours)).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")))

    def around(self, app: Application) -> "Traced":
        """The application, traced."""
        return Traced(app, self._provider)

    def close(self) -> None:
        """Send what is left, as far as it goes in FLUSH_S; the library would wait for half a minute."""
        flush = threading.Thread(target=self._provider.shutdown, daemon=True)
        flush.start()
        flush.join(FLUSH_S)


class Traced:
    """An application with a span around each request but those of paths that need no key, which come every few seconds.

    Args:
        app: leaves a `Work` in the scope, if work was done.
        provider: of the spans.

    """

    def __init__(self, app: Application, provider: TracerProvider) -> None:
        self._app = app
        self._tracer = provider.get_tracer("service", __version__)
        self._parents = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["path"] in self._app.table.open_paths:
            await self._app(scope, receive, send)
            return
        started_ns = time.time_ns()  # later times are perf_counter plus an offset: no stage falls outside its span
        to_epoch_ns = started_ns - time.perf_counter_ns()
        name = scope["method"] if scope["method"] in METHODS else "HTTP"
        parent = self._parent(Headers(scope=scope))
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, start_time=started_ns)
        if not span.is_recording():  # not sampled
            await self._app(scope, receive, send)
            return
        scope["trace_id"] = format_trace_id(span.get_span_context().trace_id)
        facts: dict[str, str | int | float] = {
            "http.request.method": "_OTHER" if name == "HTTP" else name,
            "url.scheme": scope["scheme"],
        }

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                facts["http.response.status_code"] = code = message["status"]
                facts["longdoc.request_id"] = request_id.get()
                if code >= 500:  # what the client did wrong is no error of the server
                    facts["error.type"] = str(code)
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except BaseException as error:
            facts["error.type"] = type(error).__qualname__  # without the message, which may quote the input
            raise
        finally:
            if route := getattr(scope.get("route"), "path", None):  # any other path is the client's own text
                span.update_name(f"{name} {route}")
                facts |= {"http.route": route, "url.path": scope["path"]}
            if (work := scope.get("work")) is not None:
                facts |= self._work(span, work, to_epoch_ns)
            if "error.type" in facts:
                span.set_status(StatusCode.ERROR)
            span.set_attributes(facts)
            span.end(to_epoch_ns + time.perf_counter_ns())

    def refusal(self, scope: Scope) -> Refused | None:
        """That of the application; without a span, since it has to cost next to nothing."""
        return self._app.refusal(scope)

    def _parent(self, headers: Headers) -> Context:
        """The client's span, if it names one as the standard asks."""
        sent = headers.getlist("traceparent")
        if not trace_of(sent):
            return Context()
        return self._parents.extract({"traceparent": sent, "tracestate": headers.getlist("tracestate")}, Context())

    def _work(self, parent: Span, work: Work, to_epoch_ns: int) -> dict[str, str | int | float]:
        """Add spans of the stages that take time; what else there is to tell.

        Where rows went in several batches, queue and compute are the longest of each, and stand here as if they had
        been the last ones.
        """
        timing = work.timing
        computing = max(work.started, work.computed - timing.compute)
        queued = max(work.started, computing - timing.queue)
        context = set_span_in_context(parent, Context())
        for name, start, end in (("queue", queued, computing), ("compute", computing, work.computed)):
            span = self._tracer.start_span(name, context, start_time=to_epoch_ns + int(1e9 * start))
            span.end(to_epoch_ns + int(1e9 * end))
        return {
            "longdoc.model.name": work.manifest.name,
            "longdoc.model.version": work.manifest.version,
            "longdoc.decode_s": timing.decode,
            "longdoc.encode_s": work.finished - work.computed,
        }


class _Seldom(logging.Handler):
    """Passes on one line a minute: while a collector is down, the library complains of each batch and lost span."""

    _next = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on a line, or drop it."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + COMPLAIN_S
            log.warning("traces: %s", record.getMessage())
