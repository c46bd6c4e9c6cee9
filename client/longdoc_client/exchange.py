"""Requests and their repetitions, without input and output: what to send, and what an outcome means.

Both clients share this module and differ only in how they send and wait.
"""

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from longdoc_client.errors import LongdocError, RequestError, Unreachable

LINES_PER_REQUEST = 128
BYTES_PER_REQUEST = 64 * 1024
"""Maximum number and size of the lines of a request; one line alone may be longer. httpx sends a request completely
before it reads the answers, so that it must fit into the buffers of a connection."""
RETRIED = (429, 502, 503, 504)
"""Status codes after which a request is sent again."""
FINAL = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
"""Errors of the address or the headers, which another attempt cannot mend."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0
"""Wait before the second attempt, doubled for each further one up to the longest, if the service names no time."""
GRACE_S = 1.0
"""Time in which the service can report that the deadline has passed."""

JSON, NDJSON, BYTES = "application/json", "application/x-ndjson", "application/octet-stream"

Answer = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One request: a body, or lines of NDJSON, each of which gets an answer."""

    path: str
    lines: tuple[bytes, ...]
    """The body, or the lines."""
    query: Mapping[str, str] = field(default_factory=dict)
    media: str = NDJSON
    first: int = 0
    """Number of the first line among all inputs."""


def encode(value: object) -> bytes:
    """JSON without line ends. Raises: ValueError for text that is no Unicode, such as a lone surrogate, or for NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    """The numbers of NumPy. Raises: TypeError for anything else."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"expected a value that JSON has, got {type(value).__name__}")
    return value.tolist()


def calls(path: str, lines: Iterable[bytes], query: Mapping[str, str] | None = None) -> Iterator[Call]:
    """Requests of NDJSON for any number of lines, which are read as they are needed."""
    part, size, first = list[bytes](), 0, 0
    for line in lines:
        if part and (len(part) == LINES_PER_REQUEST or size + len(line) > BYTES_PER_REQUEST):
            yield Call(path, tuple(part), query or {}, first=first)
            part, size, first = [], 0, first + len(part)
        part.append(line)
        size += len(line) + 1
    if part:
        yield Call(path, tuple(part), query or {}, first=first)


class Exchange:
    """One request until all its lines have an answer, or until the deadline.

    Send `request()`, pass what came back to `receive`, and wait as long as it says, until it returns None.
    """

    def __init__(self, call: Call, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._call, self._clock, self._deadline = call, clock, clock() + timeout_s
        self._found = dict[int, Answer]()
        self._attempts = 0

    @property
    def answers(self) -> list[Answer]:
        """The answers, in the order of the lines; of a line that was refused, `{"error": ...}`."""
        return [self._found[number] for number in range(len(self._call.lines))]

    @property
    def _open(self) -> list[int]:
        """Lines without an answer."""
        return [number for number in range(len(self._call.lines)) if number not in self._found]

    def request(self) -> dict[str, Any]:
        """Arguments of `httpx.Client.post`: the lines without an answer, with the rest of the time as deadline."""
        left = max(self._deadline - self._clock(), 0.001)
        return {
            "url": self._call.path,
            "params": self._call.query,
            "content": b"\n".join(self._call.lines[number] for number in self._open),
            "headers": {"content-type": self._call.media, "x-request-timeout-ms": str(max(1, round(left * 1000)))},
            "timeout": left + GRACE_S,
        }

    def receive(self, outcome: httpx.Response | httpx.TransportError) -> float | None:
        """Seconds to wait before the next attempt; None if there is an answer to each line.

        Raises: RequestError if the service refuses the request, or does so until the deadline; Unreachable if there is
            no connection until then.
        """
        if isinstance(outcome, FINAL):
            raise Unreachable(f"{self._call.path}: {outcome}") from outcome
        if isinstance(outcome, httpx.TransportError):
            return self._again(Unreachable(f"{self._call.path}: {outcome or type(outcome).__name__}"))
        if outcome.status_code != 200:
            error = RequestError(_problem(outcome))
            if outcome.status_code not in RETRIED:
                raise error
            return self._again(error, _seconds(outcome.headers.get("retry-after", "")))
        parts = outcome.content.splitlines() if self._call.media == NDJSON else [outcome.content]
        try:
            lines = [json.loads(line) for line in parts if line]
        except ValueError:  # of a server in between, such as a page to log in
            raise RequestError(_problem(outcome)) from None
        return self._receive_lines(lines)

    def _receive_lines(self, lines: list[Answer]) -> float | None:
        """Store the answers; lines that the service could not answer now are open until the deadline."""
        postponed = dict[int, Answer]()
        for number, line in zip(self._open, lines, strict=False):
            is_retried = "error" in line and line["error"].get("status") in RETRIED
            (postponed if is_retried else self._found)[number] = line
        if not self._open:
            return None
        refused = next(iter(postponed.values()), {"error": {"detail": "the answer ended early", "status": 503}})
        try:
            return self._again(RequestError(refused["error"]))
        except RequestError:
            self._found |= postponed
            if self._open:
                raise
            return None

    def _again(self, error: LongdocError, wait_s: float | None = None) -> float:
        """Seconds to wait before the next attempt. Raises the error if the deadline comes first."""
        if wait_s is None:
            longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**self._attempts)
            wait_s = longest * random.uniform(0.5, 1)
        self._attempts += 1
        if self._clock() + wait_s >= self._deadline:
            raise error
        return wait_s


def _problem(response: httpx.Response) -> Mapping[str, Any]:
    """The problem in a response; of a server in between, such as a proxy, its status and the start of its text."""
    try:
        found = response.json()
    except ValueError:
        found = None
    if isinstance(found, dict) and isinstance(found.get("status"), int):
        return found
    return {"status": response.status_code, "code": "unexpected_response", "detail": response.text[:200]}


def _seconds(header: str) -> float | None:
    """Seconds of a Retry-After, not less than the first wait; None for another form."""
    try:
        return max(FIRST_WAIT_S, float(header))
    except ValueError:
        return None
