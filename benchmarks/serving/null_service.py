"""`python -m benchmarks.serving.null_service`: the server with a backend that computes nothing, or a baseline server.

--make ours: the full request path except the model. --make fastapi: a FastAPI application of the same shape, without
batches. --make asgi: uvicorn alone, the lower bound of the overhead. Used by `benchmarks.serving.front_end` and
`benchmarks.serving.host_side`.
"""

import argparse
import dataclasses
import functools
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import orjson
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response, Security
from fastapi.security import APIKeyHeader
from prometheus_client import Counter, Histogram
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import service.runtime
import service.server
from artifact.backends.cuda import padded_rows, recorded_rows
from artifact.loading import LoadedModel
from benchmarks.lib.interpolation import linear
from benchmarks.lib.record import Data, read
from service import log
from service.engine.loading import RefusedExport, load_models
from service.metrics import Metrics
from service.settings import Settings

MODEL = "imdb-s3"
ANSWER = {
    "model": MODEL,
    "version": 2,
    "results": [
        {
            "label": "positive",
            "score": 0.5,
            "scores": [{"label": "positive", "score": 0.5}, {"label": "negative", "score": 0.5}],
            "coverage": {"bytes_total": 4096, "bytes_used": 4096, "strategy": "whole", "windows": 1, "known": 0.0},
        }
    ],
}


BatchSeconds = Callable[[int, int], float]
"""Seconds of a batch, given its number of rows and their bytes."""


class NullBackend:
    """Backend that returns equal scores for every row, after `batch_s` seconds in which it sleeps.

    The service forms batches as for `device`.
    """

    def __init__(self, batch_s: BatchSeconds, device: Literal["cpu", "cuda"]) -> None:
        self._batch_s = batch_s
        self.device = device

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Logits (B, 2), contributions (B, S, 2) and known (B, 2) of 0."""
        rows, length = inputs["bytes"].shape
        if seconds := self._batch_s(rows, length):
            time.sleep(seconds)
        stretches = -(-length // 256)
        shapes = {"logits": (rows, 2), "contributions": (rows, stretches, 2), "known": (rows, 2)}
        return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def gpu_batches_ms(data: Data) -> dict[int, dict[int, float]]:
    """Milliseconds of a batch on the GPU of the record `gpu`, by bytes of a row and number of rows.

    Raises: ValueError if the record has no batch of MODEL on a GPU.
    """
    found = dict[int, dict[int, float]]()
    for model in data["models"]:
        is_model = model["model"].partition("@")[0] == MODEL
        for batch in model["batches"]:
            if is_model and batch["on"] == "onnx, cuda":
                found.setdefault(batch["bucket"], {})[batch["rows"]] = batch["ms"]
    if not found:
        raise ValueError(f"the record gpu has no batch of {MODEL} on 'onnx, cuda'; measure it on a machine with a GPU")
    return found


def gpu_batch_s(batches_ms: Mapping[int, Mapping[int, float]], rows: int, length: int) -> float:
    """Seconds of a batch on a GPU, padded as there; interpolated between the sizes of `gpu_batches_ms`."""
    padded = padded_rows(rows, recorded_rows(length))
    return linear({bucket: linear(of, padded) for bucket, of in batches_ms.items()}, length) / 1e3


def ours(port: int, backend: NullBackend) -> None:
    """Run the service; only the runtime of the classifier is replaced."""

    def load(
        settings: Settings, metrics: Metrics, required: Collection[str] | None
    ) -> tuple[list[LoadedModel], dict[Path, RefusedExport]]:
        models, refused = load_models(settings, metrics, required)
        chosen = next(model for model in models if model.manifest.name == MODEL)
        return [dataclasses.replace(chosen, backend=backend)], refused  # type: ignore[arg-type]

    log.configure("text")
    service.runtime.load_models = load  # type: ignore[assignment, attr-defined]  # the one place that names the runtime
    service.server.serve(Settings(port=port, drain_delay_s=0, reload_s=0))


class Body(BaseModel):
    """Request body."""

    inputs: str


async def body_of(request: Request) -> Body:
    """The validated body; a dependency, so that the key is checked before."""
    return Body.model_validate_json(await request.body())


router = APIRouter(dependencies=[Security(APIKeyHeader(name="X-API-Key", auto_error=False))])


@router.post("/v1/classify")
async def classify(body: Annotated[Body, Depends(body_of)]) -> Response:
    """Answer immediately."""
    assert body.inputs
    return Response(orjson.dumps(ANSWER), media_type="application/json")


class RequestIdMiddleware:
    """Adds an id and the time to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        started, identifier = time.perf_counter(), uuid.uuid4().hex.encode()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                timing = b"total;dur=%.2f" % (1000 * (time.perf_counter() - started))
                message["headers"] += [(b"x-request-id", identifier), (b"server-timing", timing)]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class MetricsMiddleware:
    """Counts responses and their seconds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._responses = Counter("responses", "Responses", ["path", "status"])
        self._seconds = Histogram("seconds", "Seconds of a response", ["path"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        started, status = time.perf_counter(), 500

        async def send_counted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            self._responses.labels(scope["path"], status).inc()
            self._seconds.labels(scope["path"]).observe(time.perf_counter() - started)


def fastapi_app() -> FastAPI:
    """An application as its users write it: a router with a key, a validated body, two middlewares; without batches."""
    app = FastAPI()
    app.include_router(router)
    app.add_middleware(MetricsMiddleware)
    app.add_middleware(RequestIdMiddleware)
    return app


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Read the body and answer."""
    del scope
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    answer = b'{"model":"imdb-s3"}' * 16
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", choices=["ours", "fastapi", "asgi"], default="ours")
    parser.add_argument("--port", type=int, default=0)
    sleep = parser.add_mutually_exclusive_group()
    sleep.add_argument("--batch-s", type=float, default=0, help="sleep of each batch of ours (default: %(default)s)")
    sleep.add_argument("--gpu", action="store_true", help="sleep as long as the GPU of the record gpu computes")
    args = parser.parse_args()
    if args.make == "ours":
        if args.gpu:
            backend = NullBackend(functools.partial(gpu_batch_s, gpu_batches_ms(read("gpu").data)), "cuda")
        else:
            backend = NullBackend(lambda *_: args.batch_s, "cpu")
        ours(args.port, backend)
    else:
        uvicorn.run(fastapi_app() if args.make == "fastapi" else bare, port=args.port, access_log=False, lifespan="off")


if __name__ == "__main__":
    main()
