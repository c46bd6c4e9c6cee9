"""Log lines on standard error, text or JSON, each with the ids of request and trace. Set up by `service.__main__`."""

import json
import logging
import re
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Literal

request_id: ContextVar[str] = ContextVar("request_id", default="-")
trace_id: ContextVar[str] = ContextVar("trace_id", default="")
TRACEPARENT = re.compile(
    r"(?!ff)(?!00.{53}.)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)
"""Of W3C Trace Context; versions to come may be longer."""


def trace_of(traceparents: Sequence[str]) -> str:
    """Trace id in the `traceparent` headers of a request; empty if it is malformed, or there is not just one."""
    match = TRACEPARENT.fullmatch(traceparents[0]) if len(traceparents) == 1 else None
    return match[1] if match else ""


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s [%(ids)s] %(message)s")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request_id": getattr(record, "request_id", "-"),
            "message": record.getMessage(),
        }
        if trace := getattr(record, "trace_id", ""):
            line["trace_id"] = trace
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _add_ids(record: logging.LogRecord) -> bool:
    request, trace = request_id.get(), trace_id.get()
    record.request_id, record.trace_id = request, trace
    record.ids = f"{request} trace_id={trace}" if trace else request
    return True


def configure(form: Literal["text", "json"]) -> None:
    """Send everything from INFO up to standard error; uvicorn's lines per request are left out."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    handler.addFilter(_add_ids)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").disabled = True
