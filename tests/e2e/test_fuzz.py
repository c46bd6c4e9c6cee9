"""Fuzzed requests: each gets a clear response or its connection is closed; none causes a server error.

A case is made from its number alone, so the number that a failure prints is enough to reproduce it:
`print(make_case(1234))`. Most cases are good HTTP with a bad body, sent one after another on kept-alive connections;
the others are broken HTTP, each on a new connection.
"""

import gzip
import json
import logging
import random
import re
import socket
import threading
import time
import zlib
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.mutations import mutate
from tests.support.offline import Offline, agree
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.wire import Answer, Wire, request

log = logging.getLogger(__name__)

JSON, NDJSON, TEXT, BINARY = b"application/json", b"application/x-ndjson", b"text/plain", b"application/octet-stream"
KSERVE, INFER = b"/v1/timeseries/forecast", b"/v2/models/imdb-s3/infer"
OPENAI, TEI = b"/v1/embeddings", (b"/predict", b"/rerank", b"/similarity", b"/embed", b"/")
HEAD_LENGTH = b"Inference-Header-Content-Length"
MARK = b"5ecret that no answer may ever show to anybody"
"""Appears in bodies; longer than the part of an unknown name that an error shows."""
RERANK = (b"/v1/rerank", b"/v2/rerank")
ECHOING = (b"/v1/rank", b"/rerank", *RERANK)
BINARY_HEAD = (
    b'{"id":"7","inputs":[{"name":"text","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":%d}}],'
    b'"outputs":[{"name":"scores","parameters":{"binary_data":true,"classification":1}}]}' % (4 + len(MARK))
)
TEMPLATES = [
    (b"/v1/classify", JSON, b'{"inputs":"MARK","model":null,"top_k":1,"on_overflow":"head","detail":true}'),
    (b"/v1/classify", JSON, b'{"inputs":["MARK","\\u00e4",""]}'),
    (b"/v1/classify?top_k=1&detail=true", TEXT, b"plain MARK, neither short nor long"),
    (b"/v1/classify?model=imdb-s3&on_overflow=tail", BINARY, b"\x00\xffMARK"),
    (b"/v1/classify", NDJSON, b'{"id":1,"text":"MARK"}\n{"text":"MARK"}\n\n{"base64":"BASE64"}\n'),
    (b"/v1/classify", JSON, b'{"series":{"x":[1,null,2.5e3],"MARK":[0,0.5,1e-9]},"rate":10,"detail":true}'),
    (b"/v1/classify", JSON, b'{"series":[{"x":[1,null]},{"x":[7]}],"model":null,"top_k":1}'),
    (b"/v1/classify?top_k=1", NDJSON, b'{"id":1,"series":[[1,null],[3,2.5e3]],"rate":2}\n{"series":{"MARK":[1]}}\n'),
    (b"/v1/score", JSON, b'{"pairs":[["MARK","def"],["abc","\\u00e4MARK"]],"on_overflow":"tail"}'),
    (b"/v1/rank", JSON, b'{"query":"MARK","documents":["MARK","","abc"],"top_n":2,"return_documents":true}'),
    (
        b"/v1/forecast",
        JSON,
        b'{"series":[[1,null,2.5e3]],"horizon":3,"quantiles":[0.1,0.9],"start":"2016-07-01","frequency":"1h"}',
    ),
    (b"/v1/forecast", JSON, b'{"series":{"x":[1,2,-3],"y":[0,0.5,1e-9]},"model":null}'),
    (
        KSERVE,
        JSON,
        b'{"model":"ettm2","inputs":[{"series":[[1,2],[3,null]],"frequency":"H"}],"options":{"horizon":2}}',
    ),
    (INFER, JSON, b'{"id":"7","inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["MARK"]}]}'),
    (
        INFER,
        JSON,
        b'{"inputs":[{"name":"bytes","datatype":"UINT8","shape":[2,3],"data":[[1,2,3],[4,5,6]]},'
        b'{"name":"lengths","datatype":"INT32","shape":[2],"data":[3,1]}],"parameters":{"timeout":30000000}}',
    ),
    (INFER, BINARY, BINARY_HEAD + len(MARK).to_bytes(4, "little") + b"MARK"),
    (b"/v1/models/imdb-s3:predict", JSON, b'{"instances":["MARK",{"text":"MARK"},{"b64":"BASE64"}]}'),
    (b"/v1/models/aan:predict", JSON, b'{"instances":[{"a":"MARK","b":{"b64":"BASE64"}}],"signature_name":"MARK"}'),
    (b"/v1/models/ettm2:predict", JSON, b'{"instances":[{"series":[[1,null],[3,2.5e3]]},{"series":{"MARK":[1]}}]}'),
    (b"/predict", JSON, b'{"inputs":[["MARK","abc"],["abc","MARK"]],"raw_scores":true,"truncate":false}'),
    (b"/predict", JSON, b'{"inputs":"MARK","truncation_direction":"left","truncate":true}'),
    (b"/rerank", JSON, b'{"query":"MARK","texts":["MARK","abc"],"return_text":true,"top_n":1}'),
    (b"/rerank", JSON, b'{"query":"MARK","documents":["MARK",{"text":"abc"}],"raw_scores":true,"model":null}'),
    (b"/v1/rerank", JSON, b'{"query":"MARK","documents":["MARK",{"text":"abc","MARK":1}],"return_documents":true}'),
    (b"/v2/rerank", JSON, b'{"query":"MARK","documents":["MARK","abc"],"model":"aan","top_n":1,"priority":"MARK"}'),
    (b"/similarity", JSON, b'{"inputs":{"source_sentence":"MARK","sentences":["MARK","abc"]},"parameters":null}'),
    (b"/embed", JSON, b'{"inputs":["MARK","abc"],"normalize":false,"prompt_name":null,"dimensions":320}'),
    (b"/", JSON, b'{"inputs":"MARK","parameters":{"top_k":1,"function_to_apply":"none"}}'),
    (b"/", JSON, b'{"inputs":{"source_sentence":"MARK","sentences":["abc"]},"parameters":{}}'),
    (OPENAI, JSON, b'{"input":["MARK","abc"],"model":"aan","encoding_format":"base64","user":"MARK"}'),
]
SEEDS = [
    (target, kind, body.replace(b"MARK", MARK).replace(b"BASE64", b64encode(MARK))) for target, kind, body in TEMPLATES
]
TYPES = [
    JSON, NDJSON, TEXT, BINARY, b"", b";", b"text/html", b"application/json; charset=utf-16", b"TEXT/PLAIN;charset=x",
    b"multipart/form-data; boundary=x", b"application/json, text/plain", b"\xff\xfe/\x80", b"a/" + 999 * b"b",
]  # fmt: skip
VALUES = [b"", b"0", b"1", b"-1", b"x", b"null", b"%ff", b"%00", b"+", b"top_k", b"detail", b"model=", b"&&", 50 * b"9"]
NUMBERS = [
    b"-0", b"1e999", b"-1E+400", 400 * b"9", b"0." + 400 * b"1", b"1e-999", b"9223372036854775808", b"2147483648",
    b"NaN", b"-Infinity", b"0x10", b"1_0", b"01", b"true", b"null", b'"1"', b"{}", b"[]", b"1.0",
]  # fmt: skip
TEXTS = [
    b"\\ud800", b"\\udc00\\ud800", b"\\u0000", b"\x00", b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\\x", b"\\", b'\\"', b"\r", b"\n", b"\t", b"\x1b[2J", b"${jndi:x}",
]  # fmt: skip
HEADERS = [
    b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: +7", b"Content-Length: 99999999999999999999999",
    b"Content-Length: 0x10", b"Content-Length: 1, 1", b"Content-Length:", b"Content-Length : 3",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding:\tchunked", b"Transfer-Encoding: \x0bchunked",
    b"Expect: 100-continue", b"Expect: 1", b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings",
    b"Upgrade: websocket\r\nConnection: upgrade", b"Connection: close", b"Connection: keep-alive, close, \xff",
    b"Content-Encoding: gzip", b"Content-Encoding: deflate", b"Content-Encoding: br, gzip",
    b"X-Request-Timeout-Ms: 0", b"X-Request-Timeout-Ms: 99999999999999",
    b"X-Request-Id: \xff", b"Range: bytes=0-", b"Host: y", b"Host:",
    b"traceparent: 00-0-0-0", b"Authorization: Bearer \xff", b"no colon", b": no name", b" folded: x", b"\x00: x",
    b"a: \x00", b"a:\rb", b"X-Long: " + 70_000 * b"x", 3000 * b"a: b\r\n" + b"a: b",
]  # fmt: skip
LINES = [
    b"GET / HTTP/1.1", b"POST /v1/classify HTTP/1.0", b"POST /v1/classify HTTP/2.0", b"POST /v1/classify",
    b"PRI * HTTP/2.0", b"GET /v1/models/\xf0\x9f HTTP/1.1", b"\r\n\r\nGET /health HTTP/1.1",
    b"CONNECT x:1 HTTP/1.1", b"OPTIONS * HTTP/1.1", b"TRACE /v1/classify HTTP/1.1", b"post /v1/classify HTTP/1.1",
    b"POST http://x/v1/classify HTTP/1.1", b"POST //v1//classify HTTP/1.1", b"POST /v1/classify%00 HTTP/1.1",
    b"POST /v1/classify?%ff=%zz&top_k=&top_k=1 HTTP/1.1", b"POST /\xff HTTP/1.1", b"POST /../../etc/passwd HTTP/1.1",
    b"POST /v2/models/%2e%2e/versions/\xd9\xa3/infer HTTP/1.1", b"HEAD /health HTTP/1.1",
    b"POST /" + 70_000 * b"a" + b" HTTP/1.1",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]  # fmt: skip
SIZES = [
    b"0", b"00", b"-1", b"+1", b"0x5", b"5;a=b", b'5;a="\r\n"', b"", b"ffffffffffffffff", b"fffffffffffffffff", b" 5",
]  # fmt: skip
STATUSES = {200, 400, 404, 413, 415, 422}
CODES = {
    "malformed_input", "invalid_input", "model_not_found", "payload_too_large", "unsupported_media_type",
    "unsupported_encoding",
}  # fmt: skip
CLIENTS = 8
MAX_BYTES = 20_000
SILENCE_S = 0.05
"""If broken HTTP gets no response in this time, it may be incomplete: the client then shuts down its sending side."""


def truncate(body: bytes, generator: random.Random) -> bytes:
    return body[: generator.randrange(len(body) + 1)]


def splice(body: bytes, generator: random.Random) -> bytes:
    """Join the beginning of one body and the end of another."""
    other = generator.choice(SEEDS)[2]
    return body[: generator.randrange(len(body) + 1)] + other[generator.randrange(len(other) + 1) :]


def repeat(body: bytes, generator: random.Random) -> bytes:
    """Repeat a part once or often: keys, elements, lines."""
    first, last = sorted(generator.choices(range(len(body) + 1), k=2))
    return body[:first] + generator.choice((2, 2, 3, 50)) * body[first:last] + body[last:]


def nest(body: bytes, generator: random.Random) -> bytes:
    """Nest lists or objects deeply, in place of a value or around the whole body."""
    depth = generator.choice((3, 200, 2000, 20_000))
    opening, closing = generator.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[{", b"}]"), (b'{"inputs":[', b"")))
    values = [found.span() for found in re.finditer(rb"[\w.-]+", body)] or [(0, len(body))]
    first, last = generator.choice(values)
    return body[:first] + depth * opening + body[first:last] + generator.choice((depth, 0)) * closing + body[last:]


def replace_number(body: bytes, generator: random.Random) -> bytes:
    return replace(body, rb"-?\d[\d.e-]*", generator.choice(NUMBERS), generator)


def replace_text(body: bytes, generator: random.Random) -> bytes:
    """Insert invalid text into a string or before the body."""
    return replace(body, generator.choice((rb'(?<=")', rb"^", rb"\w+")), generator.choice(TEXTS), generator)


def replace(body: bytes, pattern: bytes, by: bytes, generator: random.Random) -> bytes:
    """Replace one match of a pattern."""
    places = [found.span() for found in re.finditer(pattern, body)] or [(0, 0)]
    first, last = generator.choice(places)
    return body[:first] + by + body[last:]


CHANGES: list[Callable[[bytes, random.Random], bytes]] = [
    mutate, mutate, truncate, splice, repeat, nest, replace_number, replace_text,
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """The bytes of a request and what the response depends on."""

    number: int
    path: bytes
    data: bytes
    is_http: bool
    """Whether it is one well-formed request, which must get a response and keep the connection open."""


def make_case(number: int) -> Case:
    """Return the case with that number."""
    generator = random.Random(number)
    target, kind, body = generator.choice(SEEDS)
    path = target.partition(b"?")[0]
    headers = []
    if path == INFER and kind == BINARY:
        length = generator.choice(
            [str(len(BINARY_HEAD)).encode(), str(generator.randrange(len(body) + 9)).encode(), *NUMBERS]
        )
        headers.append(HEAD_LENGTH + b": " + length)
    for _ in range(generator.choice((0, 1, 1, 1, 2, 3))):
        body = generator.choice(CHANGES)(body, generator)[:MAX_BYTES]
    if b"?" in target and generator.random() < 0.5:  # otherwise every body that is not JSON would be a document
        target = replace(target, rb"(?<=[?=&])\w*", generator.choice(VALUES), generator)
    if generator.random() < 0.1:
        kind = generator.choice(TYPES)
    headers.append(b"Content-Type: " + kind)
    if generator.random() < 0.15:
        coding, body = generator.choice(((b"gzip", gzip.compress(body, mtime=0)), (b"deflate", zlib.compress(body))))
        headers.append(b"Content-Encoding: " + coding)
        if generator.random() < 0.3:
            body = generator.choice(CHANGES)(body, generator)[:MAX_BYTES]
    line = b"POST " + target + b" HTTP/1.1"
    chunks = split(body, generator) if generator.random() < 0.2 else None
    if generator.random() < 0.85:
        return Case(number, path, assemble(line, headers, body, chunks), is_http=True)
    return Case(number, path, break_http(line, headers, body, chunks, generator), is_http=False)


def split(body: bytes, generator: random.Random) -> list[tuple[bytes, bytes]]:
    """Split a body into chunks, each with its size line."""
    cuts = sorted(generator.choices(range(len(body) + 1), k=generator.randint(0, 3)))
    parts = [body[first:last] for first, last in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    return [(b"%x" % len(part), part) for part in parts if part]


def assemble(line: bytes, headers: Sequence[bytes], body: bytes, chunks: Sequence[tuple[bytes, bytes]] | None) -> bytes:
    """Return the bytes of a request."""
    length = b"Content-Length: %d" % len(body) if chunks is None else b"Transfer-Encoding: chunked"
    if chunks is not None:
        body = b"".join(size + b"\r\n" + part + b"\r\n" for size, part in chunks) + b"0\r\n\r\n"
    return b"\r\n".join((line, b"Host: x", *headers, length, b"", body))


def break_http(
    line: bytes,
    headers: list[bytes],
    body: bytes,
    chunks: list[tuple[bytes, bytes]] | None,
    generator: random.Random,
) -> bytes:
    """Return malformed bytes that resemble one request or two."""
    kind = generator.randrange(6)
    if kind == 0:
        line = generator.choice(LINES)
    if kind in (0, 1, 2):
        headers = generator.sample(
            [*headers, *generator.choices(HEADERS, k=generator.randint(1, 3))], k=len(headers) + 1
        )
    if kind == 3:
        chunks = chunks or split(body, generator) or [(b"0", b"")]
        at = generator.randrange(len(chunks))
        chunks[at] = (generator.choice((*SIZES, b"%x" % generator.randrange(2**20))), chunks[at][1])
    data = assemble(line, headers, body, chunks)
    if kind == 4:
        head, _, rest = data.partition(b"\r\n\r\n")
        data = mutate(head, generator) + generator.choice((b"\r\n\r\n", b"\r\n\r\n", b"\n\n", b"\r\r", b"")) + rest
    if kind == 5:
        data = truncate(data, generator) + generator.choice((b"", data, b"\r\n" + data))
    return data


@dataclass
class Fuzzer:
    """Sends cases and checks the responses."""

    server: Server

    def __post_init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._has_failed = threading.Event()

    def run(self, numbers: range) -> None:
        """Send these cases, several at a time. Raises: AssertionError of the first case that fails."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            for _ in pool.map(self._run_share, [numbers[first::CLIENTS] for first in range(CLIENTS)]):
                pass

    def _run_share(self, numbers: range) -> None:
        statuses: Counter[int] = Counter()
        wire = Wire(self.server.url)
        try:
            for number in numbers:
                case = make_case(number)
                if self._has_failed.is_set():
                    return
                try:
                    if case.is_http:
                        answer = wire.send(case.data).answer()
                        statuses[check(case, answer)] += 1
                        if answer.headers.get("connection") == "close":
                            wire.close()
                            wire = Wire(self.server.url)
                    else:
                        statuses.update(check_broken(case, shoot(self.server.url, case.data)))
                except Exception as error:
                    self._has_failed.set()
                    raise AssertionError(f"case {number}: {error!r}; sent {case.data[:2000]!r}") from error
        finally:
            wire.close()
            with self._lock:
                self.statuses += statuses


def check(case: Case, answer: Answer) -> int:
    """Check the response to well-formed HTTP and return its status."""
    shown = (answer.status, answer.body[:500])
    assert answer.status in STATUSES or (answer.status in (429, 504) and b'"timeout"' in case.data), shown
    kind = answer.headers["content-type"]
    if kind == NDJSON.decode():
        lines = [json.loads(line) for line in answer.body.splitlines()]
        assert [line["index"] for line in lines] == list(range(len(lines))), shown
        assert all("label" in line or line["error"]["code"] in CODES for line in lines), shown
    elif kind == BINARY.decode():
        length = int(answer.headers[HEAD_LENGTH.decode().lower()])
        check_result(json.loads(answer.body[:length]))
    elif answer.status == 200:
        check_result(json.loads(answer.body))
    else:
        check_error(case, answer.status, json.loads(answer.body))
    assert MARK not in answer.body or (answer.status == 200 and case.path in ECHOING), shown
    return answer.status


def check_result(body: Any) -> None:
    """Check a successful body of any route: a list, or an object that contains one."""
    lists = ("results", "forecast", "outputs", "data", "predictions")
    assert body if isinstance(body, list) else any(body.get(name) for name in lists), body


def check_error(case: Case, status: int, body: Any) -> None:
    """Check that an error has the shape of its protocol."""
    if case.path == KSERVE:
        assert body["error"]["type"] in CODES, body
        assert body["error"]["message"]
    elif case.path == INFER or case.path.endswith(b":predict"):
        assert isinstance(body["error"], str), body
    elif case.path == OPENAI:
        assert body["error"]["code"] in CODES, body
    elif case.path in RERANK:
        assert body["message"] == body["detail"], body
    elif case.path in TEI:
        assert body["error_type"] == "Validation", body
    else:
        assert (body["status"], body["code"] in CODES) == (status, True), body


def shoot(url: str, data: bytes) -> bytes:
    """Send bytes on a new connection and return everything received until the server closes, which it must do."""
    host, port = url.removeprefix("http://").split(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        with suppress(ConnectionError):  # the server may respond and close before it has read everything
            connection.sendall(data)
        connection.settimeout(SILENCE_S)
        with suppress(TimeoutError, ConnectionError):
            received = connection.recv(2**20)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        connection.settimeout(PATIENCE_S)
        with suppress(ConnectionError):
            while part := connection.recv(2**20):
                received += part
    return received


def check_broken(case: Case, received: bytes) -> list[int]:
    """Check that the responses to broken HTTP, if any, are clear; return their statuses."""
    assert MARK not in received or case.path in ECHOING, received[:2000]
    assert not received or received.startswith(b"HTTP/1.1 "), received[:2000]
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) [^\r]*\r\n", received)]
    assert all(100 <= status < 500 or status in (501, 504, 505) for status in statuses), received[:2000]
    return statuses


@pytest.mark.parametrize("cases", [1_500, pytest.param(120_000, marks=pytest.mark.slow)])
def test_server_survives_fuzzed_requests(start: Callable[..., Server], offline: Offline, cases: int) -> None:
    limits = ("--max-cache-bytes", "1000000")  # the cached encodings of so many documents are no leak
    server = start("--drain-delay-s", "0", "--default-forecaster", "ettm2", *limits)
    fuzzer = Fuzzer(server)
    warm = cases // 3
    fuzzer.run(range(warm))
    wait_until(lambda: server.descriptors() <= 64, server.descriptors)
    held, opened = server.rss_bytes(), server.descriptors()
    began = time.monotonic()
    fuzzer.run(range(warm, cases))
    log.info("%.0f cases a second: %s", (cases - warm) / (time.monotonic() - began), dict(fuzzer.statuses))
    wait_until(lambda: server.descriptors() <= opened + 4, lambda: "connections stay open")
    assert server.rss_bytes() < held + 64 * 2**20
    assert {200, 400, 404, 415, 422} <= fuzzer.statuses.keys(), "the cases are too similar"
    answer = server.post("/v1/classify", content=b"a good film", headers={"content-type": "text/plain"})
    assert agree(answer.json()["results"][0], offline(b"a good film"))
    assert "Traceback" not in server.text()
    assert "Warning" not in server.text()
    assert server.stop() == 0


def test_huge_number_as_id_fails_only_its_line(server: Server) -> None:
    """Regression found by fuzzing: the JSON parser accepts integers that the encoder rejects."""
    lines = b'{"text":"a"}\n{"id":%s,"text":"a"}\n{"id":%d,"text":"a"}\n' % (400 * b"9", 2**63 - 1)
    response = server.post("/v1/classify", content=lines, headers={"content-type": NDJSON.decode()})
    first, huge, last = [json.loads(line) for line in response.text.splitlines()]
    assert (first["index"], huge["error"]["status"], last["id"]) == (0, 422, 2**63 - 1)


LINE = b'{"text":"%s"}\n' % (20_000 * b"a")
UNFINISHED = request(body=None, content_type=NDJSON.decode(), content_length="1000") + b'{"text":"a"}\n{"text":'
FOLLOWED = request(body=30 * LINE, content_type=NDJSON.decode()) + request("/health", body=None, method="GET")


@pytest.mark.parametrize("data", [UNFINISHED, FOLLOWED], ids=["in the middle", "with a request behind"])
def test_disconnect_during_the_answers_is_no_server_error(server: Server, data: bytes) -> None:
    """Regression found by fuzzing: the client disconnects with an unfinished upload or a second pending request."""
    before = len(server.text())
    answered = server.metric("longdoc_http_requests_total", route="/v1/classify")
    with Wire(server.url) as wire:
        assert wire.send(data).head()[0] == 200
    wait_until(lambda: server.metric("longdoc_http_requests_total", route="/v1/classify") > answered)
    assert server.get("/health").status_code == 200
    assert "Traceback" not in server.text()[before:]
