"""The protocol in front of a small application: what no client may do to a connection, and what every client may."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
import uvicorn
import uvloop
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from service import http
from service.http import MAX_HEAD_BYTES, BoundedProtocol
from service.routes.middleware import Refused
from tests.e2e.wire import LAST_CHUNK, Wire, chunked, request

SLOW_S = 0.4
BIG = b"b" * 2**20


REFUSALS = {
    "/full": Refused(429, [(b"content-length", b"4")], b"full"),
    "/last-full": Refused(503, [(b"content-length", b"4"), (b"connection", b"close")], b"last"),
}


class Application:
    """Tells what it was asked. /refuse does not read the body, /slow takes its time, /big answers at length."""

    def refusal(self, scope: Scope) -> Refused | None:
        return REFUSALS.get(scope["path"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        if scope["path"] == "/refuse":
            response = JSONResponse({"refused": True}, 413)
        elif scope["path"] == "/big":
            response = Response(BIG * 64)
        else:
            try:
                body = await Request(scope, receive).body()
            except ClientDisconnect:
                return
            if scope["path"] == "/slow":
                await asyncio.sleep(SLOW_S)
            facts = {"method": scope["method"], "path": scope["path"], "body": body.decode()}
            fields = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
            response = JSONResponse({**facts, "headers": fields})
        await response(scope, receive, send)


class Served:
    """A listening loop in a thread of its own."""

    def __init__(self, keep_alive_s: float) -> None:
        self._keep_alive_s = keep_alive_s
        self._loop = uvloop.new_event_loop()
        self.faults: list[dict[str, object]] = []
        self.state = ServerState()
        self.url = ""
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._loop.set_exception_handler(lambda _, context: self.faults.append(context))
        config = uvicorn.Config(
            Application(), http=BoundedProtocol, ws="none", lifespan="off", log_config=None, access_log=False,
            proxy_headers=False,
            timeout_keep_alive=self._keep_alive_s,  # type: ignore[arg-type]  # whole seconds would be long for a test
        )  # fmt: skip
        config.load()
        factory = lambda: BoundedProtocol(config=config, server_state=self.state, app_state={})  # noqa: E731
        listener = socket.create_server(("127.0.0.1", 0))
        server = self._loop.run_until_complete(self._loop.create_server(factory, sock=listener))
        self.url = "http://{}:{}".format(*listener.getsockname())
        self._is_ready.set()
        self._loop.run_forever()
        server.close()
        for connection in list(self.state.connections):
            connection.transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

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


Serve = Callable[..., str]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serve with the bounds given, the others out of reach; the address."""
    with ExitStack() as stack:

        def begin(*, keep_alive_s: float = 3600, **bounds: float) -> str:
            for name in ("HEAD_S", "WRITE_S", "LINGER_S"):
                monkeypatch.setattr(http, name, bounds.get(name, 3600))
            return stack.enter_context(Served(keep_alive_s).running()).url

        yield begin


def told(wire: Wire) -> dict[str, Any]:
    """What the application was asked."""
    answer = wire.answer()
    assert answer.status == 200, answer
    facts: dict[str, Any] = json.loads(answer.body)
    return facts


def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    with Wire(serve()) as wire:
        paths = [f"/{'slow' if number == 2 else number}" for number in range(8)]
        wire.send(b"".join(request(path, path.encode()) for path in paths))
        assert [told(wire)["body"] for _ in paths] == paths


UPGRADES = ["h2c", "websocket", "TLS/1.0"]


@pytest.mark.parametrize("protocol", UPGRADES)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_upgrade_is_answered_as_an_ordinary_request(serve: Serve, protocol: str, is_chunked: bool) -> None:
    hidden = request("/hidden", b"")
    fields = {"connection": "Upgrade, HTTP2-Settings", "upgrade": protocol, "http2_settings": "AAMAAABk"}
    plain = request("/first", hidden, **fields)
    coded = (
        request("/first", None, transfer_encoding="chunked", **fields) + chunked(hidden[:9], hidden[9:]) + LAST_CHUNK
    )
    with Wire(serve()) as wire:
        wire.send((coded if is_chunked else plain) + request("/second"))
        first, second = told(wire), told(wire)
        assert (first["path"], first["body"]) == ("/first", hidden.decode())
        assert not {"upgrade", "connection", "http2-settings"} & first["headers"].keys()
        assert (second["path"], second["body"]) == ("/second", "x")
        wire.send(request("/third"))
        assert told(wire)["path"] == "/third"


def test_upgrade_may_come_in_any_two_packets(serve: Serve) -> None:
    sent = request("/first", b"body of the first", connection="upgrade", upgrade="h2c") + request("/second", b"2")
    url = serve()
    for place in range(1, len(sent)):
        with Wire(url) as wire:
            wire.send(sent[:place])
            time.sleep(0.001)
            wire.send(sent[place:])
            assert [told(wire)["body"] for _ in range(2)] == ["body of the first", "2"], place


def test_upgrade_may_come_byte_by_byte(serve: Serve) -> None:
    with Wire(serve()) as wire:
        sent = request("/first", b"12", connection="upgrade", upgrade="h2c")
        wire.send(*(bytes([byte]) for byte in sent))
        assert told(wire)["body"] == "12"


def test_connection_ends_after_an_upgrade_that_asks_for_it(serve: Serve) -> None:
    with Wire(serve()) as wire:
        wire.send(request(connection="close, upgrade", upgrade="h2c"))
        answer = wire.answer()
        assert answer.headers["connection"] == "close"
        assert wire.has_ended()


def test_thousands_of_upgrades_at_once_are_all_answered(serve: Serve) -> None:
    count = 3000
    with Wire(serve()) as wire:
        sender = threading.Thread(
            target=wire.send, args=[b"GET / HTTP/1.1\r\nconnection:upgrade\r\nupgrade:x\r\n\r\n" * count]
        )
        sender.start()
        assert [wire.answer().status for _ in range(count)] == [200] * count
        sender.join()


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
        request(body=None, transfer_encoding="chunked") + b"zz\r\n",
        request(body=None, transfer_encoding="chunked") + b"fffffffffffffffff\r\n",
    ],
)
def test_what_is_not_http_is_refused_and_cut(serve: Serve, sent: bytes) -> None:
    with Wire(serve()) as wire:
        answer = wire.send(sent).answer()
        assert answer.status == 400
        assert answer.headers["connection"] == "close"
        assert wire.has_ended()


def test_malformed_request_does_not_take_the_answer_before_it(serve: Serve) -> None:
    with Wire(serve()) as wire:
        wire.send(request("/slow", b"first") + b"nonsense\r\n\r\n")
        assert told(wire)["body"] == "first"
        assert wire.has_ended()


def test_long_head_is_taken_up_to_the_bound(serve: Serve) -> None:
    with Wire(serve()) as wire:
        wire.send(request(x_long="a" * (MAX_HEAD_BYTES - 500)))
        assert len(told(wire)["headers"]["x-long"]) == MAX_HEAD_BYTES - 500


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("pieces", [1, 50])
def test_head_that_is_too_long_is_refused(serve: Serve, is_complete: bool, pieces: int) -> None:
    sent = request(x_long="a" * MAX_HEAD_BYTES)[: None if is_complete else -10]
    step = 1 + len(sent) // pieces
    with Wire(serve()) as wire:
        for first in range(0, len(sent), step):
            wire.send(sent[first : first + step])
            time.sleep(0.001)
        assert wire.answer().status == 431
        assert wire.has_ended()


def test_bodies_and_pipelined_heads_are_no_long_head(serve: Serve) -> None:
    with Wire(serve()) as wire:
        wire.send(request("/1", b"x" * 300_000) + b"".join(request(x_long="a" * 1000) for _ in range(200)))
        assert len(told(wire)["body"]) == 300_000
        assert [told(wire)["body"] for _ in range(200)] == ["x"] * 200


@pytest.mark.parametrize("endless", ["trailer", "trailers", "chunk extension", "leading lines"])
def test_nothing_else_is_endless_either(serve: Serve, endless: str) -> None:
    start = request(body=None, transfer_encoding="chunked")
    parts = {
        "trailer": (start + b"0\r\nx-long: ", b"a" * 10_000),
        "trailers": (start + b"0\r\n", b"x-many: 1\r\n" * 1000),
        "chunk extension": (start + b"1;", b"a" * 10_000),
        "leading lines": (b"", b"\r\n" * 5000),
    }
    with Wire(serve()) as wire, suppress(ConnectionError):
        first, more = parts[endless]
        wire.send(first)
        for _ in range(1000):
            wire.send(more)
        pytest.fail("10 MB were taken")


def test_trailers_do_not_become_headers(serve: Serve) -> None:
    with Wire(serve()) as wire:
        coded = chunked(b"abc") + b"0\r\nx-late: 1\r\n\r\n"
        wire.send(request(body=None, transfer_encoding="chunked") + coded + request("/next"))
        first = told(wire)
        assert first["body"] == "abc"
        assert "x-late" not in first["headers"]
        assert told(wire)["path"] == "/next"


def test_slow_head_is_cut(serve: Serve) -> None:
    """A byte now and then does not help."""
    began = time.monotonic()
    with Wire(serve(HEAD_S=0.5)) as wire, suppress(ConnectionError):
        wire.send(b"GET / HTTP/1.1\r\n")
        while time.monotonic() < began + 10:
            wire.send(b"a: b\r\n")
            time.sleep(0.05)
        pytest.fail("the head never had to end")
    assert time.monotonic() - began >= 0.5


def test_slow_second_head_is_cut(serve: Serve) -> None:
    with Wire(serve(HEAD_S=0.3)) as wire:
        wire.send(request("/first"))
        assert told(wire)["path"] == "/first"
        wire.send(b"GET /")
        assert wire.has_ended()


def test_head_that_is_slow_behind_a_slow_answer_does_not_cut_it(serve: Serve) -> None:
    with Wire(serve(HEAD_S=SLOW_S / 4)) as wire:
        wire.send(request("/slow", b"first") + b"GET /second")
        assert told(wire)["body"] == "first"
        assert wire.has_ended()


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
@pytest.mark.parametrize("is_first", [True, False])
def test_idle_connection_is_closed(serve: Serve, sent: bytes, is_first: bool) -> None:
    """Empty lines are allowed before a request; they do not begin one."""
    with Wire(serve(keep_alive_s=0.3), timeout=5) as wire:
        if not is_first:
            wire.send(request("/first"))
            assert told(wire)["path"] == "/first"
        wire.send(sent)
        assert wire.has_ended()


def test_connection_that_is_used_stays(serve: Serve) -> None:
    with Wire(serve(keep_alive_s=0.5)) as wire:
        for _ in range(10):
            wire.send(request("/first"))
            assert told(wire)["path"] == "/first"
            time.sleep(0.1)


def test_client_that_does_not_read_is_cut(serve: Serve) -> None:
    with Wire(serve(WRITE_S=0.3)) as wire:
        wire.send(request("/big"))
        time.sleep(1)
        with pytest.raises((AssertionError, ConnectionError)):
            wire.answer()


def test_client_that_reads_slowly_gets_everything(serve: Serve) -> None:
    with Wire(serve(WRITE_S=1.0)) as wire:
        wire.send(request("/big"))
        status, headers = wire.head()
        assert status == 200
        for _ in range(int(headers["content-length"]) // len(BIG)):
            assert wire.read(len(BIG)) == BIG
            time.sleep(0.02)
        wire.send(request("/next"))
        assert told(wire)["path"] == "/next"


ASKED_TO_CLOSE: list[dict[str, str]] = [{}, {"connection": "close"}, {"version": "1.0"}]


@pytest.mark.parametrize("how", ASKED_TO_CLOSE)
@pytest.mark.parametrize(("path", "status"), [("/refuse", 413), ("/full", 429)])
def test_client_that_goes_on_sending_sees_its_refusal(
    serve: Serve, path: str, status: int, how: dict[str, str]
) -> None:
    with Wire(serve(LINGER_S=5.0)) as wire:
        sent = request(path, b"x" * 30_000_000, **how)
        for first in range(0, len(sent), 1_000_000):
            wire.send(sent[first : first + 1_000_000])
        assert wire.answer().status == status


def test_refused_body_is_awaited_for_a_while_only(serve: Serve) -> None:
    began = time.monotonic()
    with Wire(serve(LINGER_S=0.5)) as wire, suppress(ConnectionError):
        wire.send(request("/refuse", b"", content_length="1000000000"))
        assert wire.answer().status == 413
        while time.monotonic() < began + 10:
            wire.send(b"x" * 1000)
            time.sleep(0.02)
        pytest.fail("the body never had to end")
    assert time.monotonic() - began >= 0.5


def test_connection_can_be_used_again_after_a_refused_body(serve: Serve) -> None:
    with Wire(serve(LINGER_S=0.5)) as wire:
        wire.send(request("/refuse", b"x" * 1_000_000))
        assert wire.answer().status == 413
        wire.send(request("/next"))
        assert told(wire)["path"] == "/next"
        time.sleep(0.8)
        wire.send(request("/later"))
        assert told(wire)["path"] == "/later"


def test_upload_behind_another_request_has_its_time(serve: Serve) -> None:
    with Wire(serve(LINGER_S=0.3)) as wire:
        wire.send(request("/slow", b"first") + request("/second", b"", content_length="3"))
        assert told(wire)["body"] == "first"
        for byte in (b"1", b"2", b"3"):
            time.sleep(0.2)
            wire.send(byte)
        assert told(wire)["body"] == "123"


def test_request_refused_at_the_door_is_answered_and_its_body_dropped(serve: Serve) -> None:
    with Wire(serve()) as wire:
        wire.send(request("/full", b"x" * 1_000_000) + request("/next"))
        assert wire.answer().body == b"full"
        assert told(wire)["path"] == "/next"
        wire.send(request("/full", b"") * 2 + request("/last"))
        assert [wire.answer().body for _ in range(2)] == [b"full"] * 2
        assert told(wire)["path"] == "/last"


@pytest.mark.parametrize(
    ("path", "how"), [("/full", {"connection": "close"}), ("/full", {"version": "1.0"}), ("/last-full", {})]
)
def test_refusal_that_ends_the_connection_says_so(serve: Serve, path: str, how: dict[str, str]) -> None:
    with Wire(serve()) as wire:
        wire.send(request(path, b"body", **how))
        assert wire.answer().headers["connection"] == "close"
        assert wire.has_ended()


def test_request_behind_another_one_is_not_refused_out_of_turn(serve: Serve) -> None:
    with Wire(serve()) as wire:
        wire.send(request("/slow", b"first") + request("/full"))
        assert told(wire)["body"] == "first"
        assert told(wire)["path"] == "/full"


def test_body_refused_at_the_door_is_awaited_for_a_while_only(serve: Serve) -> None:
    with Wire(serve(LINGER_S=0.3)) as wire:
        wire.send(request("/full", b"", content_length="10"))
        assert wire.answer().status == 429
        assert wire.has_ended()


def test_expectation_is_met_before_the_body_comes(serve: Serve) -> None:
    with Wire(serve()) as wire:
        wire.send(request("/first", b"", content_length="3", expect="100-continue"))
        assert wire.answer().status == 100
        wire.send(b"abc")
        assert told(wire)["body"] == "abc"


def test_expectation_of_a_refused_body_is_not_met(serve: Serve) -> None:
    with Wire(serve()) as wire:
        wire.send(request("/refuse", b"", content_length="3", expect="100-continue"))
        assert wire.answer().status == 413


def test_old_client_is_answered_and_cut(serve: Serve) -> None:
    with Wire(serve()) as wire:
        wire.send(request("/first", version="1.0"))
        assert told(wire)["path"] == "/first"
        assert wire.has_ended()


def test_head_request_has_no_body(serve: Serve) -> None:
    with Wire(serve()) as wire:
        wire.send(request("/first", None, "HEAD") + request("/second"))
        assert int(wire.answer(has_body=False).headers["content-length"]) > 0
        assert told(wire)["path"] == "/second"


def test_client_that_leaves_is_forgotten(serve: Serve) -> None:
    url = serve()
    for sent in (b"", b"GET", request("/slow"), request("/big"), request("/first", b"", content_length="10")):
        Wire(url).send(sent).close()
    with Wire(url) as wire:
        assert told(wire.send(request("/still-there")))["path"] == "/still-there"
