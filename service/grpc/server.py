"""The gRPC server, in the process and on the event loop of the HTTP server."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self, TypeAlias

import grpc
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
OPEN = {f"/{INFERENCE}/ServerLive", f"/{INFERENCE}/ServerReady"}
"""Methods of the inference service that need no API key, like their HTTP routes."""
MAX_CALLS = 1024
"""Calls at a time; further ones get RESOURCE_EXHAUSTED."""
POLL_S = 0.5
"""Interval at which a watched status is read."""

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"


class GrpcServer:
    """The server; created by `start`."""

    def __init__(self, server: aio.Server) -> None:
        self._server = server
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
        server = aio.server(
            interceptors=[_RequireKey(Keys(settings.api_keys))],
            options=[
                ("grpc.max_receive_message_length", settings.max_body_bytes),
                ("grpc.so_reuseport", int(settings.workers > 1)),  # otherwise two servers could share a port unnoticed
            ],
            maximum_concurrent_rpcs=MAX_CALLS,
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
        return cls(server)

    def begin_stop(self, grace_s: float) -> None:
        """Accept no more calls; cancel those that are still in progress after `grace_s`."""
        self._stopping = asyncio.create_task(self._server.stop(grace_s))

    async def stop(self, grace_s: float | None) -> None:
        """Stop; wait until no call is in progress, at most `grace_s`. None cancels them at once."""
        await self._server.stop(grace_s)


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


class _RequireKey(aio.ServerInterceptor):
    """Ends calls of the inference service without a valid key before their message is read."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    @override
    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Choose the handler of a call."""
        method = handler_call_details.method
        if method.startswith(f"/{INFERENCE}/") and method not in OPEN:
            given = handler_call_details.invocation_metadata
            try:
                self._keys.check({name: value for name, value in given if isinstance(value, str)})
            except Unauthorized as error:
                return _refusal(str(error))
        return await continuation(handler_call_details)


def _refusal(reason: str) -> Handler:
    """A handler that ends the call. As one of a stream, it does not read the message."""

    async def refuse(_: AsyncIterator[object], context: Context) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)

    return grpc.stream_unary_rpc_method_handler(refuse)


class _Health(HealthServicer):
    """Health of the server, as `/v2/health/ready`, by the protocol of gRPC."""

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
