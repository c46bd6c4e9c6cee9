"""Answers: their encoding, the common parts of their bodies, and where their time went. Used by the routes."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from fastapi import Request, Response

from artifact.documents import OnOverflow
from artifact.manifest import Manifest
from service.engine.engine import ServedModel
from service.tasks.classification import Classification
from service.tasks.timing import Timing
from service.wire.schemas import ClassifyOptions


def json_response(content: Any, status: int = 200, media_type: str = "application/json") -> Response:
    """An answer as JSON."""
    return Response(orjson.dumps(content), status, media_type=media_type)


def coverage(bytes_total: int, bytes_used: int, windows: int, on_overflow: OnOverflow) -> dict[str, Any]:
    """What of a document was read."""
    is_cut = windows > 1 or bytes_used < bytes_total
    return {
        "bytes_total": bytes_total,
        "bytes_used": bytes_used,
        "strategy": on_overflow if is_cut else "whole",
        "windows": windows,
    }


def describe(answer: Classification, labels: Sequence[str], options: ClassifyOptions) -> dict[str, Any]:
    """Result of one document as it goes over the wire, best score first."""
    scores = _ranked(answer.scores.tolist(), labels, options.top_k)
    result: dict[str, Any] = {
        **scores[0],
        "scores": scores,
        "coverage": coverage(answer.bytes_total, answer.bytes_used, len(answer.windows), options.on_overflow),
    }
    if options.detail:
        result["windows"] = [
            {"start": start, "end": end, "scores": _ranked(row.tolist(), labels, options.top_k)}
            for spans, row in answer.windows
            for start, end in spans
        ]
    return result


def _ranked(scores: Sequence[float], labels: Sequence[str], top_k: int | None) -> list[dict[str, Any]]:
    """Labels with their scores, best first."""
    pairs = sorted(zip(labels, scores, strict=True), key=lambda pair: -pair[1])
    return [{"label": label, "score": score} for label, score in pairs[:top_k]]


class Work(NamedTuple):
    """What was done for a request and when, on the clock of `perf_counter`; for its trace."""

    manifest: Manifest
    timing: Timing
    started: float
    computed: float
    finished: float


class Stopwatch:
    """Times of one request: created when its head has come, read when its answer is made."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._started = self._computed = time.perf_counter()

    def computed(self) -> None:
        """Mark the end of the work; what follows is encoding."""
        self._computed = time.perf_counter()

    def respond(self, model: ServedModel, timing: Timing, content: dict[str, Any]) -> Response:
        """Encode an answer that says which model gave it; record its stages."""
        named = {"model": model.manifest.name, "version": model.manifest.version, **content}
        return self.finish(model, timing, json_response(named))

    def finish(self, model: ServedModel, timing: Timing, response: Response) -> Response:
        """Put the stages of an answer into the metrics and the Server-Timing header."""
        finished = time.perf_counter()
        metrics = model.metrics
        metrics.decode_seconds.observe(timing.decode)
        metrics.queue_seconds.observe(timing.queue)
        metrics.compute_seconds.observe(timing.compute)
        metrics.encode_seconds.observe(finished - self._computed)
        metrics.duration(model.manifest.task).observe(finished - self._started)
        self._request.state.timing.update(queue=timing.queue, compute=timing.compute)
        if "trace_id" in self._request.scope:  # a span is made of it
            self._request.state.work = Work(model.manifest, timing, self._started, self._computed, finished)
        return response
