"""The HTTP protocol with a small application: limits on connections, and what every client may do."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import pytest
import uvicorn
import uvloop
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service import server
from service.http.protocol import (
    HEAD_S,
    LINGER_S,
    MAX_HEAD_BYTES,
    MAX_PROBES,
    MAX_WAITING,
    PROBE_S,
    WRITE_S,
    BoundedProtocol,
)
from service.server import KEEP_ALIVE_S
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.wire import LAST_CHUNK, Wire, chunked, request

T = TypeVar("T")
BIG = b"b" * 2**20

REFUSALS: dict[str, tuple[bytes, int, dict[str, str]]] = {
    "/refuse": (b"refused", 413, {}),
    "/full": (b"full", 429, {}),
    "/last-full": (b"last", 503, {"connection": "close"}),
}
"""Path -> content, status and headers of a response to a request whose body is not read."""


def start_of(*fields: tuple[bytes, bytes]) -> Message:
    return {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4"), *fields]}


def part_of(body: bytes, *, more_body: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more_body}


MESSAGES: dict[str, list[Message]] = {
    "/whole": [start_of(), part_of(b"full")],
    "/closing": [start_of((b"connection", b"close")), part_of(b"full")],
    "/parts": [start_of(), part_of(b"fu", more_body=True), part_of(b"ll")],
    "/start-only": [start_of()],
    "/two-lines": [start_of((b"a", b"1\r\nb: 2")), part_of(b"full")],
}
"""Path -> messages of a response of known length."""


class Messages(Response):
    """A response of given messages."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        for message in self._messages:
            await send(message)


async def aiter_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


class Application:
    """Returns the request it got. /slow waits for the test, /big responds at length."""

    def __init__(self) -> None:
        self.may_finish = asyncio.Event()
        self.asked: list[str] = []
        self.disconnected: list[str] = []

    async def _endless(self) -> AsyncIterator[bytes]:
        """Yield parts of a response until the client disconnects."""
        try:
            while True:
                yield b"part"
                await asyncio.sleep(0)
        finally:
            self.disconnected.append("/endless")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        self.asked.append(scope["path"])
        if scope["path"] in REFUSALS:
            response = Response(*REFUSALS[scope["path"]])
        elif scope["path"] == "/big":
            response = Response(BIG * 64)
        elif scope["path"] in MESSAGES:
            response = Messages(MESSAGES[scope["path"]])
        elif scope["path"] == "/stream":
            response = StreamingResponse(aiter_of(b"first ", b"", b"last"))
        elif scope["path"] == "/endless":
            response = StreamingResponse(self._endless())
        elif scope["path"] == "/until-disconnect":
            while (await receive())["type"] != "http.disconnect":
                pass
            self.disconnected.append(scope["path"])
            return
        else:
            try:
                response = await self._echo(scope, receive)
            except ClientDisconnect:
                self.disconnected.append(scope["path"])
                return
        await response(scope, receive, send)

    async def _echo(self, scope: Scope, receive: Receive) -> Response:
        """Return the request."""
        body = await Request(scope, receive).body()
        if scope["path"] == "/slow":
            await self.may_finish.wait()
        facts = {"method": scope["method"], "path": scope["path"], "body": body.decode()}
        fields = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        return JSONResponse({**facts, "headers": fields})


class ManualTimer:
    """Returned by `ManualLoop.call_later`."""

    def __init__(self, delay_s: float, due_s: float, callback: Callable[[], object]) -> None:
        self.delay_s = delay_s
        self.due_s = due_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualLoop:
    """The event loop of a connection; its timers fire when the test advances the time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.create_task = loop.create_task
        self._timers: list[ManualTimer] = []
        self._now_s = 0.0

    def time(self) -> float:
        return self._now_s

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> ManualTimer:
        timer = ManualTimer(delay_s, self._now_s + delay_s, partial(callback, *args))
        self._timers.append(timer)
        return timer

    def has_timer(self, delay_s: float) -> bool:
        """Return whether a timer of that delay is running."""
        return any(timer.delay_s == delay_s and not timer.is_cancelled for timer in self._timers)

    def advance(self, seconds: float) -> None:
        """Advance the time and fire the timers that are due, in order."""
        until_s = self._now_s + seconds
        while due := [timer for timer in self._timers if not timer.is_cancelled and timer.due_s <= until_s]:
            first = min(due, key=attrgetter("due_s"))
            self._timers.remove(first)
            self._now_s = first.due_s
            first.callback()
        self._now_s = until_s


class CountingProtocol(BoundedProtocol):
    """Counts the received bytes."""

    received = 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.received += len(data)


class Served:
    """A server in a thread; the test advances the time of its connections."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._manual = ManualLoop(self._loop)
        self.application = Application()
        self.faults: list[dict[str, object]] = []
        self.state = ServerState()
        self.url = ""
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._loop.set_exception_handler(lambda _, context: self.faults.append(context))
        config = uvicorn.Config(
            self.application, http=CountingProtocol, ws="none", lifespan="off", log_config=None, access_log=False,
            proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_S,
        )  # fmt: skip
        config.load()

        def connect() -> CountingProtocol:
            loop: Any = self._manual
            return CountingProtocol(config=config, server_state=self.state, app_state={}, _loop=loop)

        listener = socket.create_server(("127.0.0.1", 0))
        server = self._loop.run_until_complete(self._loop.create_server(connect, sock=listener))
        self.url = "http://{}:{}".format(*listener.getsockname())
        self._is_ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        while self.state.connections or self.state.tasks:
            for connection in self.state.connections:
                connection.transport.abort()
            for task in self.state.tasks:
                task.cancel()
            await asyncio.sleep(0)

    @contextmanager
    def running(self) -> Iterator["Served"]:
        self._thread.start()
        self._is_ready.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        assert self.faults == []

    def _do(self, action: Callable[[], T]) -> T:
        """Run an action on the loop and return its result."""

        async def run() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def advance(self, seconds: float) -> None:
        """Advance the time of every connection."""
        self._do(lambda: self._manual.advance(seconds))

    def finish(self) -> None:
        """Let /slow respond."""
        self._do(self.application.may_finish.set)

    def wait_for_timer(self, seconds: float) -> None:
        """Wait until a connection has a timer of that delay."""
        wait_until(lambda: self._do(lambda: self._manual.has_timer(seconds)), lambda: f"no timer of {seconds} s")

    def wait_for_disconnect(self) -> None:
        """Advance the time until the application knows that a client has disconnected."""

        def is_disconnected() -> bool:
            self.advance(PROBE_S)
            return bool(self.application.disconnected)

        wait_until(is_disconnected)

    def wait_for_bytes(self, count: int) -> None:
        """Wait until the open connections have received that many bytes."""
        wait_until(lambda: self._do(self._received) == count)

    def _received(self) -> int:
        return sum(c.received for c in self.state.connections if isinstance(c, CountingProtocol))

    def unsent(self) -> int:
        """Return the bytes of the only connection that the kernel has not accepted yet."""
        return self._do(lambda: next(iter(self.state.connections)).transport.get_write_buffer_size())


@pytest.fixture
def served() -> Iterator[Served]:
    with Served().running() as served:
        yield served


def received(wire: Wire) -> dict[str, Any]:
    """Return the request as the application got it."""
    answer = wire.answer()
    assert answer.status == 200, answer
    facts: dict[str, Any] = json.loads(answer.body)
    return facts


def test_pipelined_requests_are_answered_in_order(served: Served) -> None:
    with Wire(served.url) as wire:
        paths = [f"/{'slow' if number == 2 else number}" for number in range(8)]
        sent = b"".join(request(path, path.encode()) for path in paths)
        wire.send(sent)
        served.wait_for_bytes(len(sent))
        served.finish()
        assert [received(wire)["body"] for _ in paths] == paths


UPGRADES = ["h2c", "websocket", "TLS/1.0"]


@pytest.mark.parametrize("protocol", UPGRADES)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_upgrade_request_is_handled_as_an_ordinary_request(served: Served, protocol: str, is_chunked: bool) -> None:
    hidden = request("/hidden", b"")
    fields = {"connection": "Upgrade, HTTP2-Settings", "upgrade": protocol, "http2_settings": "AAMAAABk"}
    plain = request("/first", hidden, **fields)
    coded = (
        request("/first", None, transfer_encoding="chunked", **fields) + chunked(hidden[:9], hidden[9:]) + LAST_CHUNK
    )
    with Wire(served.url) as wire:
        wire.send((coded if is_chunked else plain) + request("/second"))
        first, second = received(wire), received(wire)
        assert (first["path"], first["body"]) == ("/first", hidden.decode())
        assert not {"upgrade", "connection", "http2-settings"} & first["headers"].keys()
        assert (second["path"], second["body"]) == ("/second", "x")
        wire.send(request("/third"))
        assert received(wire)["path"] == "/third"


def test_upgrade_request_may_be_split_into_any_two_packets(served: Served) -> None:
    sent = request("/first", b"body of the first", connection="upgrade", upgrade="h2c") + request("/second", b"2")
    for place in range(1, len(sent)):
        with Wire(served.url) as wire:
            wire.send(sent[:place])
            served.wait_for_bytes(place)
            wire.send(sent[place:])
            assert [received(wire)["body"] for _ in range(2)] == ["body of the first", "2"], place


def test_upgrade_request_may_arrive_byte_by_byte(served: Served) -> None:
    with Wire(served.url) as wire:
        sent = request("/first", b"12", connection="upgrade", upgrade="h2c")
        wire.send(*(bytes([byte]) for byte in sent))
        assert received(wire)["body"] == "12"


def test_upgrade_request_with_connection_close_closes_the_connection(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request(connection="close, upgrade", upgrade="h2c"))
        answer = wire.answer()
        assert answer.headers["connection"] == "close"
        assert wire.has_ended()


def test_thousands_of_pipelined_upgrade_requests_are_answered(served: Served) -> None:
    with Wire(served.url) as wire:
        for _ in range(12):
            wire.send(b"GET / HTTP/1.1\r\nconnection:upgrade\r\nupgrade:x\r\n\r\n" * MAX_WAITING)
            assert [wire.answer().status for _ in range(MAX_WAITING)] == [200] * MAX_WAITING


def test_pipelined_requests_beyond_those_that_may_wait_are_dropped(served: Served) -> None:
    sent = request("/slow", b"first") + b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * (MAX_WAITING + 100)
    with Wire(served.url) as wire:
        wire.send(sent)
        served.wait_for_bytes(len(sent))
        served.finish()
        answers = [wire.answer() for _ in range(MAX_WAITING + 1)]
        assert {answer.status for answer in answers} == {200}
        assert answers[-1].headers["connection"] == "close"
        assert wire.has_ended()


@pytest.mark.parametrize(
    "sent",
    [
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\x00c\r\n\r\n",
        request("/" + "a" * 70_000)[:60_000] + b"\xff HTTP/1.1\r\n\r\n",
        request(transfer_encoding="chunked"),
        request(content_length="1, 1"),
        request(content_length="-1"),
        request(content_length="+1"),
        request(content_length="1").replace(b"content-type: text/plain", b"content-length: 2"),
        request(body=None, transfer_encoding="gzip"),
        request(body=None, transfer_encoding="chunked, gzip"),
        request(body=None, transfer_encoding="chunked, chunked"),
        request(body=None, transfer_encoding="chunked") + b"zz\r\n",
        request(body=None, transfer_encoding="chunked") + b"fffffffffffffffff\r\n",
    ],
)
def test_malformed_http_is_rejected_and_closes_the_connection(served: Served, sent: bytes) -> None:
    with Wire(served.url) as wire:
        answer = wire.send(sent).answer()
        assert answer.status == 400
        assert answer.headers["connection"] == "close"
        assert wire.has_ended()


@pytest.mark.parametrize("path", ["/", "/full"])
@pytest.mark.parametrize("coding", ["gzip, chunked", "GZIP,chunked", "identity, chunked"])
def test_unknown_transfer_coding_is_rejected(served: Served, path: str, coding: str) -> None:
    with Wire(served.url) as wire:
        wire.send(request(path, None, transfer_encoding=coding) + chunked(b"\x1f\x8b") + LAST_CHUNK)
        answer = wire.answer()
        assert answer.status == 501
        assert answer.headers["connection"] == "close"
        assert wire.has_ended()


def test_transfer_coding_in_repeated_headers_is_rejected(served: Served) -> None:
    with Wire(served.url) as wire:
        sent = request("/", None, transfer_encoding="gzip")
        sent = sent.replace(b"gzip\r\n", b"gzip\r\ntransfer-encoding: chunked\r\n")
        assert wire.send(sent + chunked(b"\x1f\x8b") + LAST_CHUNK).answer().status == 501
        assert wire.has_ended()


@pytest.mark.parametrize("coding", ["chunked", "Chunked"])
def test_chunked_body_is_read(served: Served, coding: str) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/", None, transfer_encoding=coding) + chunked(b"a", b"b") + LAST_CHUNK)
        assert received(wire)["body"] == "ab"


def test_streamed_response_to_http_1_0_ends_with_the_connection(served: Served) -> None:
    """HTTP/1.0 has no chunked coding."""
    with Wire(served.url) as wire:
        status, headers = wire.send(request("/stream", version="1.0", connection="keep-alive")).head()
        assert (status, headers["connection"]) == (200, "close")
        assert not {"transfer-encoding", "content-length"} & headers.keys()
        assert wire.read(100) == b"first last"
    with Wire(served.url) as wire:
        assert wire.send(request("/stream")).answer().body == b"first last"
    with Wire(served.url) as wire:
        answer = wire.send(request("/", b"old", version="1.0")).answer()
        assert json.loads(answer.body)["body"] == "old"
        assert wire.has_ended()


@pytest.mark.parametrize("path", ["/whole", "/parts"])
def test_response_of_known_length_may_be_sent_in_parts(served: Served, path: str) -> None:
    with Wire(served.url) as wire:
        for _ in range(2):
            answer = wire.send(request(path)).answer()
            assert (answer.status, answer.headers["content-length"], answer.body) == (200, "4", b"full")


def test_application_may_close_the_connection(served: Served) -> None:
    with Wire(served.url) as wire:
        answer = wire.send(request("/closing")).answer()
        assert (answer.headers["connection"], answer.body) == ("close", b"full")
        assert wire.has_ended()


@pytest.mark.parametrize("path", ["/start-only", "/two-lines"])
def test_wrong_response_of_the_application_becomes_an_internal_error(served: Served, path: str) -> None:
    """A header must not contain the end of a line: a client could add headers of its own to a response."""
    with Wire(served.url) as wire:
        answer = wire.send(request(path)).answer()
        assert (answer.status, answer.headers["connection"]) == (500, "close")
        assert "b" not in answer.headers
        assert wire.has_ended()


@pytest.mark.parametrize(("path", "status"), [("/refuse", 413), ("/full", 429)])
@pytest.mark.parametrize("more", [b"zz\r\n", b"1;" + b"a" * 2 * MAX_HEAD_BYTES])
def test_malformed_body_gets_no_second_response(served: Served, path: str, status: int, more: bytes) -> None:
    with Wire(served.url) as wire:
        wire.send(request(path, None, transfer_encoding="chunked") + chunked(b"hello"))
        assert wire.answer().status == status
        wire.send(more)
        assert wire.has_ended()


def test_malformed_body_that_arrives_with_its_headers_gets_one_response(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/full", None, transfer_encoding="chunked") + b"zz\r\n")
        assert wire.answer().status == 400
        assert wire.has_ended()


@pytest.mark.parametrize("path", ["/refuse", "/whole", "/stream"])
def test_malformed_body_gets_one_response_if_the_client_reads_late(served: Served, path: str) -> None:
    """The application starts in the same turn, and the connection stays open until the client has read /big."""
    with Wire(served.url) as wire:
        wire.send(request("/big"))
        wait_until(lambda: "/big" in served.application.asked)
        sent = request(path, None, transfer_encoding="chunked") + b"zz\r\n"
        wire.send(sent)
        served.wait_for_bytes(len(request("/big") + sent))
        assert wire.answer().body == BIG * 64
        assert wire.answer().status == 400
        assert wire.has_ended()


def test_malformed_head_gets_no_response_after_a_closing_one(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/big"))
        wait_until(lambda: "/big" in served.application.asked)
        wire.send(request("/last-full", b"x") + b"nonsense\r\n\r\n")
        assert wire.answer().body == BIG * 64
        assert wire.answer().status == 503
        assert wire.has_ended()


def test_malformed_body_of_a_pipelined_request_does_not_delay_the_end(served: Served) -> None:
    with Wire(served.url) as wire:
        sent = request("/slow", b"first") + request("/next", None, transfer_encoding="chunked") + b"zz\r\n"
        wire.send(sent)
        served.wait_for_bytes(len(sent))
        served.finish()
        assert received(wire)["body"] == "first"
        assert wire.has_ended()
    assert served.application.asked == ["/slow"]


def test_malformed_request_does_not_drop_the_previous_response(served: Served) -> None:
    with Wire(served.url) as wire:
        sent = request("/slow", b"first") + b"nonsense\r\n\r\n"
        wire.send(sent)
        served.wait_for_bytes(len(sent))
        served.finish()
        assert received(wire)["body"] == "first"
        assert wire.has_ended()


def test_headers_are_accepted_up_to_the_limit(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request(x_long="a" * (MAX_HEAD_BYTES - 500)))
        assert len(received(wire)["headers"]["x-long"]) == MAX_HEAD_BYTES - 500


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("pieces", [1, 50])
def test_too_long_headers_are_rejected(served: Served, is_complete: bool, pieces: int) -> None:
    sent = request(x_long="a" * MAX_HEAD_BYTES)[: None if is_complete else -10]
    step = 1 + len(sent) // pieces
    with Wire(served.url) as wire:
        for first in range(0, len(sent), step):
            wire.send(sent[first : first + step])
        assert wire.answer().status == 431
        assert wire.has_ended()


def test_bodies_and_pipelined_headers_do_not_count_as_one_header(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/1", b"x" * 300_000) + b"".join(request(x_long="a" * 1000) for _ in range(200)))
        assert len(received(wire)["body"]) == 300_000
        assert [received(wire)["body"] for _ in range(200)] == ["x"] * 200


@pytest.mark.parametrize("endless", ["trailer", "trailers", "chunk extension", "leading lines"])
def test_trailers_extensions_and_leading_lines_are_limited(served: Served, endless: str) -> None:
    start = request(body=None, transfer_encoding="chunked")
    parts = {
        "trailer": (start + b"0\r\nx-long: ", b"a" * 10_000),
        "trailers": (start + b"0\r\n", b"x-many: 1\r\n" * 1000),
        "chunk extension": (start + b"1;", b"a" * 10_000),
        "leading lines": (b"", b"\r\n" * 5000),
    }
    first, more = parts[endless]
    with Wire(served.url) as wire:
        with suppress(ConnectionError):
            wire.send(first, *[more] * 1000)
        while not wire.has_ended():  # 431 comes first, unless it is lost with the connection
            pass


def test_trailers_do_not_become_headers(served: Served) -> None:
    with Wire(served.url) as wire:
        coded = chunked(b"abc") + b"0\r\nx-late: 1\r\n\r\n"
        wire.send(request(body=None, transfer_encoding="chunked") + coded + request("/next"))
        first = received(wire)
        assert first["body"] == "abc"
        assert "x-late" not in first["headers"]
        assert received(wire)["path"] == "/next"


def test_slow_headers_close_the_connection(served: Served) -> None:
    """An occasional byte does not extend the time."""
    line = b"a: b\r\n"
    with Wire(served.url) as wire:
        wire.send(b"GET / HTTP/1.1\r\n")
        served.wait_for_timer(HEAD_S)
        for number in range(4):
            wire.send(line)
            served.wait_for_bytes(16 + (number + 1) * len(line))
            served.advance(HEAD_S / 5)
        assert served.state.connections
        served.advance(HEAD_S / 5)
        assert wire.has_ended()


def test_slow_headers_of_a_second_request_close_the_connection(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/first"))
        assert received(wire)["path"] == "/first"
        wire.send(b"GET /")
        served.wait_for_timer(HEAD_S)
        served.advance(HEAD_S)
        assert wire.has_ended()


def test_slow_headers_do_not_abort_the_previous_response(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/slow", b"first") + b"GET /second")
        served.wait_for_timer(HEAD_S)
        served.advance(4 * HEAD_S)
        served.finish()
        assert received(wire)["body"] == "first"
        served.advance(2 * HEAD_S)
        assert wire.has_ended()


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
@pytest.mark.parametrize("is_first", [True, False])
def test_idle_connection_is_closed(served: Served, sent: bytes, is_first: bool) -> None:
    """Empty lines are allowed before a request and do not start one."""
    before = 0
    with Wire(served.url) as wire:
        if not is_first:
            before = len(request("/first"))
            wire.send(request("/first"))
            assert received(wire)["path"] == "/first"
        wire.send(sent)
        served.wait_for_bytes(before + len(sent))
        served.wait_for_timer(KEEP_ALIVE_S)
        served.advance(KEEP_ALIVE_S)
        assert wire.has_ended()


def test_used_connection_stays_open(served: Served) -> None:
    with Wire(served.url) as wire:
        for _ in range(10):
            wire.send(request("/first"))
            assert received(wire)["path"] == "/first"
            served.advance(0.9 * KEEP_ALIVE_S)


def test_connection_whose_next_request_began_before_a_response_is_not_idle(served: Served) -> None:
    head, rest = request("/slow", b"second")[:15], request("/slow", b"second")[15:]
    with Wire(served.url) as wire:
        wire.send(request("/first") + head)
        assert received(wire)["path"] == "/first"
        wire.send(rest)
        served.wait_for_bytes(len(request("/first") + head + rest))
        served.advance(2 * KEEP_ALIVE_S)
        served.finish()
        assert received(wire)["body"] == "second"


def test_client_that_does_not_read_is_disconnected(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/big"))
        served.wait_for_timer(WRITE_S)

        def is_cut() -> bool:
            served.advance(WRITE_S)
            return not served.state.connections

        wait_until(is_cut)
        with pytest.raises((AssertionError, ConnectionError)):
            wire.answer()


def test_client_that_reads_slowly_gets_the_whole_response(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/big"))
        status, headers = wire.head()
        assert status == 200
        served.wait_for_timer(WRITE_S)
        size, looks = int(headers["content-length"]), 0
        unsent = served.unsent()
        for _ in range(size // len(BIG)):
            assert wire.read(len(BIG)) == BIG
            if looks < KEEP_ALIVE_S // WRITE_S and 0 < served.unsent() < unsent:  # the kernel has accepted more
                served.advance(WRITE_S)
                unsent = served.unsent()
                looks += 1
        assert looks == 2
        wire.send(request("/next"))
        assert received(wire)["path"] == "/next"


ASKED_TO_CLOSE: list[dict[str, str]] = [{}, {"connection": "close"}, {"version": "1.0"}]


@pytest.mark.parametrize("how", ASKED_TO_CLOSE)
@pytest.mark.parametrize(("path", "status"), [("/refuse", 413), ("/full", 429)])
def test_client_that_keeps_sending_gets_its_rejection(
    served: Served, path: str, status: int, how: dict[str, str]
) -> None:
    with Wire(served.url) as wire:
        sent = request(path, b"x" * 30_000_000, **how)
        for first in range(0, len(sent), 1_000_000):
            wire.send(sent[first : first + 1_000_000])
        assert wire.answer().status == status


def test_rejected_body_is_read_for_a_limited_time(served: Served) -> None:
    sent = request("/refuse", b"", content_length="1000000000")
    with Wire(served.url) as wire:
        wire.send(sent)
        assert wire.answer().status == 413
        served.wait_for_timer(LINGER_S)
        for number in range(4):
            wire.send(b"x" * 1000)
            served.wait_for_bytes(len(sent) + (number + 1) * 1000)
            served.advance(LINGER_S / 5)
        assert served.state.connections
        served.advance(LINGER_S / 5)
        assert wire.has_ended()


def test_connection_is_reusable_after_a_rejected_body(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/refuse", b"x" * 1_000_000))
        assert wire.answer().status == 413
        wire.send(request("/next"))
        assert received(wire)["path"] == "/next"
        served.advance(2 * LINGER_S)
        wire.send(request("/later"))
        assert received(wire)["path"] == "/later"


def test_pipelined_upload_has_its_own_time_limit(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/slow", b"first") + request("/second", b"", content_length="3"))
        served.finish()
        assert received(wire)["body"] == "first"
        for byte in (b"1", b"2", b"3"):
            served.advance(0.7 * LINGER_S)
            wire.send(byte)
        assert received(wire)["body"] == "123"


def test_early_rejection_discards_the_body(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/full", b"x" * 1_000_000) + request("/next"))
        assert wire.answer().body == b"full"
        assert received(wire)["path"] == "/next"
        wire.send(request("/full", b"") * 2 + request("/last"))
        assert [wire.answer().body for _ in range(2)] == [b"full"] * 2
        assert received(wire)["path"] == "/last"


@pytest.mark.parametrize(
    ("path", "how"), [("/full", {"connection": "close"}), ("/full", {"version": "1.0"}), ("/last-full", {})]
)
def test_rejection_that_closes_the_connection_has_connection_close(
    served: Served, path: str, how: dict[str, str]
) -> None:
    with Wire(served.url) as wire:
        wire.send(request(path, b"body", **how))
        assert wire.answer().headers["connection"] == "close"
        assert wire.has_ended()


def test_body_may_arrive_with_its_headers_or_later(served: Served) -> None:
    whole, headers = request("/", b"whole body"), request("/", b"", content_length="4")
    with Wire(served.url) as wire:
        wire.send(whole)
        assert received(wire)["body"] == "whole body"
        wire.send(headers)
        served.wait_for_bytes(len(whole + headers))
        wire.send(b"late")
        assert received(wire)["body"] == "late"
        wire.send(request("/full", b"first") + request("/full", b"second"))
        assert [wire.answer().body for _ in range(2)] == [b"full"] * 2


def test_pipelined_request_is_rejected_in_order(served: Served) -> None:
    with Wire(served.url) as wire:
        sent = request("/slow", b"first") + request("/full")
        wire.send(sent)
        served.wait_for_bytes(len(sent))
        served.finish()
        assert received(wire)["body"] == "first"
        assert wire.answer().status == 429


def test_body_of_an_early_rejection_is_read_for_a_limited_time(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/full", b"", content_length="10"))
        assert wire.answer().status == 429
        served.wait_for_timer(LINGER_S)
        served.advance(LINGER_S)
        assert wire.has_ended()


def test_100_continue_is_sent_before_the_body_arrives(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/first", b"", content_length="3", expect="100-continue"))
        assert wire.answer().status == 100
        wire.send(b"abc")
        assert received(wire)["body"] == "abc"


def test_100_continue_is_not_sent_for_a_rejected_body(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/refuse", b"", content_length="3", expect="100-continue"))
        assert wire.answer().status == 413


def test_http_1_0_connection_is_closed_after_the_response(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/first", version="1.0"))
        assert received(wire)["path"] == "/first"
        assert wire.has_ended()


def test_response_to_head_has_no_body(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/first", None, "HEAD") + request("/second"))
        assert int(wire.answer(has_body=False).headers["content-length"]) > 0
        assert received(wire)["path"] == "/second"


def test_disconnected_clients_do_not_affect_the_next_one(served: Served) -> None:
    for sent in (b"", b"GET", request("/slow"), request("/big"), request("/first", b"", content_length="10")):
        Wire(served.url).send(sent).close()
    with Wire(served.url) as wire:
        assert received(wire.send(request("/still-there")))["path"] == "/still-there"


def test_disconnect_reaches_the_running_request(served: Served) -> None:
    """A pipelined request waits behind it; uvicorn would notify only that one."""
    sent = request("/until-disconnect") + request("/next")
    with Wire(served.url) as wire:
        wire.send(sent)
        served.wait_for_bytes(len(sent))
    served.wait_for_disconnect()
    assert served.application.asked == ["/until-disconnect"]


def test_half_closed_connection_gets_its_responses(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send_last(request("/slow", b"first") + request("/second"))
        served.wait_for_timer(PROBE_S)
        served.finish()
        assert received(wire)["body"] == "first"
        second = wire.answer()
        assert (second.status, second.headers["connection"]) == (200, "close")
        assert wire.has_ended()


def test_half_closed_connection_gets_a_few_interim_responses(served: Served) -> None:
    """Clients may ignore them; a failed write is the only sign that the client has disconnected."""
    with Wire(served.url) as wire:
        wire.send_last(request("/slow", b"first"))
        served.wait_for_timer(PROBE_S)
        for _ in range(10):
            served.advance(PROBE_S)
        assert [wire.answer().status for _ in range(MAX_PROBES)] == [100] * MAX_PROBES
        served.finish()
        assert received(wire)["body"] == "first"
        assert wire.has_ended()


def test_disconnect_of_a_half_closed_connection_is_detected(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send_last(request("/until-disconnect"))
        served.wait_for_timer(PROBE_S)
    served.wait_for_disconnect()


def test_disconnect_during_the_response_is_detected(served: Served) -> None:
    """A response that has started contains no interim response."""
    with Wire(served.url) as wire:
        wire.send_last(request("/endless"))
        assert wire.head()[0] == 200
        served.wait_for_timer(PROBE_S)
        served.advance(PROBE_S)
        parts = wire.chunks()
        assert {next(parts) for _ in range(1000)} == {b"part"}
    wait_until(lambda: served.application.disconnected)


def test_half_closed_http_1_0_connection_is_answered_at_once_or_closed(served: Served) -> None:
    """HTTP/1.0 has no interim responses."""
    with Wire(served.url) as wire:
        wire.send_last(request("/first", b"old", version="1.0"))
        assert received(wire)["body"] == "old"
        assert wire.has_ended()
    with Wire(served.url) as wire:
        wire.send_last(request("/until-disconnect", version="1.0"))
        served.wait_for_timer(PROBE_S)
        served.advance(PROBE_S)
        assert wire.has_ended()
    wait_until(lambda: served.application.disconnected)


WHOLE = request("/first", b"whole")
CHUNKED = request("/first", None, transfer_encoding="chunked") + chunked(b"part")


@pytest.mark.parametrize("sent", [b"", b"\r\n", WHOLE[:10], WHOLE[:-1], CHUNKED, request("/full", b"")[:-2]])
@pytest.mark.parametrize("is_first", [True, False])
def test_incomplete_request_is_dropped_when_the_client_half_closes(served: Served, sent: bytes, is_first: bool) -> None:
    with Wire(served.url) as wire:
        if not is_first:
            assert received(wire.send(request("/before")))["path"] == "/before"
        wire.send_last(sent)
        assert wire.has_ended()
    if b"\r\n\r\n" in sent:  # the application has started to read the body
        wait_until(lambda: served.application.disconnected == ["/first"])


@pytest.mark.parametrize("sent", [WHOLE[:10], WHOLE[:-1], CHUNKED])
def test_incomplete_request_does_not_drop_previous_responses(served: Served, sent: bytes) -> None:
    with Wire(served.url) as wire:
        wire.send_last(request("/slow", b"whole") + request("/next") + sent)
        served.wait_for_timer(PROBE_S)
        served.finish()
        assert [received(wire)["path"] for _ in range(2)] == ["/slow", "/next"]
        assert wire.has_ended()
    assert served.application.asked == ["/slow", "/next"]


@pytest.mark.parametrize(("ours", "theirs"), [(BoundedProtocol, HttpToolsProtocol), (server._Server, uvicorn.Server)])
def test_overridden_methods_exist_in_uvicorn(ours: type, theirs: type) -> None:
    """An override that uvicorn never calls would protect nothing."""
    overridden = {name for name, value in vars(ours).items() if getattr(value, "__override__", False)}
    assert overridden
    assert {name for name in overridden if not hasattr(theirs, name)} == set()
