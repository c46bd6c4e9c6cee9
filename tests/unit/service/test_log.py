"""Log records with the ids of request and trace."""

import json
import logging
from typing import Literal

import pytest

from service import log as logs
from service.log import request_id, trace_id, trace_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    "given", [TRACEPARENT, f"00-{TRACE}-{PARENT}-00", f"cc-{TRACE}-{PARENT}-01", f"cc-{TRACE}-{PARENT}-01-what-will-be"]
)
def test_trace_id_is_read(given: str) -> None:
    assert trace_of([given]) == TRACE


@pytest.mark.parametrize(
    "given",
    [
        "", TRACE, TRACEPARENT.upper(), TRACEPARENT[:-1], f"{TRACEPARENT}0", f"{TRACEPARENT}-more", f"{TRACEPARENT}\n",
        f" {TRACEPARENT}", f"ff-{TRACE}-{PARENT}-01", f"cc-{TRACE}-{PARENT}-01.more", f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{PARENT}-0x", f"00_{TRACE}_{PARENT}_01",
    ],
)  # fmt: skip
def test_malformed_header_is_ignored(given: str) -> None:
    assert trace_of([given]) == ""


def test_repeated_headers_are_ignored() -> None:
    assert trace_of([TRACEPARENT, TRACEPARENT]) == ""
    assert trace_of([]) == ""


@pytest.mark.usefixtures("restored_log")
def test_json_records_have_the_ids_and_the_exception(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json")
    request, trace = request_id.set("abc"), trace_id.set(TRACE)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("service.x").exception("failed: %s", "é")
    request_id.reset(request)
    trace_id.reset(trace)
    logging.getLogger("service.x").info("outside")
    failed, outside = map(json.loads, capsys.readouterr().err.splitlines())
    assert {name: failed[name] for name in ("level", "logger", "request_id", "trace_id", "message")} == {
        "level": "error",
        "logger": "service.x",
        "request_id": "abc",
        "trace_id": TRACE,
        "message": "failed: é",
    }
    assert failed["exception"].endswith("ValueError: why")
    assert set(outside) == {"time", "level", "logger", "request_id", "message"}
    assert outside["request_id"] == "-"


@pytest.mark.usefixtures("restored_log")
def test_text_records_have_the_ids(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("text")
    token = request_id.set("abc")
    logging.getLogger("service.x").warning("one")
    request_id.reset(token)
    logging.getLogger("service.x").info("two")
    logging.getLogger("service.x").debug("three")
    one, two = capsys.readouterr().err.splitlines()
    assert one.endswith("WARNING service.x [abc] one")
    assert two.endswith("INFO    service.x [-] two")


HOSTILE = 'a\nb\r\n2024-01-01 00:00:00,000 INFO    service [-] forged \x1b[31m \x85 \u2028 \u202e \x9b \ud800 " \\ é'


@pytest.mark.usefixtures("restored_log")
@pytest.mark.parametrize("form", ["text", "json"])
def test_control_characters_in_records_are_escaped(
    form: Literal["text", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(form)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("service.x").exception("failed: %s", HOSTILE)
    written = capsys.readouterr().err
    assert written.replace("\n", "").isprintable()
    if form == "json":
        record = json.loads(written)
        assert record["message"] == f"failed: {HOSTILE}"
        assert record["exception"].endswith(f"ValueError: {HOSTILE}")
        return
    first, *rest = written.splitlines()
    shown = r'a\nb\r\n2024-01-01 00:00:00,000 INFO    service [-] forged \x1b[31m \x85 \u2028 \u202e \x9b \ud800 " \ é'
    assert first.endswith(f"failed: {shown}")
    assert rest
    assert all(line.startswith("    ") for line in rest)


@pytest.mark.usefixtures("restored_log")
def test_access_log_of_uvicorn_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("text")
    logging.getLogger("uvicorn.access").info("GET /")
    logging.getLogger("uvicorn.error").info("started")
    (line,) = capsys.readouterr().err.splitlines()
    assert "started" in line
