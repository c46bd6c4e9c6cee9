"""Uploads of NDJSON: one document or request per line; the response has one line for each, in order.

The upload may have any length. The number of pending lines is limited, and so are their bytes: at the limit, the next
line is read only after the response to an earlier one has been sent. Short lines that arrive together may be computed
together. An invalid line gets an error in its place; other lines are not affected.
"""

import asyncio
import itertools
import logging
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

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
    NotReady,
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

MAX_PENDING_LINES = 256
"""Maximum number of lines whose response has not been sent: enough that slots seldom wait for lines."""
ALL_PENDING_LINES = 4096
"""Maximum number of these lines of all uploads together, which share it equally."""
MAX_PENDING_BYTES = 8 * 2**20
"""Maximum total size of these lines and of the details in their answers; one line alone may have more."""
GROUP_BYTES = 4096
"""Maximum size of a line and of the details in its answer, if the line is computed together with others."""
WRITE_BYTES = 64 * 1024
"""Answers that are ready are joined until they have this size; they are copied, and copies do not count as held."""
BLANK_LINES = re.compile(rb"\n[ \t\r\v\f\n]*\n")
"""Blank lines after a line. A small compressed body can contain millions; handling each one would take seconds."""
POLL_S = 1.0
"""Time between two checks whether the server is draining, while the client sends nothing."""
FINAL_ERRORS = (DeadlineExceeded, NotReady, ShuttingDown)
"""Errors of a group after which its lines are not computed alone: each would have the same error."""


class BulkResponse(Response, ABC, Generic[T]):
    """Reads, computes and responds concurrently. `T` is the content of a line.

    Args:
        context: the request.
        parse: parses a line; of large ones in another process, so it must be picklable.

    """

    media_type = NDJSON
    most_together: ClassVar[int] = 1
    """Maximum number of consecutive lines that are computed together, which takes less time."""

    def __init__(self, context: RequestContext, parse: Callable[[bytes], "ParsedLine[T]"]) -> None:
        super().__init__()
        self._parse_line = parse
        del self.headers["content-length"]
        self._runtime = context.runtime
        self._engine = context.runtime.engine
        self._settings = context.runtime.settings
        self._parser = context.runtime.parser
        self._deadline_s = _deadline_s(context)
        self._path = context.path
        self._body = context.body
        self._body.unlimit()
        self._groups = deque[Group]()
        self._has_group = asyncio.Event()
        self._is_read = False
        self._pending_lines = self._pending_bytes = self._partial_bytes = 0
        self._has_room = asyncio.Event()
        self._waited_s = 0.0

    @abstractmethod
    def answer_bytes(self, line: bytes) -> int:
        """Maximum bytes of the answer to a line that are counted as held while the line is pending."""

    @abstractmethod
    async def answer(self, content: T) -> dict[str, Any]:
        """The answer to a line. Raises: LongdocError."""

    async def answers(self, contents: Sequence[T]) -> Sequence[dict[str, Any] | BaseException]:
        """The answers to at most `most_together` lines, or the error of each.

        An override that computes them together raises LongdocError if one of them fails.
        """
        found: list[Any] = await asyncio.gather(*map(self.answer, contents), return_exceptions=True)
        return found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response.

        Raises: ShuttingDown if the server is draining; InvalidInput if the body has no lines; ClientDisconnect.
        """
        del scope, receive
        if self._engine.is_draining:
            raise ShuttingDown("the server is shutting down; send the upload to another server")
        self._runtime.uploads += 1
        try:
            await self._stream(send)
        finally:
            self._runtime.uploads -= 1

    async def _stream(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        has_started = False
        with CancelOnDisconnect() as scope:
            reader = scope.watch(self._read())
            try:
                while ended := await self._next_answers():
                    if not has_started:
                        has_started = True
                        await send(start)
                    body = b"".join(group.answer.result() for group in ended)
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    self._pending_lines -= sum(group.lines for group in ended)
                    self._pending_bytes -= sum(group.bytes for group in ended)
                    self._count_held(self._partial_bytes)
                    self._has_room.set()
                if reader.done():
                    reader.result()
                if not has_started:
                    raise InvalidInput.at("body", "at least 1 line is needed")
                await send({"type": "http.response.body", "body": b""})
            finally:
                for group in self._groups:
                    group.answer.cancel()

    async def _next_answers(self) -> list["Group"]:
        """Wait for the next group; return it and those after it that have ended, up to WRITE_BYTES; none at the end."""
        while not self._groups and not self._is_read:
            self._has_group.clear()
            await self._has_group.wait()
        if self._groups:
            await self._groups[0].answer
        ended, size = list[Group](), 0
        while self._groups and self._groups[0].answer.done() and size < WRITE_BYTES:
            ended.append(self._groups.popleft())
            size += len(ended[-1].answer.result())
        return ended

    async def _read(self) -> None:
        """Start a task per group, within the limits; then wait for the disconnect. Raises: ClientDisconnect."""
        index = 0
        try:
            async for lines in self._split():
                for group, size in grouped(lines, self.most_together, self.answer_bytes):
                    while self._pending_lines and (
                        self._pending_lines + len(group) > self._max_pending_lines()
                        or self._pending_bytes + size > MAX_PENDING_BYTES
                    ):
                        await self._wait_for_room()
                    self._add(self._answer(index, group), len(group), size)
                    index += len(group)
        except LongdocError as error:  # no further line is read
            self._add(self._reject(index, error), 1, 0)
        finally:
            self._is_read = True
            self._has_group.set()
        while (await self._body.raw())["type"] != "http.disconnect":  # drop the rest of the body
            pass
        raise ClientDisconnect

    def _max_pending_lines(self) -> int:
        """Maximum number of pending lines of this upload; one group may always be pending."""
        return min(MAX_PENDING_LINES, ALL_PENDING_LINES // self._runtime.uploads)

    def _add(self, work: Coroutine[Any, Any, bytes], lines: int, size: int) -> None:
        """Start a task that answers a group; `size` is the number of bytes that its lines and their answers hold."""
        self._pending_lines += lines
        self._pending_bytes += size
        self._count_held(0)
        self._groups.append(Group(asyncio.create_task(work), lines, size))
        self._has_group.set()

    async def _wait_for_room(self) -> None:
        self._has_room.clear()
        await self._has_room.wait()

    def _count_held(self, partial_bytes: int) -> None:
        """Count the bytes held: those of pending lines and their answers, and `partial_bytes` of an incomplete line."""
        self._partial_bytes = partial_bytes
        self._body.hold(self._pending_bytes + partial_bytes)

    async def _split(self) -> AsyncIterator[list[bytes]]:
        """Lines of each chunk, without blank ones. Of a line that is too long, one byte more than the limit is kept.

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
            lines = list[bytes]()
            for end in ends:
                parts.append(end[: limit - size])
                if line := self._strip(b"".join(parts)):
                    lines.append(line)
                parts, size = [], 0
            if lines:
                self._waited_s, blank = 0.0, 0
                yield lines
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
            yield [line]

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

    async def _answer(self, first: int, lines: Sequence[bytes]) -> bytes:
        """Lines of the response to consecutive lines, of which the first one has the index `first`."""
        parsed = [await self._parse(line) for line in lines]
        valid = [content for _, content in parsed if not isinstance(content, Exception)]
        found: Iterable[dict[str, Any] | BaseException]
        try:
            found = await self.answers(valid) if len(valid) > 1 else [await self.answer(one) for one in valid]
        except Exception as error:
            if len(valid) > 1 and not isinstance(error, FINAL_ERRORS):
                if not isinstance(error, LongdocError):
                    log.exception("lines %d to %d failed together", first, first + len(lines) - 1)
                clear_tracebacks(error)
                alone = (self._answer(first + i, [line]) for i, line in enumerate(lines))
                return b"".join(await asyncio.gather(*alone))
            found = itertools.repeat(error)
        answers = iter(found)
        return b"".join(
            self._line(first + i, line_id, content if isinstance(content, Exception) else next(answers))
            for i, (line_id, content) in enumerate(parsed)
        )

    async def _parse(self, line: bytes) -> "ParsedLine[T]":
        """Parse a line; its content is an error if that is not possible."""
        if len(line) > self._settings.max_body_bytes:
            return ParsedLine(None, PayloadTooLarge(f"the line is longer than {self._settings.max_body_bytes} bytes"))
        try:
            if is_quick(line):
                return self._parse_line(line)
            async with asyncio.timeout(self._deadline_s):
                return await self._parser.run(self._parse_line, line)
        except TimeoutError:
            return ParsedLine(None, DeadlineExceeded("the deadline passed before the line was parsed"))
        except Exception as error:
            return ParsedLine(None, error)

    def _line(self, index: int, line_id: str | int | None, result: dict[str, Any] | BaseException) -> bytes:
        """A line of the response."""
        fields = {"index": index} if line_id is None else {"index": index, "id": line_id}
        if isinstance(result, BaseException):
            if not isinstance(result, LongdocError):
                log.error("line %d failed", index, exc_info=result)
            clear_tracebacks(result)
            failed = failure(result, self._path)
            result = {"error": problem(replace(failed, detail=f"input {index}: {failed.detail}"))}
        return orjson.dumps({**fields, **result}, option=orjson.OPT_APPEND_NEWLINE)

    async def _reject(self, index: int, error: LongdocError) -> bytes:
        """The last line of the response, after which no line of the body is read."""
        content = {"index": index, "error": problem(failure(error, self._path))}
        return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)

    async def run(self, model: AnyModel, computation: Computation[A], items: int, *, is_group: bool = False) -> A:
        """Run a computation; it waits while the queue is full. A group does not: there may be room for single lines.

        Raises: as `ServedModel.run`.

        """
        now = asyncio.get_running_loop().time()
        deadline = limited(now + self._settings.deadline_s, now + self._deadline_s)
        answer, timing = await model.run(computation, deadline, items=items, bulk=True, waits=not is_group)
        model.metrics.queue_seconds.observe(timing.queue)
        model.metrics.compute_seconds.observe(timing.compute)
        return answer


def _deadline_s(context: RequestContext) -> float:
    """Seconds until the deadline of each line: the client's, if it set one, or the server's."""
    if isinstance(context.deadline, ClientLimit):
        return round(context.deadline - asyncio.get_running_loop().time(), 3)
    return context.runtime.settings.deadline_s


class Group(NamedTuple):
    """Consecutive lines that are computed together."""

    answer: asyncio.Task[bytes]
    lines: int
    """Number of lines."""
    bytes: int
    """Bytes of the lines and, at most, of the details in their answers."""


def grouped(
    lines: Sequence[bytes], most: int, answer_bytes: Callable[[bytes], int]
) -> Iterator[tuple[list[bytes], int]]:
    """Groups of at most `most` consecutive lines of at most GROUP_BYTES, and their sizes with the details in answers.

    A longer line is a group of its own.
    """
    group, total = list[bytes](), 0
    for line in lines:
        size = len(line) + answer_bytes(line)
        is_first_long = len(group) == 1 and total > GROUP_BYTES
        if group and (len(group) == most or size > GROUP_BYTES or is_first_long):
            yield group, total
            group, total = [], 0
        group.append(line)
        total += size
    if group:
        yield group, total


class ParsedLine(NamedTuple, Generic[T]):
    """The content of a line, or why it has none."""

    id: str | int | None
    content: T | Exception


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
