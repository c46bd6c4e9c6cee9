"""The log under hostile requests: each record is one line and each JSON record is valid."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.server import ControlledServer
from tests.support.wire import Wire, request

RECORD = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO   |WARNING|ERROR  |CRITICAL) [\w.]+ "
    r"\[[!-~]+( trace_id=[0-9a-f]{32})?\] .+"
)
QUOTED = r"""a"b\n\\c']{"level":"info","message":"forged"}[-]%s%(name)s"""
"""Visible ASCII, so it is accepted as a request id."""
FORGED = "2024-01-01 00:00:00,000 INFO    service [-] forged"
HOSTILE = [
    request(x_request_id=f"a\x1b[31m{FORGED}"),
    request(x_request_id=f"a\xff\x85{FORGED}"),
    request(x_request_id="a" * 60_000),
    request(user_agent=f"\x1b]0;owned\x07{FORGED}"),
    request(user_agent="a" * 60_000),
    request(user_agent="b" * 70_000),
    request(user_agent=f"a\r\n {FORGED}"),
    request(user_agent=f"a\n{FORGED}"),
    request(traceparent=f"00-{'a' * 32}-{'b' * 16}-01\t{FORGED}"),
    request(f"/v1/classify?model=%0a{FORGED.replace(' ', '%20')}%1b[31m"),
    request(f"/%0d%0a{FORGED.replace(' ', '%20')}%1b%5b31m%22%5c", None, "GET"),
    request("/\x1b[31m", None, "GET"),
    request("/" + "a" * 60_000, None, "GET"),
    request("/v1/models/%22%5c%0a%1b", None, "GET"),
    request("/v1/classify", None, "TRACE"),
    request("/v1/classify", body=b'{"inputs": "\\u001b[31m\\n"', content_type="application/json"),
    request("/v1/classify", body=b'{"\\n\\u001b[31m": 1}', content_type="application/json"),
    f"\x1b[31m{FORGED}\r\n\r\n".encode(),
]


@pytest.mark.parametrize("form", ["text", "json"])
def test_request_cannot_forge_a_log_record(start_controlled: Callable[..., ControlledServer], form: str) -> None:
    server = start_controlled("--drain-delay-s", "0", "--log-format", form)
    for sent in HOSTILE:
        with Wire(server.url) as wire:
            assert wire.send(sent).head()[0] < 500
    for fault in (b"please fail", b"please exit"):
        with server.begin(fault, x_request_id=QUOTED, traceparent=f"00-{'a' * 32}-{'b' * 16}-01") as wire:
            status, headers = wire.head()
            assert status >= 500
            assert headers["x-request-id"] == QUOTED
    assert server.exit_code() == 1
    written = server.log.read_bytes().decode("ascii")
    lines = written.removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    assert "forged" not in written.replace(QUOTED, "").replace(json.dumps(QUOTED)[1:-1], "")
    if form == "json":
        records = [json.loads(line) for line in lines]
        assert {record["message"] for record in records if record["request_id"] == QUOTED} >= {"the backend crashed"}
        return
    assert any(f" [{QUOTED} trace_id=" in line for line in lines)
    assert all(RECORD.fullmatch(line) or line.startswith("    ") for line in lines)


SECRET = "zzsecretzz"


def test_documents_are_neither_logged_nor_written_to_disk(
    start_controlled: Callable[..., ControlledServer], tmp_path: Path
) -> None:
    """Answered, rejected, large and failing ones."""
    server = start_controlled("--drain-delay-s", "0", variables={"TMPDIR": str(tmp_path), "HOME": str(tmp_path)})
    bodies = [
        SECRET.encode(),
        json.dumps({"inputs": SECRET}).encode(),
        json.dumps({"inputs": [f"{SECRET} " * 40_000]}).encode(),  # parsed in another process
        json.dumps({"inputs": SECRET, SECRET: SECRET}).encode(),
        b'{"inputs": "' + SECRET.encode(),
        f"please fail {SECRET}".encode(),
    ]
    with server.client() as client:
        for body in bodies:
            kind = "application/json" if body.startswith(b"{") else "text/plain"
            answer = client.post("/v1/classify", content=body, headers={"content-type": kind})
            assert answer.status_code in (200, 400, 422, 500)
            assert SECRET not in answer.text or answer.status_code == 422
    assert server.stop() == 0
    assert SECRET.encode() not in server.log.read_bytes()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
