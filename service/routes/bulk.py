"""Uploads of NDJSON: one document or request per line; the response has one line for each, in order.

The upload may have any length. The number of pending lines is limited, and so are their bytes: at the limit, the next
line is read only after the response to an earlier one has been sent. An invalid line gets an error in its place; other
lines are not affected.
"""

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

import orjson
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from artifact.encodings import MARK
from artifact.errors import InvalidInput, LongdocError
from artifact.tasks.base import Computation
from service.batching.admission import ClientLimit, limited
from service.engine.served import AnyModel
from service.errors import (
    DeadlineExceeded,
    MalformedInput,
    Overloaded,
    PayloadTooLarge,
    ShuttingDown,
    clear_tracebacks,
)
from service.wire.context import RequestContext
from service.wire.disconnect import CancelOnDisconnect
from service.wire.errors import failure, problem
from service.wire.media import NDJSON
from service.wire.parsing import is_quick, parse_json
from service.wire.schemas import Line

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A")
L = TypeVar("L", bound=Line)

MAX_PENDING_LINES = 64
"""Maximum number of lines whose response has not been sent: enough to fill the batches of every slot."""
MAX_PENDING_BYTES = 8 * 2**20
"""Maximum total size of these lines and of the details in their answers; one line alone may have more."""
BLANK_LINES = re.compile(rb"\n[ \t\r\v\f\n]*\n")
"""Blank lines after a line. A small compressed body can contain millions; handling each one would take seconds."""
RETRY_S = 0.1
"""Time between two attempts to enqueue a line while the queue is full."""
POLL_S = 1.0
"""Time between two checks whether the server is draining, while the client sends nothing."""


class BulkResponse(Response, ABC, Generic[T]):
    """Reads, computes and responds concurrently. `T` is the content of a line.

    Args:
        context: the request.
        parse: parses a line; of large ones in another process, so it must be picklable.

    """

    media_type = NDJSON

    def __init__(self, context: RequestContext, parse: Callable[[bytes], "ParsedLine[T]"]) -> None:
        super().__init__()
        self._parse_line = parse
        del self.headers["content-length"]
        self._engine = context.runtime.engine
        self._settings = context.runtime.settings
        self._parser = context.runtime.parser
        self._deadline_s = _deadline_s(context)
        self._path = context.path
        self._body = context.body
        self._body.unlimit()
        self._answers: asyncio.Queue[tuple[asyncio.Task[bytes], int] | None] = asyncio.Queue()
        self._pending_lines = self._pending_bytes = self._partial_bytes = 0
        self._has_room = asyncio.Event()
        self._waited_s = 0.0

    @abstractmethod
    def answer_bytes(self, line: bytes) -> int:
        """Maximum bytes of the answer to a line that are counted as held while the line is pending."""

    @abstractmethod
    async def answer(self, content: T) -> dict[str, Any]:
        """The answer to a line. Raises: LongdocError."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. Raises: InvalidInput if the body has no lines; ClientDisconnect."""
        del scope, receive
        await self._stream(send)

    async def _stream(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        has_started = False
        with CancelOnDisconnect() as scope:
            reader = scope.watch(self._read())
            try:
                while (entry := await self._answers.get()) is not None:
                    answer, size = entry
                    body = await answer
                    if not has_started:
                        has_started = True
                        await send(start)
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    self._pending_lines -= 1
                    self._pending_bytes -= size
                    self._count_held(self._partial_bytes)
                    self._has_room.set()
                if reader.done():
                    reader.result()
                if not has_started:
                    raise InvalidInput.at("body", "at least 1 line is needed")
                await send({"type": "http.response.body", "body": b""})
            finally:
                while not self._answers.empty():
                    if (entry := self._answers.get_nowait()) is not None:
                        entry[0].cancel()

    async def _read(self) -> None:
        """Start a task per line, within the limits; then wait for the disconnect. Raises: ClientDisconnect."""
        index = 0
        try:
            async for line in self._split():
                size = len(line) + self.answer_bytes(line)
                while self._pending_lines and (
                    self._pending_lines >= MAX_PENDING_LINES or self._pending_bytes + size > MAX_PENDING_BYTES
                ):
                    await self._wait_for_room()
                self._add(self._answer(index, line), size)
                index += 1
        except LongdocError as error:  # no further line is read
            self._add(self._reject(index, error), 0)
        finally:
            self._answers.put_nowait(None)
        while (await self._body.raw())["type"] != "http.disconnect":  # drop the rest of the body
            pass
        raise ClientDisconnect

    def _add(self, work: Any, size: int) -> None:
        """Start a task that answers a line; `size` is the number of bytes that the line and its answer hold."""
        self._pending_lines += 1
        self._pending_bytes += size
        self._count_held(0)
        self._answers.put_nowait((asyncio.create_task(work), size))

    async def _wait_for_room(self) -> None:
        self._has_room.clear()
        await self._has_room.wait()

    def _count_held(self, partial_bytes: int) -> None:
        """Count the bytes held: those of pending lines and their answers, and `partial_bytes` of an incomplete line."""
        self._partial_bytes = partial_bytes
        self._body.hold(self._pending_bytes + partial_bytes)

    async def _split(self) -> AsyncIterator[bytes]:
        """Lines of the body, without blank ones. Of a line that is too long, one byte more than the limit is kept.

        Raises: Overloaded if all requests together hold too many bytes and no line is pending; PayloadTooLarge if
            there are as many bytes of blank lines as a body may have.
        """
        parts, size, limit = list[bytes](), 0, self._settings.max_body_bytes + len(b"\r") + 1
        blank = 0
        async for chunk in self._chunks():
            *ends, rest = BLANK_LINES.sub(b"\n", chunk).split(b"\n")
            if not size and not rest.isspace() and rest:
                self._waited_s = 0.0  # a line begins
            blank += len(chunk)
            for end in ends:
                parts.append(end[: limit - size])
                if line := self._strip(b"".join(parts)):
                    self._waited_s, blank = 0.0, 0
                    yield line
                parts, size = [], 0
            parts.append(rest[: limit - size])
            size += len(parts[-1])
            if rest and not rest.isspace():
                blank = 0
            if blank > self._settings.max_body_bytes:
                raise PayloadTooLarge(f"more than {self._settings.max_body_bytes} bytes of blank lines")
            self._count_held(size)
            while self._body.is_memory_full and self._pending_lines:
                await self._wait_for_room()
            self._body.check()
        if line := self._strip(b"".join(parts)):
            yield line

    def _strip(self, line: bytes) -> bytes:
        """Strip whitespace from a line; a truncated line is returned unchanged."""
        return line if len(line.removesuffix(b"\r")) > self._settings.max_body_bytes else line.strip()

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Chunks of the body.

        A line must start within the deadline after the previous one, and be complete within the deadline after its
        first byte. Only time spent waiting for the client counts.

        Raises: ShuttingDown, DeadlineExceeded, ClientDisconnect.
        """
        loop = asyncio.get_running_loop()
        while True:
            if self._engine.is_draining:
                raise ShuttingDown("the server is shutting down; send this and the following lines to another server")
            if self._waited_s > self._deadline_s:
                raise DeadlineExceeded(f"no complete line arrived for {self._deadline_s:g} s")
            since = loop.time()
            try:
                async with asyncio.timeout(POLL_S):
                    message = await self._body()
            except TimeoutError:
                continue
            finally:  # count only time spent waiting for the client
                self._waited_s += loop.time() - since
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return

    async def _answer(self, index: int, line: bytes) -> bytes:
        """One line of the response."""
        fields: dict[str, Any] = {"index": index}
        try:
            if len(line) > self._settings.max_body_bytes:
                raise PayloadTooLarge(f"the line is longer than {self._settings.max_body_bytes} bytes")
            line_id, content = await self._parse(line)
            if line_id is not None:
                fields["id"] = line_id
            if isinstance(content, LongdocError):
                raise content
            result = await self.answer(content)
        except Exception as error:
            if not isinstance(error, LongdocError):
                log.exception("line %d failed", index)
            clear_tracebacks(error)
            failed = failure(error, self._path)
            result = {"error": problem(replace(failed, detail=f"input {index}: {failed.detail}"))}
        return self._line({**fields, **result})

    async def _parse(self, line: bytes) -> "ParsedLine[T]":
        """Parse a line. Raises: DeadlineExceeded, NotReady."""
        try:
            async with asyncio.timeout(self._deadline_s):
                return self._parse_line(line) if is_quick(line) else await self._parser.run(self._parse_line, line)
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed before the line was parsed") from None

    async def _reject(self, index: int, error: LongdocError) -> bytes:
        return self._line({"index": index, "error": problem(failure(error, self._path))})

    def _line(self, content: Mapping[str, Any]) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)

    async def run(self, model: AnyModel, start: Callable[[], Computation[A]], items: int) -> A:
        """Run a computation that `start` returns; retry while the queue is full. Raises: as `ServedModel.run`."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        deadline = limited(now + self._settings.deadline_s, now + self._deadline_s)
        while True:
            try:
                answer, timing = await model.run(start(), deadline, items=items, bulk=True)
            except Overloaded:
                if loop.time() + RETRY_S > deadline:
                    model.metrics.rejected("overloaded")
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                model.metrics.queue_seconds.observe(timing.queue)
                model.metrics.compute_seconds.observe(timing.compute)
                return answer


def _deadline_s(context: RequestContext) -> float:
    """Seconds until the deadline of each line: the client's, if it set one, or the server's."""
    if isinstance(context.deadline, ClientLimit):
        return round(context.deadline - asyncio.get_running_loop().time(), 3)
    return context.runtime.settings.deadline_s


class ParsedLine(NamedTuple, Generic[T]):
    """The content of a line."""

    id: str | int | None
    content: T | LongdocError


def parse_line(schema: type[L], read: Callable[[L], T], line: bytes) -> ParsedLine[T]:
    """Validate a line and read its content; returns its id even if the rest is invalid."""
    line = line.removeprefix(MARK)
    try:
        parsed = parse_json(schema, line)
        return ParsedLine(parsed.id, read(parsed))
    except InvalidInput as error:
        clear_tracebacks(error)
        return ParsedLine(_id_of(line), error)
    except (MalformedInput, PayloadTooLarge) as error:
        return ParsedLine(None, type(error)(str(error).replace("the body", "the line", 1)))


def _id_of(line: bytes) -> str | int | None:
    """The id of an invalid line; None if it has no valid one."""
    try:
        return Line.model_validate({"id": orjson.loads(line)["id"]}, strict=True).id
    except (orjson.JSONDecodeError, ValidationError, TypeError, LookupError):
        return None
