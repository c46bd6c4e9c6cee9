"""New versions put below `exports` of a running server: no request fails, and what cannot be served is refused."""

import json
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.manifest import newest_version
from tests.e2e.conftest import EXPORTS, Server, sample
from tests.e2e.offline import document
from tests.e2e.test_load import begin
from tests.e2e.test_start import edit_manifest, flip_byte

NAME = "imdb-s3"
OLD = int(newest_version(EXPORTS / NAME).name)
NEW = OLD + 1
LOOK_S = 0.2
LABELS = {OLD: {"negative", "positive"}, NEW: {"bad", "good"}}

Start = Callable[..., Server]


@pytest.fixture
def reloading(exports_copy: Path, start: Start) -> Server:
    return start("--exports", str(exports_copy), "--reload-s", str(LOOK_S), "--drain-delay-s", "0")


def prepare(exports: Path, source: str = NAME, name: str = NAME, version: int = NEW, **changes: object) -> Path:
    """An export under a name that no look finds."""
    folder = exports / name / f".partial-{version}"
    shutil.copytree(newest_version(EXPORTS / source), folder)
    edit_manifest(folder, name=name, version=version, **changes)
    return folder


def publish(folder: Path) -> Path:
    return folder.rename(folder.parent / folder.name.removeprefix(".partial-"))


def new_version(exports: Path) -> Path:
    """As the one served, but for its labels, which tell which of them answered."""
    return prepare(exports, labels=["bad", "good"])


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def answer(url: str, client: httpx.Client, text: bytes = b"a fine film") -> dict[str, Any]:
    response = client.post(f"{url}/v1/classify", content=text, headers={"content-type": "text/plain"})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    assert {score["label"] for score in found["results"][0]["scores"]} == LABELS[found["version"]]
    return found


def version(server: Server) -> int:
    with httpx.Client() as client:
        return int(answer(server.url, client)["version"])


def metric(server: Server, name: str, **labels: str) -> float:
    with httpx.Client(base_url=server.url) as client:
        return sample(client, name, **labels)


def refused(server: Server, reason: str) -> float:
    return metric(server, "longdoc_exports_refused_total", model=NAME, reason=reason)


def announced(server: Server) -> list[str]:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return [line.split('version="')[1].split('"')[0] for line in lines if line.startswith("longdoc_model_info{")]


@contextmanager
def clients(server: Server, count: int = 8) -> Iterator[tuple[Counter[int], list[str]]]:
    """Ask without a pause, documents of one to several windows; counts answers by version, and keeps what failed."""
    answers: Counter[int] = Counter()
    failures: list[str] = []
    stop = threading.Event()

    def ask(number: int) -> None:
        highest = 0
        with httpx.Client(timeout=30) as client:
            while not stop.is_set():
                try:
                    found = answer(server.url, client, document(1 + 2500 * number))
                    assert found["version"] >= highest, "an older version has come back"
                except Exception as error:
                    failures.append(repr(error))
                    return
                highest = found["version"]
                answers[highest] += 1

    threads = [threading.Thread(target=ask, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield answers, failures
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_new_version_is_served_without_a_failed_request(exports_copy: Path, reloading: Server) -> None:
    folder = new_version(exports_copy)
    assert announced(reloading) == [str(OLD)]
    with clients(reloading) as (answers, failures):
        until(lambda: answers[OLD] > 50 or failures)
        publish(folder)
        until(lambda: answers[NEW] > 50 or failures)
    assert failures == []
    assert version(reloading) == NEW
    assert announced(reloading) == [str(NEW)]
    assert metric(reloading, "longdoc_model_ready", model=NAME) == 1
    assert metric(reloading, "longdoc_queue_depth", model=NAME) == 0
    told = httpx.get(f"{reloading.url}/v1/models/{NAME}").json()
    assert (told["version"], told["labels"]) == (NEW, ["bad", "good"])
    paths = {number: f"{reloading.url}/v2/models/{NAME}/versions/{number}/ready" for number in (OLD, NEW)}
    assert {number: httpx.get(path).status_code for number, path in paths.items()} == {OLD: 404, NEW: 200}
    assert f"{NAME} {NEW}: serving" in reloading.text()
    assert "Traceback" not in reloading.text()


def test_damaged_version_is_refused_once_and_taken_when_repaired(exports_copy: Path, reloading: Server) -> None:
    folder = new_version(exports_copy)
    flip_byte(folder / "model.onnx")
    with clients(reloading, 2) as (answers, failures):
        folder = publish(folder)
        until(lambda: refused(reloading, "hash") or failures)
        time.sleep(4 * LOOK_S)
        assert refused(reloading, "hash") == 1
        assert reloading.text().count("refused: ") == 1
        assert f"{NAME}/{NEW}: model.onnx has sha256" in reloading.text()
        assert set(answers) == {OLD}
        assert announced(reloading) == [str(OLD)]
        flip_byte(folder / "model.onnx")
        until(lambda: answers[NEW] or failures)
    assert failures == []
    assert (version(reloading), refused(reloading, "hash")) == (NEW, 1)


def test_version_that_is_copied_file_by_file_is_served_in_the_end(exports_copy: Path, reloading: Server) -> None:
    source = new_version(exports_copy)
    folder = exports_copy / NAME / str(NEW)
    folder.mkdir()
    for name in ("manifest.json", "golden.npz", "model.ts", "model.onnx"):
        assert version(reloading) == OLD
        content = (source / name).read_bytes()
        with (folder / name).open("wb") as stream:
            for part in (content[: len(content) // 2], content[len(content) // 2 :]):
                stream.write(part)
                stream.flush()
                time.sleep(1.5 * LOOK_S)
    until(lambda: version(reloading) == NEW)
    assert refused(reloading, "missing") > 0
    assert "Traceback" not in reloading.text()


def test_new_name_is_served_beside(exports_copy: Path, reloading: Server) -> None:
    def names() -> list[str]:
        return [model["name"] for model in httpx.get(f"{reloading.url}/v1/models").json()["models"]]

    assert names() == [NAME]
    publish(prepare(exports_copy, "ettm2", "energy", 1))
    until(lambda: names() == [NAME, "energy"])
    channels = httpx.get(f"{reloading.url}/v1/models/energy").json()["channels"]
    series = {channel: [float(i % 7) for i in range(96)] for channel in channels}
    forecast = httpx.post(f"{reloading.url}/v1/forecast", json={"series": series, "horizon": 1}).json()
    assert (forecast["model"], forecast["version"]) == ("energy", 1)
    assert version(reloading) == OLD
    assert sorted(announced(reloading)) == sorted(["1", str(OLD)])


def test_version_of_another_task_is_refused(exports_copy: Path, reloading: Server) -> None:
    publish(prepare(exports_copy, "ettm2"))
    until(lambda: refused(reloading, "task"))
    time.sleep(3 * LOOK_S)
    assert refused(reloading, "task") == 1
    assert version(reloading) == OLD
    assert announced(reloading) == [str(OLD)]


def test_0_never_looks(exports_copy: Path, start: Start) -> None:
    server = start("--exports", str(exports_copy), "--reload-s", "0")
    publish(new_version(exports_copy))
    time.sleep(1)
    assert version(server) == OLD
    assert "serving" not in server.text()


@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_sigterm_after_a_new_version_loses_nothing(exports_copy: Path, reloading: Server, pause: float) -> None:
    """Requests in flight with the old version and with the new one are answered before the end."""
    folder = new_version(exports_copy)
    with ExitStack() as stack:
        connections = [stack.enter_context(begin(reloading, document(2**18))) for _ in range(6)]
        until(lambda: metric(reloading, "longdoc_requests_in_flight", model=NAME) == 6)
        publish(folder)
        until(lambda: announced(reloading) == [str(NEW)])
        assert metric(reloading, "longdoc_requests_in_flight", model=NAME) > 0
        connections += [stack.enter_context(begin(reloading, document(2**16))) for _ in range(6)]
        time.sleep(pause)
        reloading.process.send_signal(signal.SIGTERM)
        answers = []
        for connection in connections:
            with connection.makefile("rb") as stream:
                head, _, body = stream.read().partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            answers.append(json.loads(body))
    assert [found["version"] for found in answers] == [OLD] * 6 + [NEW] * 6
    for found in answers:
        assert found["results"][0]["label"] in LABELS[found["version"]]
    assert reloading.process.wait(30) == 0
    assert "stopped" in reloading.text()
