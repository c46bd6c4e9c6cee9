"""The cards of the shipped models, and the requests in them."""

import re
import subprocess
from pathlib import Path

import httpx
import orjson
import pytest

from artifact.exports import CARD, version_folder
from tests.support.paths import EXPORTS, ROOT
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

NAMES = sorted(path.name for path in EXPORTS.iterdir() if path.is_dir())


def block(card: str, language: str) -> str:
    (found,) = re.findall(f"```{language}\n(.*?)```", card, re.DOTALL)
    return str(found)


@pytest.mark.parametrize("name", NAMES)
def test_card_is_served_and_its_request_is_answered(server: Server, client: httpx.Client, name: str) -> None:
    response = client.get(f"/v1/models/{name}/card")
    assert response.headers["content-type"] == "text/markdown; charset=utf-8"
    assert response.text == (version_folder(EXPORTS / name) / CARD).read_text(encoding="utf-8")
    command = block(response.text, "sh").replace("localhost:8000", server.url.removeprefix("http://"))
    answer = subprocess.run(command, shell=True, capture_output=True, check=True, timeout=PATIENCE_S).stdout
    assert orjson.loads(answer)["model"] == name, answer


@pytest.mark.parametrize("name", ["ili", "japanese-vowels", "aan"])
def test_program_of_a_card_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    card = (version_folder(Path("exports") / name) / CARD).read_text(encoding="utf-8")
    exec(compile(block(card, "python"), name, "exec"), {})
    assert "score" in (out := capsys.readouterr().out) or "forecast" in out
