"""Errors of the client. All are `LongdocError`."""

import re
from collections.abc import Mapping
from typing import Any

IN_REQUEST = re.compile(r"^input \d+: ")
"""Number of a line among those of its request, which only the client knows."""


class LongdocError(Exception):
    """The service gave no answer."""

    @property
    def reason(self) -> str:
        """What is wrong, without the place."""
        return str(self)


class Unreachable(LongdocError):
    """No connection, or none that lasted until the answer."""


class RequestError(LongdocError):
    """The service refused a request or one of its documents."""

    def __init__(self, problem: Mapping[str, Any], index: int | None = None) -> None:
        """From a problem of the service (RFC 9457); `index` is the number of the document, pair or series, if known."""
        self.status = int(problem.get("status", 0))
        """HTTP status code."""
        self.code = str(problem.get("code", ""))
        """Kind of the error, such as `payload_too_large`."""
        self.detail = str(problem.get("detail", ""))
        """What is wrong, in a sentence."""
        self.errors: list[dict[str, str]] = list(problem.get("errors", ()))
        """Fields at fault: `loc` and `msg` of each."""
        self.request_id = str(problem.get("request_id", ""))
        """The request in the logs of the service."""
        self.index = index
        super().__init__(problem, index)

    @property
    def reason(self) -> str:
        """Status, code and what is wrong, without the place."""
        fields = "; ".join(f"{error.get('loc')}: {error.get('msg')}" for error in self.errors)
        return f"{self.status} {self.code}: {IN_REQUEST.sub('', fields or self.detail)}"

    def __str__(self) -> str:
        return self.reason if self.index is None else f"input {self.index}: {self.reason}"
