"""`POST /v1/classify` with NDJSON: one answer per line, in order."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import httpx
import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from artifact.errors import InferenceFailed
from service.batching import batcher
from service.batching.batcher import Batcher
from service.routes import bulk, classify
from service.settings import Settings
from service.wire.context import RequestContext
from tests.support.contexts import context, receive_of, scope_of
from tests.support.models import ServingClient, backend_of, classifier, series_classifier, serving
from tests.support.problems import check_problem
from tests.support.waiting import PATIENCE_S, wait_until_async

NDJSON = {"content-type": "application/x-ndjson"}
BRIEF = Settings(deadline_s=1e-9)


async def answer_to(asked: RequestContext) -> list[Message]:
    """Return the messages of the response to lines."""
    sent = list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    response = classify.ClassifyLines(asked)
    await response(scope_of(), asked.body, send)
    return sent


async def answers_to(*parts: bytes, settings: Settings = BRIEF) -> list[dict[str, Any]]:
    """Return the lines that a client gets that sends these parts and stays connected."""
    receive = receive_of(*parts, leaves=False)
    asked = context(headers=NDJSON, receive=receive, models=[classifier()], settings=settings)
    start, *bodies, end = await answer_to(asked)
    asked.runtime.close()
    assert (start["status"], end) == (200, {"type": "http.response.body", "body": b""})
    return [json.loads(line) for message in bodies for line in message["body"].splitlines()]


async def post(client: ServingClient, body: bytes | AsyncIterator[bytes], query: str = "") -> httpx.Response:
    return await client.post(f"/v1/classify{query}", content=body, headers=NDJSON)


async def ask(client: ServingClient, body: bytes | AsyncIterator[bytes], query: str = "") -> list[dict[str, Any]]:
    response = await post(client, body, query)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line, parse_float=lambda text: round(float(text), 6)) for line in response.text.splitlines()]


def lines(*contents: object) -> bytes:
    return b"\n".join(json.dumps(content).encode() for content in contents)


async def test_line_gets_an_answer_line_with_its_id() -> None:
    body = lines({"id": "a", "text": "++-"}, {"id": 7, "base64": base64.b64encode(b"-\xff").decode()}, {"text": "x"})
    async with serving(classifier()) as client:
        first, second, third = await ask(client, body, "?top_k=1")
    assert first == {
        "index": 0,
        "id": "a",
        "model": "mood",
        "version": 1,
        "label": "positive",
        "score": 0.6,
        "scores": [{"label": "positive", "score": 0.6}],
        "coverage": {"bytes_total": 3, "bytes_used": 3, "strategy": "whole", "windows": 1, "known": None},
    }
    assert (second["index"], second["id"], second["label"], second["score"]) == (1, 7, "negative", 0.666667)
    assert second["coverage"]["bytes_total"] == 2
    assert (third["index"], "id" in third) == (2, False)


async def test_line_may_get_any_number_of_labels() -> None:
    async with serving(classifier(thresholds=(0.7, 0.6))) as client:
        found = await ask(client, lines({"text": "+-"}, {"text": "."}), "?top_k=1")
    assert [(line["labels"], len(line["scores"])) for line in found] == [(["positive"], 1), ([], 1)]


async def test_more_lines_than_the_read_ahead_limit_are_answered_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MAX_PENDING_LINES", 2)
    async with serving(classifier()) as client:
        found = await ask(client, lines(*({"id": number, "text": "+"} for number in range(9))))
    assert [line["id"] for line in found] == list(range(9))


async def test_uploads_share_the_lines_that_may_be_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each upload gets its share while others run; a group is computed even if it has more lines than that."""
    monkeypatch.setattr(bulk, "ALL_PENDING_LINES", 40)
    shares = list[int]()
    most = bulk.BulkResponse._max_pending_lines

    def spied(upload: Any) -> int:
        shares.append(most(upload))
        return shares[-1]

    monkeypatch.setattr(bulk.BulkResponse, "_max_pending_lines", spied)
    body = lines(*({"id": number, "text": "+"} for number in range(50)))
    async with serving(classifier()) as client:
        alone = await ask(client, body)
        assert set(shares) == {40}
        together = await asyncio.gather(*(ask(client, body) for _ in range(5)))
    assert min(shares) == 8
    assert together == [alone] * 5


def test_groups_hold_consecutive_short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "GROUP_BYTES", 3)
    body = [b"1", b"22", b"333", b"4444", b"5", b"66666", b"777777", b"8", b"9"]
    together = [[b"1", b"22"], [b"333"], [b"4444"], [b"5"], [b"66666"], [b"777777"], [b"8", b"9"]]
    assert list(bulk.grouped(body, 2, lambda _: 0)) == [(group, len(b"".join(group))) for group in together]
    assert list(bulk.grouped(body, 1, lambda _: 2)) == [([line], len(line) + 2) for line in body]
    assert list(bulk.grouped([], 2, lambda _: 0)) == []


def test_line_whose_answer_has_long_details_is_a_group_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "GROUP_BYTES", 10)
    details = {b"a": 9, b"b": 10, b"c": 1, b"d": 1}
    assert list(bulk.grouped([*details], 3, details.__getitem__)) == [([b"a"], 10), ([b"b"], 11), ([b"c", b"d"], 4)]


async def test_short_recordings_are_queued_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, batches would have one recording each."""
    model, queued = series_classifier(), 0
    backend_of(model).gate.clear()
    infer = Batcher.infer

    async def counted(*given: Any, **options: Any) -> Any:
        nonlocal queued
        queued += 1
        return await infer(*given, **options)

    monkeypatch.setattr(Batcher, "infer", counted)
    async with serving(model) as client, asyncio.TaskGroup() as group:
        asking = group.create_task(ask(client, lines(*({"series": [[0, 0], [1, 1]]} for _ in range(16)))))
        await wait_until_async(lambda: queued == 16)
        backend_of(model).gate.set()
    assert [line["label"] for line in asking.result()] == 16 * ["rest"]


async def test_line_is_computed_once_beside_a_wrong_one_and_a_recording() -> None:
    text, recording = classifier(), series_classifier()
    body = lines({"text": "+"}, {"series": [[0, 0], [1, 1]]}, {"text": ""}, {"text": "-"})
    async with serving(text, recording) as client:
        found = await ask(client, body)
        counts = [client.count("longdoc_documents_total", model=model.manifest.name) for model in (text, recording)]
    assert ["error" in line for line in found] == [False, False, True, False]
    assert counts == [2, 1]


async def test_one_write_has_a_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "WRITE_BYTES", 1)
    monkeypatch.setattr(classify.ClassifyLines, "most_together", 1)
    asked = context(headers=NDJSON, receive=receive_of(b"a\nb\nc", leaves=False), models=[classifier()])
    _, *bodies, _ = await answer_to(asked)
    asked.runtime.close()
    assert [message["body"].count(b"\n") for message in bodies] == [1, 1, 1]


async def test_unexpected_error_of_a_group_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("only together")

    monkeypatch.setattr(classify.ClassifyLines, "answers", fail)
    async with serving(classifier()) as client:
        found = await ask(client, lines({"text": "+"}, {"text": "-"}) + b"\n")
    assert [line["label"] for line in found] == ["positive", "negative"]
    assert "lines 0 to 1 failed together" in caplog.text


async def test_group_whose_batch_fails_is_computed_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    infer = Batcher.infer

    async def failing(self: Batcher, rows: list[bytes], *given: Any, **options: Any) -> Any:
        if b"-" in rows:
            raise InferenceFailed("the backend failed on this input")
        return await infer(self, rows, *given, **options)

    monkeypatch.setattr(Batcher, "infer", failing)
    async with serving(classifier()) as client:
        found = await ask(client, lines({"text": "+"}, {"text": "-"}, {"text": "++"}))
    assert [line.get("label", "failed") for line in found] == ["positive", "failed", "positive"]
    assert found[1]["error"]["code"] == "inference_failed"


@pytest.mark.parametrize("size", [1, 7])
async def test_line_may_arrive_in_parts(size: int) -> None:
    body = lines({"text": "+"}, {"text": "-"}) + b"\r\n \n"

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    async with serving(classifier()) as client:
        found = await ask(client, parts())
    assert [line["label"] for line in found] == ["positive", "negative"]


async def test_a_million_blank_lines_are_skipped() -> None:
    blank = b"\n" * 10**6 + b" \r\n\x0b\t" * 10**5
    async with serving(classifier()) as client:
        found = await ask(client, b'{"text":"+"}' + blank + b'{"text":"-"}' + blank)
        check_problem(await post(client, blank), 422, "invalid_input")
    assert [(line["index"], line["label"]) for line in found] == [(0, "positive"), (1, "negative")]


@pytest.mark.parametrize(
    ("line", "status", "code", "detail"),
    [
        (b"{", 400, "malformed_input", "the line is not valid JSON in UTF-8"),
        (b'{"text":"\\ud800"}', 400, "malformed_input", "text: contains a lone surrogate, which UTF-8 cannot encode"),
        (b'{"text":"+","base64":"Kw=="}', 422, "invalid_input", "give one of text, base64 and series"),
        (b'{"base64":"?"}', 422, "invalid_input", "base64: not base64"),
        (b'{"text":""}', 422, "invalid_input", "text: the document is empty; at least 1 byte is needed"),
        (b'{"base64":""}', 422, "invalid_input", "base64: the document is empty; at least 1 byte is needed"),
        (b'{"text":"+++++++++"}', 413, "payload_too_large", "text: the document has 9 bytes; at most 8"),
        (b'{"text":"' + 60 * b"+" + b'"}', 413, "payload_too_large", "the line is longer than 64 bytes"),
    ],
)
async def test_wrong_line_gets_an_error_in_its_position(line: bytes, status: int, code: str, detail: str) -> None:
    """The error names the line by its index and the field of the line."""
    settings = Settings(max_body_bytes=64, max_document_bytes=8)
    async with serving(classifier(), settings=settings) as client:
        before, wrong, after = await ask(client, b"\n".join((b'{"text":"+"}', line, b'{"text":"-"}')))
    assert (before["label"], after["label"]) == ("positive", "negative")
    assert wrong["index"] == 1
    problem = wrong["error"]
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["detail"] == f"input 1: {detail}"
    assert problem["instance"] == "/v1/classify"


async def test_wrong_line_keeps_its_id() -> None:
    async with serving(classifier()) as client:
        (wrong,) = await ask(client, b'{"id":"a","text":1}')
    assert (wrong["id"], wrong["error"]["errors"]) == ("a", [{"loc": "text", "msg": "Input should be a valid string"}])


async def test_error_about_an_id_names_the_field_alone() -> None:
    async with serving(classifier()) as client:
        (wrong,) = await ask(client, b'{"id":{},"text":"+"}')
    kinds = [f"Input should be a valid {kind}" for kind in ("string", "integer")]
    assert wrong["error"]["errors"] == [{"loc": "id", "msg": message} for message in kinds]


async def test_backend_failure_gives_an_error_line() -> None:
    model = classifier()
    backend_of(model).error = RuntimeError("broken")
    async with serving(model) as client:
        (line,) = await ask(client, lines({"text": "+"}))
    assert (line["error"]["status"], line["error"]["code"]) == (500, "inference_failed")


@pytest.mark.usefixtures("one_slot")
async def test_line_waits_for_room_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 lines at once, a queue of one row refuses most; they ask again until they are taken. None is rejected."""
    monkeypatch.setattr(batcher, "RETRY_S", 0)
    spied = mock.create_autospec(Batcher._admit, side_effect=Batcher._admit)
    monkeypatch.setattr(Batcher, "_admit", spied)
    model = classifier()
    backend_of(model).gate.clear()
    async with serving(model, settings=Settings(max_queue_rows=1, deadline_s=PATIENCE_S)) as client:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ask(client, lines(*({"text": "+"} for _ in range(40)))))
            await wait_until_async(lambda: spied.call_count > 80)
            backend_of(model).gate.set()
        assert client.count("longdoc_requests_rejected_total", model="mood", reason="overloaded") == 0
    assert [line["label"] for line in asking.result()] == 40 * ["positive"]


@pytest.mark.usefixtures("one_slot")
async def test_line_that_finds_no_room_until_its_deadline_is_rejected_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines are computed and queued; a group of two finds no room, nor does each line of it."""
    monkeypatch.setattr(batcher, "RETRY_S", PATIENCE_S)
    model = classifier()
    backend_of(model).gate.clear()

    async def parts() -> AsyncIterator[bytes]:
        for count in (1, 1, 2):
            yield lines(*({"text": "+"} for _ in range(count))) + b"\n"

    async with serving(model, settings=Settings(max_queue_rows=1, deadline_s=PATIENCE_S)) as client:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ask(client, parts()))
            name, labels = "longdoc_requests_rejected_total", {"model": "mood", "reason": "overloaded"}
            await wait_until_async(lambda: client.count(name, **labels))
            backend_of(model).gate.set()
        codes = [line["error"]["code"] for line in asking.result() if "error" in line]
        assert codes == ["overloaded"] * int(client.count(name, **labels))
        assert len(codes) == 2


async def test_internal_error_gives_an_error_line_in_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret cause")

    monkeypatch.setattr(classify, "check_size", fail)
    async with serving(classifier()) as client:
        (line,) = await ask(client, lines({"id": 7, "text": "+"}))
    assert (line["id"], line["error"]["status"], line["error"]["code"]) == (7, 500, "internal")
    assert "secret" not in str(line)


async def test_upload_that_stops_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "POLL_S", 0)
    (line,) = await answers_to()
    assert (line["error"]["status"], line["error"]["code"]) == (504, "deadline_exceeded")


async def test_blank_lines_do_not_extend_the_deadline() -> None:
    (line,) = await answers_to(b"\n", b" \n", b"\n")
    assert line["error"]["code"] == "deadline_exceeded"


@pytest.mark.parametrize("blank", [400, 600])
async def test_upload_ends_after_too_many_blank_lines(blank: int) -> None:
    """A small compressed body can contain gigabytes of them."""
    parts = (b'{"text":"+"}\n', b"\n" * blank, b" \n" * (blank // 2), b'{"text":"-"}')
    first, second = await answers_to(*parts, settings=Settings(max_body_bytes=1000, deadline_s=PATIENCE_S))
    assert first["label"] == "positive"
    if blank == 400:
        assert second["label"] == "negative"
    else:
        assert "1000 bytes of blank lines" in second["error"]["detail"]


async def test_deadline_of_a_line_starts_with_its_first_byte() -> None:
    """Further bytes of a line do not extend the deadline; the next line has a new one."""
    (slow,) = await answers_to(b"{", b"}", b"\n")
    assert slow["error"]["code"] == "deadline_exceeded"
    in_time = await answers_to(*[b"x\n"] * 5)
    assert [line["error"]["code"] for line in in_time] == ["malformed_input"] * 5


async def test_line_that_has_begun_counts_as_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what others hold it is too much: the upload ends with an error, and holds nothing."""
    monkeypatch.setattr(bulk, "POLL_S", PATIENCE_S)
    receive = receive_of(b'{"text":"+"}\n{"text":"', b"+" * 60, b"+" * 60, leaves=False)
    asked = context(headers=NDJSON, receive=receive, models=[classifier()], settings=Settings(max_held_bytes=100))
    asked.body.bodies.held += 50
    (_, first, last, _) = await answer_to(asked)
    asked.runtime.close()
    assert json.loads(first["body"])["label"] == "positive"
    problem = json.loads(last["body"])["error"]
    assert (problem["status"], problem["code"]) == (429, "overloaded")
    assert "119 bytes; at most 100" in problem["detail"]
    asked.body.release()
    assert asked.body.bodies.held == 50


async def test_answered_lines_are_no_longer_held() -> None:
    body = lines(*({"text": "+" * 100} for _ in range(30)))
    async with serving(classifier(), settings=Settings(max_held_bytes=300)) as client:
        for _ in range(2):  # with bytes of the first upload, the second one would hold too many
            found = await ask(client, body)
            assert [line["label"] for line in found] == ["positive"] * 30


@pytest.mark.parametrize("parts", [(), (b'{"text":"+"}',)])
async def test_disconnect_cancels_all_lines(parts: tuple[bytes, ...]) -> None:
    model = classifier()
    backend_of(model).gate.clear()
    asked = context(headers=NDJSON, receive=receive_of(*parts), models=[model])
    with pytest.raises(ClientDisconnect):
        await answer_to(asked)
    backend_of(model).gate.set()
    await asyncio.wait_for(asked.runtime.engine.drain(), PATIENCE_S)
    asked.runtime.close()
    assert asked.runtime.metrics.registry.get_sample_value("longdoc_requests_in_flight", {"model": "mood"}) == 0


async def test_draining_server_refuses_new_uploads() -> None:
    async with serving(classifier()) as client:
        client.engine.begin_drain()
        check_problem(refused := await post(client, lines({"text": "+"})), 503, "shutting_down")
    assert int(refused.headers["retry-after"]) > 0


async def test_wrong_option_is_a_problem_before_a_line_is_read() -> None:
    async with serving(classifier()) as client:
        problem = check_problem(await post(client, b"{", "?top_k=0"), 422, "invalid_input")
    assert problem["errors"] == [{"loc": "top_k", "msg": "Input should be greater than or equal to 1"}]
