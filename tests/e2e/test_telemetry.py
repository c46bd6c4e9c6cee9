"""Real commands in new processes do not start the telemetry of ONNX Runtime."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.paths import EXPORTS, ROOT
from tests.support.server import Server
from tests.support.telemetry import Telemetry, watched_telemetry
from tests.support.waiting import PATIENCE_S

MODEL = EXPORTS / "imdb-s3"
PLAIN = f"""
import sys, onnxruntime
onnxruntime.InferenceSession({str(next(MODEL.glob("*/*.onnx")))!r})
sys.stdin.read()
"""
"""A program that uses ONNX Runtime without this project, until its input ends."""


@pytest.fixture
def telemetry(tmp_path: Path) -> Iterator[Telemetry]:
    (tmp_path / "home").mkdir()
    with watched_telemetry(tmp_path / "home") as telemetry:
        yield telemetry


def run(*arguments: object) -> None:
    command = [sys.executable, *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)


def test_server_neither_calls_a_host_nor_leaves_files(
    telemetry: Telemetry, start: Callable[..., Server], tmp_path: Path
) -> None:
    """A plain program starts after the server, and has called a host when the server is checked."""
    server = start("--models", "imdb-s3", "--drain-delay-s", "0")
    assert server.post("/v1/classify", json={"inputs": "A film to see twice."}).status_code == 200
    (tmp_path / "other").mkdir()
    with (
        watched_telemetry(tmp_path / "other") as of_plain,
        subprocess.Popen([sys.executable, "-c", PLAIN], stdin=subprocess.PIPE) as plain,
    ):
        assert of_plain.called.wait(PATIENCE_S)
        assert of_plain.files()
        plain.communicate()
    assert server.stop() == 0
    assert (telemetry.called.is_set(), telemetry.files()) == (False, [])


def test_workers_leave_no_files(telemetry: Telemetry, start: Callable[..., Server]) -> None:
    server = start("--models", "imdb-s3", "--drain-delay-s", "0", "--workers", "2")
    assert server.post("/v1/classify", json={"inputs": "A film to see twice."}).status_code == 200
    assert server.stop() == 0
    assert telemetry.files() == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "service", "check", MODEL),
        ("-m", "service", "predict", MODEL, ROOT / "docs" / "review.txt"),
        ("-c", f"import artifact; artifact.load({str(MODEL)!r}).classify('Dull.')"),
        ("-m", "model", "export", "--help"),
        ("-c", "import benchmarks.models.inference_paths"),
    ],
    ids=["check", "predict", "artifact.load", "train, evaluate, export", "benchmark"],
)
def test_commands_leave_no_files(telemetry: Telemetry, arguments: tuple[object, ...]) -> None:
    """Each of them imports ONNX Runtime."""
    run(*arguments)
    assert telemetry.files() == []


def test_setting_of_the_user_is_kept(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    run("-c", "import artifact.backends.onnx")
    assert telemetry.files()
