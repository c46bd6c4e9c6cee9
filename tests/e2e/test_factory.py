"""The application served by uvicorn's own command, without the server's additions."""

from pathlib import Path
from signal import SIGTERM

from tests.support.server import Server
from tests.support.wire import Wire

COMMAND = ("-m", "uvicorn", "--factory", "service.app:create_app")


def test_uvicorn_serves_the_application_from_its_factory(tmp_path: Path) -> None:
    with Server(tmp_path / "log", program=COMMAND) as server:
        answer = server.post("/v1/classify", json={"inputs": "A delight."}).json()
        assert (answer["model"], answer["results"][0]["label"]) == ("imdb-s3", "positive")
        assert server.get("/v2/health/ready").status_code == 200
        assert server.stop() == -SIGTERM, "uvicorn drains, then raises the signal again"
    assert "Application shutdown complete" in server.text()


def test_request_without_a_key_is_answered_before_its_body_arrives(tmp_path: Path) -> None:
    with (
        Server(tmp_path / "log", program=COMMAND, variables={"LONGDOC_API_KEYS": "secret"}) as server,
        Wire(server.url) as wire,
    ):
        wire.send(b"POST /v1/score HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{")
        assert wire.answer().status == 401
