"""`POST /v1/classify` as NDJSON: a document a line in, its answer a line out, in order, as they finish.

The body may be of any length: what is read and not answered yet is bounded, and more is read only when answers leave.
A line that is wrong is answered with an error, in its place; the others are not touched.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from artifact.classification import Options
from artifact.errors import InvalidInput, LongdocError
from service.engine.served import ServedClassifier
from service.errors import (
    DeadlineExceeded,
    MalformedInput,
    Overloaded,
    PayloadTooLarge,
    ShuttingDown,
    let_go,
)
from service.tasks.classification import classify
from service.wire.call import Call, named
from service.wire.departure import Departure
from service.wire.errors import failure, problem
from service.wire.media import NDJSON
from service.wire.requests import CLASSIFIED, check_size, media_type, parse_aside, parse_json, read_query
from service.wire.schemas import BulkLine, ClassifyOptions

log = logging.getLogger(__name__)

MOST_LINES = 64
"""Lines read and not answered yet: enough to fill the batches of every slot."""
MOST_BYTES = 8 * 2**20
"""Their length together, or one line that is longer."""
AGAIN_S = 0.1
"""Time until a line asks again that has met a full queue."""
LOOK_S = 1.0
"""Time between two looks whether the server is to stop, while the client sends nothing."""


async def post_lines(call: Call) -> Response:
    """Classify documents that come one a line; options are in the query string."""
    _ = call.deadline
    media_type(call, *CLASSIFIED)
    options = read_query(call, ClassifyOptions)
    model = call.models.classifier(options.model)
    return BulkResponse(call, model, options.wanted)


class BulkResponse(Response):
    """Reads, computes and answers side by side."""

    media_type = NDJSON

    def __init__(self, call: Call, model: ServedClassifier, options: Options) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._engine = call.engine
        self._settings = call.settings
        self._receive = call.request.receive
        self._path = call.path
        self._body = call.body
        self._parser = call.parser
        self._model = model
        self._options = options
        self._answers: asyncio.Queue[tuple[asyncio.Task[bytes], int] | None] = asyncio.Queue()
        self._lines = self._bytes = self._begun = 0
        self._has_room = asyncio.Event()
        self._waited_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Raises: InvalidInput if there is no line at all; ClientDisconnect."""
        del scope, receive
        with self._model.metrics.in_flight.track_inprogress():
            await self._stream(send)

    async def _stream(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        has_started = False
        with Departure() as departure:
            reader = departure.watch(self._read())
            try:
                while (entry := await self._answers.get()) is not None:
                    answer, size = entry
                    body = await answer
                    if not has_started:
                        has_started = True
                        await send(start)
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    self._lines -= 1
                    self._bytes -= size
                    self._count(self._begun)
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
        """Start the work of each line, as far as there is room. Raises: ClientDisconnect, also after the last line."""
        index = 0
        try:
            async for line in self._split():
                while self._lines and (self._lines >= MOST_LINES or self._bytes + len(line) > MOST_BYTES):
                    await self._wait_for_room()
                self._add(self._answer(index, line), len(line))
                index += 1
        except LongdocError as error:  # no line after this one is read
            self._add(self._refuse(index, error), 0)
        finally:
            self._answers.put_nowait(None)
        while (await self._receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnect

    def _add(self, work: Any, size: int) -> None:
        self._lines += 1
        self._bytes += size
        self._answers.put_nowait((asyncio.create_task(work), size))

    async def _wait_for_room(self) -> None:
        self._has_room.clear()
        await self._has_room.wait()

    def _count(self, begun: int) -> None:
        """Count the bytes of lines that are not answered, and of one that has begun."""
        self._begun = begun
        self._body.hold(self._bytes + begun)

    async def _split(self) -> AsyncIterator[bytes]:
        """Lines of the body that are not blank; one that is too long is cut off behind the limit.

        Raises: Overloaded if more of a line comes than may be held, and none is left to be answered.
        """
        parts, size, limit = list[bytes](), 0, self._settings.max_body_bytes + len(b"\r") + 1
        async for chunk in self._chunks():
            *ends, rest = chunk.split(b"\n")
            if ends or not size:
                self._waited_s = 0.0
            for end in ends:
                parts.append(end[: limit - size])
                if line := self._strip(b"".join(parts)):
                    yield line
                parts, size = [], 0
            parts.append(rest[: limit - size])
            size += len(parts[-1])
            self._count(size)
            while self._body.is_too_much and self._lines:
                await self._wait_for_room()
            self._body.check()
        if line := self._strip(b"".join(parts)):
            yield line

    def _strip(self, line: bytes) -> bytes:
        """A line without the spaces around it; one that is too long as it is, since what was cut off is not known."""
        return line if len(line.removesuffix(b"\r")) > self._settings.max_body_bytes else line.strip()

    async def _chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes; a line has to come within the deadline, from its first byte or the end of the last one.

        Raises: ShuttingDown, DeadlineExceeded, ClientDisconnect.
        """
        loop, deadline_s = asyncio.get_running_loop(), self._settings.deadline_s
        while True:
            if self._engine.is_draining:
                raise ShuttingDown("the server is shutting down; send this line and those after it to another one")
            if self._waited_s > deadline_s:
                raise DeadlineExceeded(f"no line came to its end for {deadline_s:g} s")
            since = loop.time()
            try:
                async with asyncio.timeout(LOOK_S):
                    message = await self._receive()
            except TimeoutError:
                continue
            finally:  # while answers are computed the client has to wait, and nothing is counted
                self._waited_s += loop.time() - since
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return

    async def _answer(self, index: int, line: bytes) -> bytes:
        """One line of the answer."""
        head: dict[str, Any] = {"index": index}
        try:
            if len(line) > self._settings.max_body_bytes:
                raise PayloadTooLarge(f"the line is longer than {self._settings.max_body_bytes} bytes")
            name, document = await self._parse(line)
            if name is not None:
                head["id"] = name
            if isinstance(document, LongdocError):
                raise document
            check_size("document", document, self._settings.max_document_bytes)
            result = await self._classify(document)
        except LongdocError as error:
            let_go(error)
            return self._line({**head, "error": problem(failure(error, self._path))})
        except Exception as error:
            log.exception("line %d failed", index)
            let_go(error)
            return self._line({**head, "error": problem(failure(error, self._path))})
        return self._line({**head, **named(self._model), **result})

    async def _parse(self, line: bytes) -> "_Read":
        """What a line says. Raises: DeadlineExceeded, NotReady."""
        try:
            async with asyncio.timeout(self._settings.deadline_s):
                return await parse_aside(self._parser, _read, line)
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed before the line was parsed") from None

    async def _refuse(self, index: int, error: LongdocError) -> bytes:
        return self._line({"index": index, "error": problem(failure(error, self._path))})

    def _line(self, content: Mapping[str, Any]) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)

    async def _classify(self, document: bytes) -> dict[str, Any]:
        """Result of one document; where the queue is full, it waits its turn."""
        loop, options = asyncio.get_running_loop(), self._options
        until = loop.time() + self._settings.deadline_s
        while True:
            try:
                (answer,), timing = await classify(
                    self._model, [document], on_overflow=options.on_overflow, deadline=until, bulk=True
                )
            except Overloaded:
                if loop.time() + AGAIN_S > until:
                    raise
                await asyncio.sleep(AGAIN_S)
            else:
                self._model.metrics.queue_seconds.observe(timing.queue)
                self._model.metrics.compute_seconds.observe(timing.compute)
                return answer.as_json(self._model.manifest.labels, options)


class _Read(NamedTuple):
    """What a line says."""

    id: str | int | None
    document: bytes | LongdocError


def _read(line: bytes) -> _Read:
    """Check a line; its id is known whatever else is wrong with it."""
    try:
        asked = parse_json(BulkLine, line)
    except MalformedInput:
        return _Read(None, MalformedInput("the line is not valid JSON in UTF-8"))
    except InvalidInput as error:
        let_go(error)
        return _Read(_id_of(line), error)
    except PayloadTooLarge as error:
        let_go(error)
        return _Read(None, error)
    return _Read(asked.id, _document(asked))


def _id_of(line: bytes) -> str | int | None:
    """The id of a line that has one."""
    try:
        return BulkLine.model_validate({"id": orjson.loads(line)["id"]}, strict=True).id
    except (orjson.JSONDecodeError, ValidationError, TypeError, LookupError):
        return None


def _document(line: BulkLine) -> bytes | LongdocError:
    """The document of a line, or what is wrong with it."""
    if (line.text is None) == (line.base64 is None):
        return InvalidInput("give either text or base64", [("text", "either text or base64")])
    if line.text is not None:
        return line.text.encode()
    assert line.base64 is not None
    try:
        return base64.b64decode(line.base64, validate=True)
    except (binascii.Error, ValueError):
        return InvalidInput.at("base64", "not base64")
