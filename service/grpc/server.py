"""The gRPC server, in the process and on the event loop of the HTTP server."""

import asyncio
import logging
import math
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError
from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from grpc_reflection.v1alpha.reflection import enable_server_reflection
from open_inference.grpc.protocol import DESCRIPTOR
from open_inference.grpc.service import add_GRPCInferenceServiceServicer_to_server
from starlette.types import ASGIApp
from typing_extensions import override

from service.engine.engine import Engine
from service.errors import Unauthorized
from service.grpc.servicer import Context, InferenceServicer
from service.http.keys import Keys
from service.runtime import Runtime
from service.settings import Settings

log = logging.getLogger(__name__)

INFERENCE = DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
HEALTH = "grpc.health.v1.Health"
KEYLESS = {f"/{INFERENCE}/ServerLive", f"/{INFERENCE}/ServerReady"}
"""Methods of the inference service that need no API key, like their HTTP routes."""
MAX_CALLS = 1024
"""Calls of a connection at a time; the client holds back further ones."""
QUIET_S = 0.2
"""Time without a new call after which the server stops: gRPC cancels calls that arrive just then."""
LAST_CALLS_S = 2.0
"""Maximum time to wait for that."""
POLL_S = 0.5
"""Interval at which a watched status is read."""

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"


class GrpcServer:
    """The server; created by `start`."""

    def __init__(self, server: aio.Server, gate: "_Gate") -> None:
        self._server = server
        self._gate = gate
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, app: ASGIApp, settings: Settings, runtime: Runtime) -> Self:
        """Listen and serve.

        Args:
            app: the application, which answers all calls but those of health and reflection.
            settings: the settings of the server, with `grpc_port`.
            runtime: the models.

        Raises: OSError if the address is in use, or certificate and key cannot be used.

        """
        gate = _Gate(Keys(settings.api_keys), settings.deadline_s)
        server = aio.server(
            interceptors=[gate],
            options=[
                ("grpc.max_receive_message_length", settings.max_body_bytes),
                ("grpc.max_concurrent_streams", MAX_CALLS),
                ("grpc.so_reuseport", int(settings.workers > 1)),  # otherwise two servers could share a port unnoticed
            ],
        )
        add_GRPCInferenceServiceServicer_to_server(InferenceServicer(app), server)
        add_HealthServicer_to_server(_Health(runtime.engine), server)
        enable_server_reflection([INFERENCE, HEALTH, REFLECTION], server)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address, credentials = f"{host}:{settings.grpc_port}", _credentials(settings)
        try:
            port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        except RuntimeError:
            place = f"{settings.host} (LONGDOC_HOST), port {settings.grpc_port} (LONGDOC_GRPC_PORT)"
            raise OSError(f"cannot listen on {place}: the address is in use, or not one of this machine") from None
        await server.start()
        log.info("listening on %s://%s:%d", "grpcs" if credentials else "grpc", host, port)
        return cls(server, gate)

    def begin_stop(self, grace_s: float) -> None:
        """Refuse new calls; cancel those that are still in progress after `grace_s`."""
        self._stopping = asyncio.create_task(self._stop(grace_s))

    async def _stop(self, grace_s: float) -> None:
        self._gate.is_closed = True
        began = time.monotonic()
        while time.monotonic() < min(began + LAST_CALLS_S, self._gate.last_call + QUIET_S):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await self._server.stop(grace_s)

    async def stopped(self) -> None:
        """Wait until no call is in progress, after `begin_stop`; without it, cancel all calls."""
        if self._stopping is None:
            await self.stop_now()
        else:
            await self._stopping

    async def stop_now(self) -> None:
        """Cancel all calls."""
        await self._server.stop(None)


def _credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """Certificate and private key for TLS; None without. Raises: OSError if they cannot be used."""
    certificate, key = settings.grpc_certificate, settings.grpc_private_key
    if certificate is None or key is None:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except OSError as error:  # among them SSLError; none names its file
        raise OSError(f"grpc_certificate {certificate} and grpc_private_key {key}: {error}") from None
    return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])


class _Gate(aio.ServerInterceptor):
    """Ends calls of the inference service that have no valid key, or come when the server stops.

    Their messages are not read.
    """

    def __init__(self, keys: Keys, deadline_s: float) -> None:
        self._keys = keys
        self._deadline_s = deadline_s
        self.is_closed = False
        self.last_call = -math.inf
        """When the last call of the inference service began, in seconds of `monotonic`."""

    @override
    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Choose the handler of a call."""
        method = handler_call_details.method
        if not method.startswith(f"/{INFERENCE}/"):
            return await continuation(handler_call_details)
        self.last_call = time.monotonic()
        if self.is_closed:
            return _refusal(grpc.StatusCode.UNAVAILABLE, "the server is about to stop; send the call to another one")
        if method not in KEYLESS:
            given = handler_call_details.invocation_metadata
            try:
                self._keys.check({name: value for name, value in given if isinstance(value, str)})
            except Unauthorized as error:
                return _refusal(grpc.StatusCode.UNAUTHENTICATED, str(error))
        handler = await continuation(handler_call_details)
        return None if handler is None else _checked(handler, self._deadline_s)


def _refusal(code: grpc.StatusCode, reason: str) -> Handler:
    """A handler that ends the call. gRPC would read the message of a unary call first, but not that of a stream."""

    async def refuse(_: AsyncIterator[object], context: Context) -> None:
        await context.abort(code, reason)

    return grpc.stream_unary_rpc_method_handler(refuse)


def _checked(handler: "grpc.RpcMethodHandler[Any, Any]", deadline_s: float) -> Handler:
    """A handler that limits the time to send the message, and refuses one that cannot be parsed.

    gRPC itself would wait for a message without end, and log a traceback for a malformed one.
    """
    parse, answer = handler.request_deserializer, cast(Callable[[Any, Context], Awaitable[Any]], handler.unary_unary)
    assert parse is not None

    async def check(messages: AsyncIterator[bytes], context: Context) -> Any:
        try:
            async with asyncio.timeout(deadline_s):
                request = parse(await anext(messages))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed before the message had arrived")
        except (DecodeError, StopAsyncIteration):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is missing or cannot be parsed")
        return await answer(request, context)

    return grpc.stream_unary_rpc_method_handler(check, None, handler.response_serializer)


class _Health(HealthServicer):
    """The protocol of health checks; a server is healthy if `/v2/health/ready` says so."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def _status(self, service: str) -> int:
        if service not in ("", INFERENCE):
            return HealthCheckResponse.SERVICE_UNKNOWN
        return HealthCheckResponse.SERVING if self._engine.is_ready else HealthCheckResponse.NOT_SERVING

    @override
    async def Check(self, request: HealthCheckRequest, context: Context) -> HealthCheckResponse:
        """Status of the server or of a service."""
        status = self._status(request.service)
        if status == HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no such service; {INFERENCE} is served")
        return HealthCheckResponse(status=status)

    @override
    async def Watch(self, request: HealthCheckRequest, context: Context) -> AsyncIterator[HealthCheckResponse]:
        """The status, now and whenever it changes, until the server stops."""
        sent = None
        while not self._engine.is_draining:
            if (status := self._status(request.service)) != sent:
                yield HealthCheckResponse(status=status)
                sent = status
            await asyncio.sleep(POLL_S)
        yield HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING)

    async def List(self, _: object, context: Context) -> None:
        """Refuse the method; the base class would log a traceback."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "use Check")
