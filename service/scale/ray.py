"""The application on Ray Serve: `longdoc-serve ray`, or `serve run service.scale.ray:app`. Needs the extra `ray`.

Each replica is what a process of the plain service is: models, queues, dynamic batching, limits and metrics. Ray
Serve starts replicas on the nodes of a cluster, replaces those that fail, and scales them by their number of ongoing
requests. A proxy on every node receives HTTP requests and passes each to a replica.
"""

import asyncio
import functools
import logging
import signal
import threading
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import ray
from pydantic import Field, model_validator
from ray import serve
from ray.serve.config import AutoscalingConfig, HTTPOptions, ProxyLocation
from ray.serve.schema import LoggingConfig
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from artifact.cores import cpu_count
from service import log as logs
from service.app import create_app
from service.metrics import SAMPLE_S, Metrics
from service.runtime import Runtime
from service.scale.shared_metrics import SharedMetrics
from service.server import obeyed_signals, tune_interpreter
from service.settings import Settings

log = logging.getLogger(__name__)

NAME = "longdoc"
"""Name of the Ray Serve application and of its deployment."""
MAX_ONGOING = 4096
"""Maximum ongoing requests per replica. The queues of the models have limits of their own and answer 429; Ray's default
of 5 would leave nothing to batch."""
HEALTH_S = 5.0
"""Interval of the health checks of a replica; each may take twice as long."""


class RaySettings(Settings):
    """The settings of the service, and what Ray Serve does with the replicas. `workers` has no effect."""

    min_replicas: int = Field(default=1, gt=0)
    """Minimum number of replicas."""
    max_replicas: int = Field(default=1, gt=0)
    """Maximum number of replicas."""
    target_ongoing_requests: float = Field(default=32.0, gt=0)
    """Ongoing requests per replica, queued ones included, beyond which replicas are added."""
    replica_cores: int = Field(default=1, gt=0)
    """CPU cores per replica."""
    replica_gpus: float = Field(default=0.0, ge=0)
    """GPUs per replica."""

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        """Raises: ValueError if settings exclude each other, or need what a replica does not have."""
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas is {self.min_replicas}; it must be at most max_replicas, {self.max_replicas}"
            )
        if self.model_control and self.max_replicas > 1:
            raise ValueError("model_control: a request would reach one of the replicas only; set max_replicas to 1")
        if self.grpc_port is not None:
            raise ValueError("grpc_port: gRPC is not supported on Ray; leave it unset")
        if self.otlp_endpoint is not None:
            raise ValueError("otlp_endpoint: traces are not supported on Ray; leave it unset")
        return self


class Replica:
    """The models and the application of one replica."""

    def __init__(self, values: dict[str, Any]) -> None:
        """Load the models.

        Args:
            values: values of `RaySettings`; a replica is created from values that can be pickled.

        Raises: BadExport if a model cannot be served.

        """
        settings = RaySettings(**values)
        # The replicas of a node share its cores as the workers of a plain server do.
        workers = max(1, cpu_count() // settings.replica_cores)
        self._settings = settings.model_copy(update={"workers": workers})
        logs.configure(self._settings.log_format)
        tune_interpreter()
        context = ray.get_runtime_context()
        node, app = context.get_node_id(), quote(serve.get_replica_context().app_name, safe="")
        session = Path(context.get_temp_dir()) / context.get_session_name()
        self._shared = SharedMetrics(session / "longdoc-metrics" / node / app)
        self._runtime = Runtime.load(self._settings, Metrics(self._shared.folder, node))

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the ASGI application; Ray Serve calls it after the constructor."""
        return _WithoutIds(create_app(self._settings, runtime=self._runtime), self._shared)

    async def check_health(self) -> None:
        """Raise RuntimeError if the backend has crashed: Ray Serve then replaces the replica."""
        if self._runtime.engine.crashed.is_set():
            raise RuntimeError("the backend crashed; the log of the replica has the reason")


class _WithoutIds:
    """The application, which starts and stops with the replica (ASGI lifespan).

    Ray's proxies set X-Request-Id in requests without one, and add it to responses: the application's is left out.
    """

    def __init__(self, app: ASGIApp, shared: SharedMetrics) -> None:
        self._app = app
        self._shared = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the lifespan of the replica. Ray first waits for the requests in flight."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, functools.partial(_send_without_id, send))
            return
        removing = asyncio.create_task(self._remove_ended())
        await self._app(scope, receive, send)
        removing.cancel()

    async def _remove_ended(self) -> None:
        """Remove the gauges of replicas that have ended, until cancelled."""
        while True:
            self._shared.remove_ended()
            await asyncio.sleep(SAMPLE_S)


async def _send_without_id(send: Send, message: Message) -> None:
    """Send a message of a response without the header X-Request-Id."""
    if message["type"] == "http.response.start":
        message["headers"] = [field for field in message["headers"] if field[0] != b"x-request-id"]
    await send(message)


def create_application(settings: RaySettings) -> serve.Application:
    """Create the Ray Serve application."""
    deployment = serve.deployment(
        name=NAME,
        ray_actor_options={"num_cpus": settings.replica_cores, "num_gpus": settings.replica_gpus},
        autoscaling_config=AutoscalingConfig(
            min_replicas=settings.min_replicas,
            max_replicas=settings.max_replicas,
            target_ongoing_requests=settings.target_ongoing_requests,
        ),
        max_ongoing_requests=MAX_ONGOING,
        graceful_shutdown_timeout_s=settings.drain_timeout_s + 5,
        health_check_period_s=HEALTH_S,
        health_check_timeout_s=2 * HEALTH_S,
        logging_config=LoggingConfig(enable_access_log=False),
    )(serve.ingress()(Replica))
    values = settings.model_dump(mode="json", exclude_unset=True) | {"exports": str(settings.exports.absolute())}
    if settings.api_keys:
        values["api_keys"] = ",".join(key.get_secret_value() for key in settings.api_keys)
    application: serve.Application = deployment.bind(values)
    return application


def app(arguments: dict[str, Any]) -> serve.Application:
    """Create the application from the arguments of `serve run` or of a Serve config, which are settings by name.

    Raises: pydantic.ValidationError that names a wrong argument.
    """
    return create_application(RaySettings(**arguments))


def run(settings: RaySettings) -> int:
    """Serve on the Ray cluster of this machine, or a new one, until a signal, then drain; return the exit code 0."""
    serve.start(
        proxy_location=ProxyLocation.EveryNode,
        http_options=HTTPOptions(
            host=settings.host,
            port=settings.port,
            request_timeout_s=None,  # the service has deadlines of its own
        ),
    )
    stopped = threading.Event()
    for number in obeyed_signals():  # Ray's own handlers would end the process without a drain
        signal.signal(number, lambda *_: stopped.set())
    serve.run(create_application(settings), name=NAME, route_prefix="/")
    stopped.wait()
    serve.delete(NAME)  # returns when the replicas have drained
    return 0
