"""`POST /v1/classify` with NDJSON: one document per line; the response has one line per document, in order.

The upload may have any length. The number of pending lines is limited, and so are their bytes: at the limit, the next
line is read only after the response to an earlier one has been sent. An invalid line gets an error in its place; other
lines are not affected.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple, Self

import orjson
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from artifact.encodings import MARK
from artifact.errors import InvalidInput, LongdocError
from artifact.tasks.classification import Classification, ResultOptions
from service.batching.admission import ClientLimit, limited
from service.engine.served import ServedModel
from service.errors import (
    DeadlineExceeded,
    MalformedInput,
    Overloaded,
    PayloadTooLarge,
    ShuttingDown,
    clear_tracebacks,
)
from service.offload import count_items, offload
from service.wire.context import RequestContext
from service.wire.disconnect import CancelOnDisconnect
from service.wire.errors import failure, problem
from service.wire.inference import model_fields
from service.wire.media import NDJSON
from service.wire.parsing import check_size, decode_base64, is_quick, parse_json
from service.wire.requests import read_query
from service.wire.schemas import BulkLine, ClassifyOptions

log = logging.getLogger(__name__)

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


class BulkResponse(Response):
    """Reads, computes and responds concurrently."""

    media_type = NDJSON

    def __init__(self, context: RequestContext, model: ServedModel[Classification], options: ResultOptions) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._engine = context.runtime.engine
        self._settings = context.runtime.settings
        self._parser = context.runtime.parser
        self._deadline_s = _deadline_s(context)
        self._path = context.path
        self._body = context.body
        self._body.unlimit()
        self._model = model
        self._options = options
        self._answers: asyncio.Queue[tuple[asyncio.Task[bytes], int] | None] = asyncio.Queue()
        self._pending_lines = self._pending_bytes = self._partial_bytes = 0
        self._has_room = asyncio.Event()
        self._waited_s = 0.0

    @classmethod
    def of(cls, context: RequestContext) -> Self:
        """The response to an upload, whose options are in the query string. Raises: InvalidInput, ModelNotFound."""
        options = read_query(context, ClassifyOptions)
        return cls(context, context.runtime.models.choose(Classification, options.model), options.result_options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. Raises: InvalidInput if the body has no lines; ClientDisconnect."""
        del scope, receive
        with self._model.in_flight:
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
                size = len(line) + self._answer_bytes(line)
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

    def _answer_bytes(self, line: bytes) -> int:
        """Maximum bytes of the details in the answer to a line. Its document is not longer than the line."""
        size = min(len(line), self._settings.max_document_bytes)
        return self._model.task.max_detail_bytes(size, self._options)

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
            line_id, document = await self._parse(line)
            if line_id is not None:
                fields["id"] = line_id
            if isinstance(document, LongdocError):
                raise document
            check_size("document", document, self._settings.max_document_bytes)
            result = await self._classify(document)
        except LongdocError as error:
            clear_tracebacks(error)
            return self._line({**fields, "error": problem(failure(error, self._path))})
        except Exception as error:
            log.exception("line %d failed", index)
            clear_tracebacks(error)
            return self._line({**fields, "error": problem(failure(error, self._path))})
        return self._line({**fields, **model_fields(self._model), **result})

    async def _parse(self, line: bytes) -> "_ParsedLine":
        """Parse a line. Raises: DeadlineExceeded, NotReady."""
        try:
            async with asyncio.timeout(self._deadline_s):
                return _parse_line(line) if is_quick(line) else await self._parser.run(_parse_line, line)
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed before the line was parsed") from None

    async def _reject(self, index: int, error: LongdocError) -> bytes:
        return self._line({"index": index, "error": problem(failure(error, self._path))})

    def _line(self, content: Mapping[str, Any]) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)

    async def _classify(self, document: bytes) -> dict[str, Any]:
        """Classify one document; retries while the queue is full."""
        loop, options, count = asyncio.get_running_loop(), self._options, count_items([document])
        now = loop.time()
        deadline = limited(now + self._settings.deadline_s, now + self._deadline_s)
        while True:
            try:
                computation = self._model.task.classify([document], options.on_overflow)
                (answer,), timing = await self._model.run(computation, deadline, items=count, bulk=True)
            except Overloaded:
                if loop.time() + RETRY_S > deadline:
                    self._model.metrics.rejected("overloaded")
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                self._model.metrics.queue_seconds.observe(timing.queue)
                self._model.metrics.compute_seconds.observe(timing.compute)
                return await offload(count, answer.as_json, options)


def _deadline_s(context: RequestContext) -> float:
    """Seconds until the deadline of each line: the client's, if it set one, or the server's."""
    if isinstance(context.deadline, ClientLimit):
        return round(context.deadline - asyncio.get_running_loop().time(), 3)
    return context.runtime.settings.deadline_s


class _ParsedLine(NamedTuple):
    """The content of a line."""

    id: str | int | None
    document: bytes | LongdocError


def _parse_line(line: bytes) -> _ParsedLine:
    """Validate a line; returns its id even if the rest is invalid."""
    line = line.removeprefix(MARK)
    try:
        parsed = parse_json(BulkLine, line)
    except MalformedInput:
        return _ParsedLine(None, MalformedInput("the line is not valid JSON in UTF-8"))
    except InvalidInput as error:
        clear_tracebacks(error)
        return _ParsedLine(_id_of(line), error)
    except PayloadTooLarge as error:
        clear_tracebacks(error)
        return _ParsedLine(None, error)
    return _ParsedLine(parsed.id, _document(parsed))


def _id_of(line: bytes) -> str | int | None:
    """The id of an invalid line; None if it has no valid one."""
    try:
        return BulkLine.model_validate({"id": orjson.loads(line)["id"]}, strict=True).id
    except (orjson.JSONDecodeError, ValidationError, TypeError, LookupError):
        return None


def _document(line: BulkLine) -> bytes | LongdocError:
    """The document of a line, or an error."""
    if (line.text is None) == (line.base64 is None):
        return InvalidInput("give either text or base64", [("text", "either text or base64")])
    if line.text is not None:
        return line.text.encode()
    assert line.base64 is not None
    try:
        return decode_base64("base64", line.base64)
    except InvalidInput as error:
        clear_tracebacks(error)
        return error
