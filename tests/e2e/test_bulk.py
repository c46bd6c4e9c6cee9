"""Documents as JSON lines: each line gets its answer, in order and without waiting for the rest of the upload."""

import base64
import gzip
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.offline import Offline, agree, document
from tests.support.problems import SECRET, check_problem
from tests.support.server import ControlledServer, Server, sample
from tests.support.waiting import wait_until
from tests.support.wire import LAST_CHUNK, Wire, chunked, request

NDJSON = {"content-type": "application/x-ndjson"}
UPLOAD = request(body=None, content_type="application/x-ndjson", transfer_encoding="chunked")
LINE_BYTES, DOCUMENT_BYTES = 3000, 1000
DEADLINE_S = 1000

Line = dict[str, Any]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with limits low enough for a test to reach."""
    limits = ("--max-body-bytes", str(LINE_BYTES), "--max-document-bytes", str(DOCUMENT_BYTES))
    flags = ("--models", "imdb-s3", "--drain-delay-s", "0")
    with Server(tmp_path_factory.mktemp("small") / "log", *limits, *flags) as server:
        yield server
        assert server.stop() == 0


def jsonl(*lines: object) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def parsed(body: bytes) -> list[Line]:
    assert body.endswith(b"\n")
    return [json.loads(line) for line in body.splitlines()]


def ask(server: Server, body: bytes, query: str = "") -> list[Line]:
    """Post lines, check the indices of the answers and return the answers."""
    response = server.post(f"/v1/classify{query}", content=body, headers=NDJSON)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert SECRET not in response.text
    lines = parsed(response.content)
    assert [line["index"] for line in lines] == list(range(len(lines)))
    return lines


def codes(lines: list[Line]) -> list[str]:
    """Return `ok` or the error code of each line."""
    return [line["error"]["code"] if "error" in line else "ok" for line in lines]


def test_lines_get_the_answers_of_single_documents_in_order(server: Server, offline: Offline) -> None:
    documents = [document(length) for length in (1, 9000, 10, 4097, 100, 20_000, 2)] + [bytes(range(256)), b"\xff" * 50]
    lines = [{"base64": base64.b64encode(text).decode()} for text in documents[1:]]
    answers = ask(server, jsonl({"text": documents[0].decode()}, *lines))
    assert len(answers) == len(documents)
    for answer, text in zip(answers, documents, strict=True):
        assert (answer["model"], answer["coverage"]["bytes_total"]) == ("imdb-s3", len(text))
        assert agree(answer, offline(text))


def test_more_lines_than_the_read_ahead_limit_are_all_answered(server: Server) -> None:
    answers = ask(server, jsonl(*({"id": number, "text": "x" * (1 + number % 700)} for number in range(1000))))
    assert [answer["id"] for answer in answers] == list(range(1000))
    assert [answer["coverage"]["bytes_total"] for answer in answers] == [1 + number % 700 for number in range(1000)]


def test_ids_are_returned_unchanged(server: Server) -> None:
    ids = ["a", "", "ä\n\u2028", "x" * 256, 0, -1, 2**53 + 1, 2**63 - 1, -(2**63)]
    answers = ask(server, jsonl(*({"id": name, "text": "x"} for name in ids), {"text": "x"}, {"id": None, "text": "x"}))
    assert [answer.get("id") for answer in answers] == [*ids, None, None]
    assert set(codes(answers)) == {"ok"}


BAD_LINES = [
    (b"{", "malformed_input"),
    (b"nonsense " + SECRET.encode(), "malformed_input"),
    (b'{"text": "\xff"}', "malformed_input"),
    (b'{"text": "\\ud800"}', "malformed_input"),
    (b'{"text": "a"} {"text": "b"}', "malformed_input"),
    (b"[" * 1000, "malformed_input"),
    (b"[]", "invalid_input"),
    (b"null", "invalid_input"),
    (b"{}", "invalid_input"),
    (jsonl(SECRET), "invalid_input"),
    (jsonl({"text": 5}), "invalid_input"),
    (jsonl({"text": SECRET, "inputs": SECRET}), "invalid_input"),
    (jsonl({"text": SECRET, "base64": "eA=="}), "invalid_input"),
    (jsonl({"id": 7}), "invalid_input"),
    (jsonl({"text": ""}), "invalid_input"),
    (jsonl({"base64": ""}), "invalid_input"),
    (jsonl({"base64": SECRET}), "invalid_input"),
    (jsonl({"base64": "eA="}), "invalid_input"),
    (jsonl({"base64": "ä"}), "invalid_input"),
    (jsonl({"text": SECRET, "id": 1.5}), "invalid_input"),
    (jsonl({"text": SECRET, "id": True}), "invalid_input"),
    (jsonl({"text": SECRET, "id": ["a"]}), "invalid_input"),
    (jsonl({"text": SECRET, "id": "x" * 257}), "invalid_input"),
    (jsonl({"text": SECRET, "id": 2**64}), "invalid_input"),
    (jsonl({"text": SECRET, "id": -(10**30)}), "invalid_input"),
    (jsonl({"text": "x" * (DOCUMENT_BYTES + 1)}), "payload_too_large"),
    (jsonl({"text": "x" * LINE_BYTES}), "payload_too_large"),
    (b"x" * (100 * LINE_BYTES), "payload_too_large"),
    (jsonl({"text": "x"}).strip() + b" " * LINE_BYTES, "payload_too_large"),
    (b" " * LINE_BYTES + jsonl({"text": "x"}), "payload_too_large"),
]


@pytest.mark.parametrize(("line", "code"), BAD_LINES)
def test_bad_line_gets_an_error_in_its_position(small: Server, line: bytes, code: str) -> None:
    good = jsonl({"text": "good"})
    answers = ask(small, good + line.removesuffix(b"\n") + b"\n" + good)
    assert codes(answers) == ["ok", code, "ok"]
    problem = answers[1]["error"]
    assert problem["status"] in (400, 413, 422)
    assert problem["instance"] == "/v1/classify"
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"]
    assert "Traceback" not in small.text()


def test_bad_line_keeps_its_id(small: Server) -> None:
    answers = ask(small, jsonl({"id": "empty", "text": ""}, {"id": 2, "text": "x" * (DOCUMENT_BYTES + 1)}))
    assert [answer["id"] for answer in answers] == ["empty", 2]


def test_line_may_be_as_long_as_the_limit(small: Server) -> None:
    spaces = LINE_BYTES - len(jsonl({"text": "x"}).strip())
    line = b'{"text": ' + b" " * spaces + b'"x"}'
    assert len(line) == LINE_BYTES
    assert codes(ask(small, line + b"\n" + line + b"\r\n" + line)) == ["ok"] * 3
    assert codes(ask(small, b" " + line + b"\n")) == ["payload_too_large"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"text": "1"}\n{"text": "2"}',
        b'{"text": "1"}\r\n{"text": "2"}\r\n',
        b'\n\n \t\r\n{"text": "1"}\n\r\n\n{"text": "2"}\n  \n\n',
        b'  {"text": "1"}\t\n\t{"text": "2"}  ',
    ],
)
def test_line_endings_and_blank_lines_are_accepted(server: Server, body: bytes) -> None:
    assert codes(ask(server, body)) == ["ok", "ok"]


@pytest.mark.parametrize("body", [b"", b"\n", b" \r\n\n\t "])
def test_body_without_lines_is_rejected(server: Server, body: bytes) -> None:
    response = server.post("/v1/classify", content=body, headers=NDJSON)
    check_problem(response, 422, "invalid_input")


def test_options_are_read_from_the_query(server: Server, offline: Offline) -> None:
    text = document(10_000)
    (answer,) = ask(server, jsonl({"text": text.decode()}), "?on_overflow=head&top_k=1&detail=true&model=imdb-s3")
    best = max(offline(text, "head").items(), key=lambda item: item[1])
    assert [(s["label"], s["score"]) for s in answer["scores"]] == [(best[0], pytest.approx(best[1], abs=1e-5))]
    assert answer["coverage"]["strategy"] == "head"
    assert [(window["start"], window["end"]) for window in answer["windows"]] == [(0, offline.manifest.max_length)]
    (refused,) = ask(server, jsonl({"text": text.decode()}), "?on_overflow=error")
    assert refused["error"]["status"] == 422
    for query, status in (("?color=red", 422), ("?top_k=0", 422), ("?model=none", 404), ("?model=aan", 422)):
        response = server.post(f"/v1/classify{query}", content=jsonl({"text": "x"}), headers=NDJSON)
        assert response.status_code == status, query


@pytest.mark.parametrize(
    "kind", ["application/x-ndjson; charset=utf-8", "Application/X-NDJSON", "application/X-ndjson;x=y"]
)
def test_spellings_of_the_content_type_are_accepted(small: Server, kind: str) -> None:
    """The body as a whole may be longer than the limit of a line."""
    body = jsonl({"text": "x"}) * LINE_BYTES
    response = small.post("/v1/classify", content=body, headers={"content-type": kind})
    assert codes(parsed(response.content)) == ["ok"] * LINE_BYTES


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_may_be_split_between_chunks_anywhere(server: Server, size: int) -> None:
    body = jsonl(*({"id": number, "text": "ä" * (1 + number)} for number in range(8)))
    with Wire(server.url) as wire:
        wire.send(UPLOAD, *(chunked(body[first : first + size]) for first in range(0, len(body), size)), LAST_CHUNK)
        answer = wire.answer()
    assert answer.headers["transfer-encoding"] == "chunked"
    assert [line["id"] for line in parsed(answer.body)] == list(range(8))


def test_line_is_answered_before_the_next_one_is_sent(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(UPLOAD)
        chunks: Iterator[bytes] | None = None
        for number in range(5):
            wire.send(chunked(jsonl({"id": number, "text": "x"})))
            if chunks is None:
                assert wire.head()[0] == 200
                chunks = wire.chunks()
            assert json.loads(next(chunks))["id"] == number
        wire.send(LAST_CHUNK)
        assert list(chunks or []) == []
        wire.send(request())
        assert wire.answer().status == 200


def test_lines_share_a_connection_with_other_requests(server: Server) -> None:
    with Wire(server.url) as wire:
        body = jsonl({"text": "x"}, {"text": "y"})
        wire.send(request() + request(body=body, content_type="application/x-ndjson") + request())
        assert [wire.answer().status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("is_complete", [True, False], ids=["after its last line", "in the middle"])
def test_disconnect_cancels_all_lines_of_the_client(
    start_controlled: Callable[..., ControlledServer], is_complete: bool
) -> None:
    # Single-row batches, more than any machine computes in parallel: some wait in the queue.
    controlled = start_controlled("--drain-delay-s", "0", "--max-batch-rows", "1")
    before = controlled.metric("longdoc_http_requests_total", route="/v1/classify", code="499")
    with controlled.held():
        with Wire(controlled.url) as wire:
            lines = chunked(jsonl(*[{"text": document(2**16).decode()}] * 24))
            wire.send(UPLOAD, lines, LAST_CHUNK if is_complete else b"")
            wait_until(lambda: controlled.metric("longdoc_queue_depth"))
        controlled.wait_for(0, "longdoc_requests_in_flight")
        assert controlled.metric("longdoc_queue_depth") == 0
        controlled.wait_for(before + 1, "longdoc_http_requests_total", route="/v1/classify", code="499")
    assert "Traceback" not in controlled.text()
    assert "ERROR" not in controlled.text()


def test_disconnect_ends_a_compressed_upload(start: Callable[..., Server]) -> None:
    """All of its bytes have arrived; they contain more lines than are read before the client disconnects."""
    server = start("--models", "imdb-s3", "--drain-delay-s", "0")
    body = gzip.compress(b'{"text":"a"}\n' * 200_000)
    with Wire(server.url) as wire:
        wire.send(request(body=body, content_type="application/x-ndjson", content_encoding="gzip"))
        wait_until(lambda: server.metric("longdoc_requests_in_flight"))
    server.wait_for(0, "longdoc_requests_in_flight")
    assert server.metric("longdoc_documents_total") < 100_000
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("flags", "headers"),
    [
        (("--deadline-s", str(DEADLINE_S)), {}),
        (("--deadline-s", "3600"), {"x_request_timeout_ms": str(1000 * DEADLINE_S)}),
    ],
    ids=["server", "client"],
)
def test_stalled_upload_ends_at_the_deadline(
    start_controlled: Callable[..., ControlledServer], flags: Sequence[str], headers: dict[str, str]
) -> None:
    server = start_controlled("--drain-delay-s", "0", *flags)
    with Wire(server.url) as wire:
        upload = request(body=None, content_type="application/x-ndjson", transfer_encoding="chunked", **headers)
        wire.send(upload, chunked(jsonl({"text": "x"}) + b'{"text": '))
        assert wire.head()[0] == 200
        chunks = wire.chunks()
        first = next(chunks)
        server.advance(DEADLINE_S)
        answers = parsed(first + b"".join(chunks))
    assert codes(answers) == ["ok", "deadline_exceeded"]
    assert [answer["index"] for answer in answers] == [0, 1]
    server.wait_for(0, "longdoc_requests_in_flight")


def test_upload_that_keeps_sending_has_no_deadline(start_controlled: Callable[..., ControlledServer]) -> None:
    server = start_controlled("--drain-delay-s", "0", "--deadline-s", str(DEADLINE_S))
    with Wire(server.url) as wire:
        wire.send(UPLOAD, chunked(jsonl({"text": "x"})))
        assert wire.head()[0] == 200
        chunks = wire.chunks()
        answers = [next(chunks)]
        for _ in range(3):
            server.advance(DEADLINE_S / 2)
            wire.send(chunked(jsonl({"text": "x"})))
            answers.append(next(chunks))
        wire.send(LAST_CHUNK)
        assert not list(chunks)
    assert codes(parsed(b"".join(answers))) == ["ok"] * 4


@pytest.mark.parametrize("is_silent", [True, False], ids=["silent", "sending"])
@pytest.mark.parametrize("delay", ["0", "1"])
def test_upload_ends_with_shutting_down_when_the_server_stops(
    start: Callable[..., Server], delay: str, is_silent: bool
) -> None:
    server = start("--drain-delay-s", delay)
    line = chunked(jsonl({"text": "x"}))
    with Wire(server.url) as wire:
        wire.send(UPLOAD, line)
        assert wire.head()[0] == 200
        chunks = wire.chunks()
        answers = [json.loads(next(chunks))]
        server.process.send_signal(signal.SIGTERM)
        has_ended = threading.Event()

        def keep_sending() -> None:
            try:
                while not has_ended.wait(0.01):
                    wire.send(line)
            except OSError:
                pass

        sender = threading.Thread(target=keep_sending)
        if not is_silent:
            sender.start()
        answers += parsed(b"".join(chunks))
        has_ended.set()
        if not is_silent:
            sender.join()
    assert [answer["index"] for answer in answers] == list(range(len(answers)))
    assert codes(answers) == ["ok"] * (len(answers) - 1) + ["shutting_down"]
    assert answers[-1]["error"]["status"] == 503
    assert server.exit_code() == 0
    assert "Traceback" not in server.text()


@pytest.mark.parametrize("detail", [False, True])
def test_details_of_answers_count_as_held_before_they_are_computed(
    start_controlled: Callable[..., ControlledServer], detail: bool
) -> None:
    """The lines alone fit into the limit; with the details of their answers, other requests are rejected."""
    server = start_controlled("--drain-delay-s", "0", "--models", "un-debate", "--max-held-bytes", str(2**20))
    count = 20
    lines = chunked(jsonl(*[{"text": document(30_000).decode()}] * count))
    path = f"/v1/classify?detail={str(detail).lower()}"

    def refusal() -> int:
        """Post a body that is invalid and not small; return the status."""
        return server.post(
            "/v1/classify", content=b"{" + b" " * 2**17, headers={"content-type": "application/json"}
        ).status_code

    with Wire(server.url) as wire:
        with server.held():
            wire.send(request(path, None, content_type="application/x-ndjson", transfer_encoding="chunked"), lines)
            wait_until(lambda: server.metric("longdoc_queue_depth"))
            if detail:
                wait_until(lambda: refusal() == 429)
            assert refusal() == (429 if detail else 400)
        wire.send(LAST_CHUNK)
        assert wire.head()[0] == 200
        answers = parsed(b"".join(wire.chunks()))
    assert codes(answers) == ["ok"] * count
    assert all(("stretches" in answer) == detail for answer in answers)
    wait_until(lambda: refusal() == 400)


def test_server_stops_reading_from_a_client_that_reads_no_answers(server: Server) -> None:
    """Unread lines stay in the client's buffers; the server holds only a few lines."""
    lines = chunked(jsonl({"id": "x" * 256, "text": "x"}) * 1000)  # long answers fill the buffers soon
    before = server.rss_bytes()
    sent = 0

    def has_stopped() -> bool:
        """Send what the connection takes; return whether the server answers other uploads but no line of this one."""
        nonlocal sent
        answered = server.metric("longdoc_documents_total")
        with suppress(BlockingIOError):
            while sent < 2**30:
                sent += wire.socket.send(lines[sent % len(lines) :])
        for _ in range(5):
            ask(server, jsonl({"text": "x"}))
        assert server.rss_bytes() < before + 150 * 2**20
        return server.metric("longdoc_documents_total") == answered + 5

    with Wire(server.url, window=4096) as wire:
        wire.send(UPLOAD)
        wire.socket.setblocking(False)
        wait_until(has_stopped)
        assert sent < 2**30
        assert server.post("/v1/classify", json={"inputs": "x"}).status_code == 200
    server.wait_for(0, "longdoc_requests_in_flight")


def test_full_queue_slows_lines_down_and_rejects_none(start: Callable[..., Server]) -> None:
    server = start("--max-queue-rows", "4", "--drain-delay-s", "0")
    answers = ask(server, jsonl(*({"id": number, "text": "x" * 5000} for number in range(12))))
    assert codes(answers) == ["ok"] * 12


def test_lines_are_counted_as_documents(start: Callable[..., Server]) -> None:
    server = start("--drain-delay-s", "0")
    ask(server, jsonl({"text": "x"}, {"text": ""}, {"text": "x" * 5000}))
    with server.client() as client:
        assert sample(client, "longdoc_documents_total") == 2
        assert sample(client, "longdoc_http_requests_total", route="/v1/classify", code="200") == 1
        assert sample(client, "longdoc_requests_in_flight") == 0


@pytest.mark.slow
def test_gigabyte_of_documents_takes_bounded_memory(start: Callable[..., Server]) -> None:
    server = start("--drain-delay-s", "0")
    server.post("/v1/classify", json={"inputs": "x"})
    idle = server.rss_bytes()
    line = chunked(jsonl({"text": document(2**20).decode()}))
    count = 2**30 // len(line) + 1
    with Wire(server.url) as wire:
        path = "/v1/classify?on_overflow=head"
        wire.send(request(path, None, content_type="application/x-ndjson", transfer_encoding="chunked"))
        sender = threading.Thread(target=wire.send, args=[*[line] * count, LAST_CHUNK])
        sender.start()
        assert wire.head()[0] == 200
        highest = answered = 0
        for chunk in wire.chunks():
            answered += chunk.count(b"\n")
            assert b'"error"' not in chunk
            highest = max(highest, server.rss_bytes())
        sender.join()
    assert answered == count
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    assert peak is not None
    assert max(highest, int(peak[1]) * 1024) < idle + 300 * 2**20


def test_invalid_line_keeps_a_valid_id(server: Server) -> None:
    lines = [
        {"id": "a", "text": 1},
        {"id": 7, "txt": "x"},
        {"id": 1.5, "text": 1},
        {"id": "x" * 257, "text": 1},
        [1],
        2,
    ]
    answers = ask(server, jsonl(*lines) + b'{"id": "b"\n')
    assert [answer.get("id") for answer in answers] == ["a", 7, None, None, None, None, None]
    assert all(answer["error"]["status"] in (400, 422) for answer in answers)
    assert "the line is not valid JSON" in answers[-1]["error"]["detail"]
