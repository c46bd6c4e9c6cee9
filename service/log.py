"""Log lines on standard error, text or JSON, each with the id of its request. Set up by `service.__main__`."""

import json
import logging
import sys
from contextvars import ContextVar
from typing import Literal

request_id: ContextVar[str] = ContextVar("request_id", default="-")


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s [%(request_id)s] %(message)s")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request_id": getattr(record, "request_id", "-"),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _add_request_id(record: logging.LogRecord) -> bool:
    record.request_id = request_id.get()
    return True


def configure(form: Literal["text", "json"]) -> None:
    """Send everything from INFO up to standard error; uvicorn's lines per request are left out."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    handler.addFilter(_add_request_id)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").disabled = True
