"""Answers: the common parts of their bodies, and where their time went. Used by the routes of the tasks."""

import time
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from service.codec import OnOverflow
from service.engine import ServedModel
from service.tasks.timing import Timing


def coverage(bytes_total: int, bytes_used: int, windows: int, on_overflow: OnOverflow) -> dict[str, Any]:
    """What of a document was read."""
    is_cut = windows > 1 or bytes_used < bytes_total
    return {
        "bytes_total": bytes_total,
        "bytes_used": bytes_used,
        "strategy": on_overflow if is_cut else "whole",
        "windows": windows,
    }


class Stopwatch:
    """Times of one request: created when its head has come, read when its answer is made."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._started = self._computed = time.perf_counter()

    def computed(self) -> None:
        """Mark the end of the work; what follows is encoding."""
        self._computed = time.perf_counter()

    def respond(self, model: ServedModel, timing: Timing, content: dict[str, Any]) -> JSONResponse:
        """Encode an answer; put its stages into the metrics and the Server-Timing header."""
        response = JSONResponse({"model": model.manifest.name, "version": model.manifest.version, **content})
        finished = time.perf_counter()
        metrics = model.metrics
        metrics.decode_seconds.observe(timing.decode)
        metrics.queue_seconds.observe(timing.queue)
        metrics.compute_seconds.observe(timing.compute)
        metrics.encode_seconds.observe(finished - self._computed)
        metrics.duration(model.manifest.task).observe(finished - self._started)
        self._request.state.timing.update(queue=timing.queue, compute=timing.compute)
        return response
