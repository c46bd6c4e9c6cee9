"""Logging to standard error, as text or JSON, with the ids of request and trace. Set up by `service.__main__`."""

import json
import logging
import re
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Literal

from typing_extensions import override

request_id: ContextVar[str] = ContextVar("request_id", default="-")
trace_id: ContextVar[str] = ContextVar("trace_id", default="")
TRACEPARENT = re.compile(
    r"(?!ff)(?!00.{53}.)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)
"""Header of W3C Trace Context; later versions may append fields."""
_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def trace_of(traceparents: Sequence[str]) -> str:
    """Trace id in the `traceparent` header of a request; empty if the header is malformed, missing or repeated."""
    match = TRACEPARENT.fullmatch(traceparents[0]) if len(traceparents) == 1 else None
    return match[1] if match else ""


def printable(text: str) -> str:
    """Text with line ends and control characters escaped, as in Python's literals."""
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else char.encode("unicode_escape").decode() for char in text])


class _Text(logging.Formatter):
    """Writes a record as one line; lines of a traceback are indented, so that none looks like a record."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s [%(ids)s] %(message)s")

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    @override
    def formatException(self, ei: _ExceptionInfo) -> str:
        return "\n".join([f"    {printable(line)}" for line in super().formatException(ei).splitlines()])


class _Json(logging.Formatter):
    """Writes a record as one line of ASCII."""

    @override
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
        return json.dumps(line)


def _add_ids(record: logging.LogRecord) -> bool:
    request, trace = request_id.get(), trace_id.get()
    record.request_id, record.trace_id = request, trace
    record.ids = f"{request} trace_id={trace}" if trace else request
    return True


def configure(form: Literal["text", "json"]) -> None:
    """Log to standard error from level INFO, without uvicorn's access log."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    handler.addFilter(_add_ids)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").disabled = True
