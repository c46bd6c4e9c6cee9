"""Limits of connections, over sockets, with each parser of uvicorn."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import pytest
import uvicorn
import uvloop
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.http.protocol import HEAD_S, LINGER_S, MAX_HEAD_BYTES, WRITE_S, GuardedProtocol
from service.server import KEEP_ALIVE_S
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.wire import LAST_CHUNK, Wire, chunked, request

T = TypeVar("T")
BIG = b"b" * 2**20

REFUSALS: dict[str, tuple[bytes, int, dict[str, str]]] = {
    "/refuse": (b"refused", 413, {}),
    "/last": (b"last", 503, {"connection": "close"}),
}
"""Path -> content, status and headers of a response to a request whose body is not read."""


class Application:
    """Returns the request it got. /slow and /wait wait for the test, /big responds at length."""

    def __init__(self) -> None:
        self.may_finish = asyncio.Event()
        self.asked: list[str] = []
        self.answered: list[str] = []
        self.disconnected: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        self.asked.append(scope["path"])
        if scope["path"] in REFUSALS:
            response = Response(*REFUSALS[scope["path"]])
        elif scope["path"] == "/big":
            response = Response(BIG * 64)
        elif scope["path"] == "/wait":
            await self.may_finish.wait()
            response = Response(b"late")
        elif scope["path"] == "/endless":
            response = StreamingResponse(self._endless())
        else:
            try:
                response = await self._echo(scope, receive)
            except ClientDisconnect:
                self.disconnected.append(scope["path"])
                return
        await response(scope, receive, send)
        self.answered.append(scope["path"])

    async def _endless(self) -> AsyncIterator[bytes]:
        """Yield parts of a response until the client disconnects."""
        try:
            while True:
                yield b"part"
                await asyncio.sleep(0)
        finally:
            self.disconnected.append("/endless")

    async def _echo(self, scope: Scope, receive: Receive) -> Response:
        """Return the request."""
        body = await Request(scope, receive).body()
        if scope["path"] == "/slow":
            finish = asyncio.create_task(self.may_finish.wait())
            ended = asyncio.ensure_future(receive())
            await asyncio.wait((finish, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                raise ClientDisconnect
            ended.cancel()
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


class ManualLoop(uvloop.Loop):
    """An event loop whose timers fire when the test advances the time."""

    def __init__(self) -> None:
        super().__init__()
        self._manual: list[ManualTimer] = []
        self._manual_s = 0.0

    def call_later(self, delay: float, callback: Callable[..., object], *args: object, context: Any = None) -> Any:
        del context
        timer = ManualTimer(delay, self._manual_s + delay, partial(callback, *args))
        self._manual.append(timer)
        return timer

    def has_timer(self, delay_s: float) -> bool:
        """Return whether a timer of that delay is running."""
        return any(timer.delay_s == delay_s and not timer.is_cancelled for timer in self._manual)

    def advance(self, seconds: float) -> None:
        """Advance the time and fire the timers that are due, in order."""
        until_s = self._manual_s + seconds
        while due := [timer for timer in self._manual if not timer.is_cancelled and timer.due_s <= until_s]:
            first = min(due, key=attrgetter("due_s"))
            self._manual.remove(first)
            self._manual_s = first.due_s
            first.callback()
        self._manual_s = until_s


class CountingProtocol(GuardedProtocol):
    """Counts the received bytes."""

    received = 0

    @classmethod
    def of(cls, parser: type[asyncio.Protocol]) -> "type[CountingProtocol]":
        return type("Protocol", (cls,), {"parser": parser})

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.received += len(data)


class Served:
    """A server in a thread; the test advances the time of its connections."""

    def __init__(self, parser: type[asyncio.Protocol]) -> None:
        self._loop = ManualLoop()
        self._parser = parser
        self.application = Application()
        self.faults: list[dict[str, object]] = []
        self.state = ServerState()
        self.url = ""
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._loop.set_exception_handler(lambda _, context: self.faults.append(context))
        config = uvicorn.Config(
            self.application, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )  # fmt: skip
        config.load()

        def connect() -> CountingProtocol:
            return CountingProtocol.of(self._parser)(config=config, server_state=self.state, app_state={})

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
            for connection in self._connections():
                connection._transport.abort()
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

    def _connections(self) -> list[CountingProtocol]:
        connections: Collection[object] = self.state.connections
        return [each for each in connections if isinstance(each, CountingProtocol)]

    def _do(self, action: Callable[[], T]) -> T:
        """Run an action on the loop and return its result."""

        async def run() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def advance(self, seconds: float) -> None:
        """Advance the time of every connection."""
        self._do(lambda: self._loop.advance(seconds))

    def finish(self) -> None:
        """Let /slow respond."""
        self._do(self.application.may_finish.set)

    def shut_down(self) -> None:
        """Do with the connections what uvicorn does when it stops."""

        def shut_down() -> None:
            for connection in self._connections():
                connection.shutdown()

        self._do(shut_down)

    def wait_for_timer(self, seconds: float) -> None:
        """Wait until a connection has a timer of that delay."""
        wait_until(lambda: self._do(lambda: self._loop.has_timer(seconds)), lambda: f"no timer of {seconds} s")

    def wait_for_bytes(self, count: int) -> None:
        """Wait until the open connections have received that many bytes."""
        wait_until(lambda: self._do(lambda: sum(each.received for each in self._connections())) == count)

    def wait_for_request(self, path: str) -> None:
        """Wait until the application has got a request."""
        wait_until(lambda: path in self.application.asked)

    def unsent(self) -> int:
        """Return the bytes of the only connection that the kernel has not accepted yet."""
        return self._do(lambda: self._connections()[0]._transport.get_write_buffer_size())


@pytest.fixture(params=[HttpToolsProtocol, H11Protocol])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with Served(request.param).running() as served:
        yield served


def received(wire: Wire) -> dict[str, Any]:
    """Return the request as the application got it."""
    answer = wire.answer()
    assert answer.status == 200, answer
    facts: dict[str, Any] = json.loads(answer.body)
    return facts


CODED = request("/coded", None, transfer_encoding="chunked")


def test_pipelined_requests_are_answered_in_order(served: Served) -> None:
    paths = [f"/{'slow' if number == 2 else number}" for number in range(8)]
    sent = b"".join(request(path, path.encode()) for path in paths) + CODED + chunked(b"last") + LAST_CHUNK
    with Wire(served.url) as wire:
        wire.send(sent)
        served.wait_for_request("/slow")
        assert served.application.asked == ["/0", "/1", "/slow"]
        served.finish()
        assert [received(wire)["body"] for _ in paths] == paths
        assert received(wire)["body"] == "last"


def test_pipelined_requests_wait_in_the_kernel(served: Served) -> None:
    sent, refused, part = 0, 0, request("/next", BIG)
    with Wire(served.url) as wire:
        wire.send(request("/slow", b"first"))
        served.wait_for_request("/slow")
        wire.socket.setblocking(False)
        while refused < 50:
            try:
                sent, refused = sent + wire.socket.send(part), 0
            except BlockingIOError:
                refused += 1
                served.advance(0)  # a turn of the server's event loop
            assert sent < 64 * len(BIG)
    served.finish()


def test_shutdown_answers_the_running_request(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/slow", b"first") + request("/second"))
        served.wait_for_request("/slow")
        served.shut_down()
        served.finish()
        assert received(wire)["body"] == "first"
        assert wire.has_ended()
    assert served.application.asked == ["/slow"]


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("first", [b"", request("/before")])
def test_upgrade_is_dropped(served: Served, is_chunked: bool, first: bytes) -> None:
    hidden = request("/hidden", b"")
    fields = {"connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "http2_settings": "AAMAAABk"}
    plain = request("/first", hidden, **fields)
    coded = request("/first", None, transfer_encoding="chunked", **fields) + chunked(hidden) + LAST_CHUNK
    with Wire(served.url) as wire:
        wire.send(first + (coded if is_chunked else plain) + request("/second"))
        if first:
            assert received(wire)["path"] == "/before"
        assert received(wire)["body"] == hidden.decode()
        assert received(wire)["path"] == "/second"


@pytest.mark.parametrize(
    "sent",
    [
        request("/first", b"whole", connection="upgrade", upgrade="h2c") + request("/second", b"2"),
        request("/first", None, transfer_encoding="chunked")
        + chunked(b"who", b"le")
        + b"0;a=b\r\nx-late: 1\r\n\r\n"
        + request("/second", b"2"),
    ],
    ids=["upgrade", "chunked"],
)
def test_requests_may_be_split_into_any_two_packets(served: Served, sent: bytes) -> None:
    for place in range(1, len(sent)):
        with Wire(served.url) as wire:
            wire.send(sent[:place])
            served.wait_for_bytes(place)
            wire.send(sent[place:])
            first, second = received(wire), received(wire)
            assert (first["body"], second["body"]) == ("whole", "2"), place
            assert not {"upgrade", "x-late"} & first["headers"].keys()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\x00c\r\n\r\n",
        request(transfer_encoding="chunked"),
        request(content_length="1, 1"),
        request(content_length="-1"),
        request(content_length="+1"),
        request(content_length="9" * 5000),
        request(content_length="1").replace(b"content-type: text/plain", b"content-length: 2"),
        request(body=None, transfer_encoding="gzip"),
        request(body=None, transfer_encoding="chunked, gzip"),
        request(body=None, transfer_encoding="gzip").replace(b"gzip\r\n", b"gzip\r\ntransfer-encoding: chunked\r\n"),
        request(body=None).replace(b"\r\n\r\n", b"\r\nTransfer-Encoding : chunked\r\n\r\n"),
        request(body=None).replace(b"\r\n\r\n", b"\r\nTransfer-Encoding:\x0bchunked\r\n\r\n"),
        request(body=None).replace(b"\r\n\r\n", b"\r\nContent-Length:\r\n 9\r\n\r\n"),
        CODED + b"zz\r\n",
        CODED + b"fffffffffffffffff\r\n",
        CODED + b"1\r\nxx\r\n0\r\n\r\n",
    ],
)
@pytest.mark.parametrize("first", [b"", request("/before")])
def test_malformed_http_is_rejected_and_closes_the_connection(served: Served, sent: bytes, first: bytes) -> None:
    with Wire(served.url) as wire:
        wire.send(first + sent + request("/hidden"))
        if first:
            assert received(wire)["path"] == "/before"
        status, headers = wire.head()
        assert (status, headers["connection"]) == (400, "close")
        assert b"HTTP/1.1 " not in wire.rest()
    assert "/hidden" not in served.application.asked


def test_response_after_a_malformed_body_is_dropped(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/wait", None, transfer_encoding="chunked"))
        served.wait_for_request("/wait")
        assert wire.send(b"zz\r\n").answer().status == 400
        served.finish()
        wait_until(lambda: served.application.answered == ["/wait"])
        assert wire.has_ended()


@pytest.mark.parametrize("more", [b"zz\r\n", b"1\r\nxx\r\n"])
def test_malformed_body_gets_no_second_response(served: Served, more: bytes) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/refuse", None, transfer_encoding="chunked") + chunked(b"hello"))
        assert wire.answer().status == 413
        wire.send(more + request("/hidden"))
        assert wire.has_ended()
    assert served.application.asked == ["/refuse"]


def test_headers_are_accepted_up_to_the_limit(served: Served) -> None:
    allowed = MAX_HEAD_BYTES - len(request("/long", None, x_long=""))
    with Wire(served.url) as wire:
        wire.send(request("/1", BIG) + request("/long", None, x_long="a" * allowed) + request("/2"))
        assert [received(wire)["path"] for _ in range(3)] == ["/1", "/long", "/2"]
        longer = request("/long", None, x_long="a" * (allowed + 1))
        wire.send(longer[:-1])
        served.wait_for_bytes(len(request("/1", BIG)) + MAX_HEAD_BYTES + len(request("/2")) + MAX_HEAD_BYTES)
        assert wire.send(longer[-1:]).answer().status == 431


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("pieces", [1, 50])
@pytest.mark.parametrize("first", [b"", request("/before")])
def test_too_long_headers_are_rejected(served: Served, is_complete: bool, pieces: int, first: bytes) -> None:
    sent = first + request(x_long="a" * 2 * MAX_HEAD_BYTES)[: None if is_complete else -10]
    step = 1 + len(sent) // pieces
    with Wire(served.url) as wire:
        for start in range(0, len(sent), step):
            wire.send(sent[start : start + step])
        if first:
            assert received(wire)["path"] == "/before"
        assert wire.answer().status == 431
        assert wire.has_ended()


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (CODED + b"0\r\nx-long: ", b"a" * 10_000),
        (CODED + b"0\r\n", b"x-many: 1\r\n" * 1000),
        (CODED + b"1;", b"a" * 10_000),
        (CODED + chunked(b"a") + b"1;", b"a" * 10_000),
    ],
    ids=["trailer", "trailers", "chunk extension", "second chunk extension"],
)
def test_trailers_and_extensions_are_limited(served: Served, start: bytes, more: bytes) -> None:
    with Wire(served.url) as wire:
        wire.send(start, *[more] * 100)
        assert wire.answer().status in (400, 431)
        assert wire.has_ended()


def test_slow_headers_close_the_connection(served: Served) -> None:
    """An occasional byte does not extend the time."""
    line = b"a: b\r\n"
    with Wire(served.url) as wire:
        wire.send(request("/first"))
        assert received(wire)["path"] == "/first"
        wire.send(b"GET / HTTP/1.1\r\n")
        served.wait_for_timer(HEAD_S)
        for number in range(4):
            wire.send(line)
            served.wait_for_bytes(len(request("/first")) + 16 + (number + 1) * len(line))
            served.advance(HEAD_S / 5)
        assert served.state.connections
        served.advance(HEAD_S / 5)
        assert wire.has_ended()


def test_slow_headers_do_not_abort_the_previous_response(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/slow", b"first") + b"GET /second")
        served.wait_for_request("/slow")
        served.advance(4 * HEAD_S)
        served.finish()
        assert received(wire)["body"] == "first"
        served.wait_for_timer(HEAD_S)
        served.advance(HEAD_S)
        assert wire.has_ended()


@pytest.mark.parametrize("before", [b"", request("/first"), request("/refuse", b"", content_length="1") + b"x"])
def test_idle_connection_is_closed(served: Served, before: bytes) -> None:
    """Empty lines are allowed before a request and do not start one."""
    with Wire(served.url) as wire:
        if before:
            wire.send(before[:-1])
            served.wait_for_bytes(len(before) - 1)
            wire.send(before[-1:])
            assert wire.answer().status in (200, 413)
        wire.send(b"\r\n" * 1000)
        served.wait_for_bytes(len(before) + 2000)
        served.wait_for_timer(KEEP_ALIVE_S)
        served.advance(KEEP_ALIVE_S)
        assert wire.has_ended()


def test_used_connection_stays_open(served: Served) -> None:
    with Wire(served.url) as wire:
        for _ in range(10):
            wire.send(request("/first"))
            assert received(wire)["path"] == "/first"
            served.wait_for_timer(KEEP_ALIVE_S)
            served.advance(0.9 * KEEP_ALIVE_S)


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


@pytest.mark.parametrize("how", [{}, {"connection": "close"}, {"version": "1.0"}])
@pytest.mark.parametrize(("path", "status"), [("/refuse", 413), ("/last", 503)])
def test_client_that_keeps_sending_gets_its_rejection(
    served: Served, path: str, status: int, how: dict[str, str]
) -> None:
    with Wire(served.url) as wire:
        sent = request(path, b"x" * 30_000_000, **how)
        for first in range(0, len(sent), 1_000_000):
            wire.send(sent[first : first + 1_000_000])
        answer = wire.answer()
        assert answer.status == status
        if how or path == "/last":
            assert wire.has_ended()


@pytest.mark.parametrize("path", ["/refuse", "/last"])
@pytest.mark.parametrize("head", [{"content_length": "1000000000"}, {"transfer_encoding": "chunked"}])
def test_rejected_body_is_read_for_a_limited_time(served: Served, path: str, head: dict[str, str]) -> None:
    sent, more = request(path, b"" if "content_length" in head else None, **head), chunked(b"x" * 1000)
    with Wire(served.url) as wire:
        wire.send(sent)
        wire.answer()
        served.wait_for_timer(LINGER_S)
        for number in range(4):
            wire.send(more)
            served.wait_for_bytes(len(sent) + (number + 1) * len(more))
            served.advance(LINGER_S / 5)
        assert served.state.connections
        served.advance(LINGER_S / 5)
        wait_until(lambda: not served.state.connections)


@pytest.mark.parametrize("body", [b"x" * 1_000_000, None])
def test_connection_is_reusable_after_a_rejected_body(served: Served, body: bytes | None) -> None:
    sent = request("/refuse", body)
    if body is None:
        sent = request("/refuse", body, transfer_encoding="chunked") + chunked(*[b"x" * 1000] * 1000) + LAST_CHUNK
    with Wire(served.url) as wire:
        for _ in range(2):
            wire.send(sent + request("/next"))
            assert wire.answer().status == 413
            assert received(wire)["path"] == "/next"
        served.advance(2 * LINGER_S)
        wire.send(request("/later"))
        assert received(wire)["path"] == "/later"


def test_shutdown_waits_for_a_rejected_body(served: Served) -> None:
    sent = request("/refuse", b"", content_length="1000000")
    with Wire(served.url) as wire:
        wire.send(sent)
        assert wire.answer().status == 413
        served.wait_for_timer(LINGER_S)
        served.shut_down()
        wire.send(b"x" * 1_000_000)
        assert wire.has_ended()
        wait_until(lambda: not served.state.connections)


def test_100_continue_is_sent_if_the_body_is_read(served: Served) -> None:
    with Wire(served.url) as wire:
        wire.send(request("/first", b"", content_length="3", expect="100-continue"))
        assert wire.answer().status == 100
        wire.send(b"abc")
        assert received(wire)["body"] == "abc"
        wire.send(request("/refuse", b"", content_length="3", expect="100-continue"))
        assert wire.answer().status == 413


@pytest.mark.parametrize(
    "sent", [request("/slow", b"1"), request("/first", b"", content_length="10"), CODED, request("/endless")]
)
@pytest.mark.parametrize("must_close", [True, False])
def test_request_of_a_disconnected_client_is_cancelled(served: Served, sent: bytes, must_close: bool) -> None:
    """A client that closes only its sending side is taken for disconnected, too: the server cannot tell."""
    with Wire(served.url) as wire:
        wire.send(sent)
        wait_until(lambda: served.application.asked)
        if must_close:
            wire.close()
        else:
            wire.send_last()
        wait_until(lambda: served.application.disconnected == served.application.asked)


def test_disconnected_clients_do_not_affect_the_next_one(served: Served) -> None:
    for sent in (b"", b"GET", request("/slow"), request("/big"), request("/first", b"", content_length="10")):
        Wire(served.url).send(sent).close()
    with Wire(served.url) as wire:
        assert received(wire.send(request("/still-there")))["path"] == "/still-there"
