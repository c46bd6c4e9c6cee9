"""New versions published while the server runs: no request fails, and invalid versions are rejected."""

import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.engine.reload import LOAD_TURN_S
from tests.support.offline import document
from tests.support.oversized import LIMITED, make_endless, make_sparse
from tests.support.server import ControlledServer, Server
from tests.support.versions import NAME, NEW, OLD, flip_byte, new_version, prepare, publish
from tests.support.waiting import wait_until

LOOK_S = 0.2
LABELS = {OLD: {"negative", "positive"}, NEW: {"bad", "good"}}


@pytest.fixture
def reloading(exports_copy: Path, start_controlled: Callable[..., ControlledServer]) -> ControlledServer:
    return start_controlled("--exports", str(exports_copy), "--reload-s", str(LOOK_S), "--drain-delay-s", "0")


def answer(client: httpx.Client, text: bytes = b"a fine film") -> dict[str, Any]:
    response = client.post("/v1/classify", content=text, headers={"content-type": "text/plain"})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    assert {score["label"] for score in found["results"][0]["scores"]} == LABELS[found["version"]]
    return found


def version(server: Server) -> int:
    with server.client() as client:
        return int(answer(client)["version"])


def refused(server: Server, reason: str) -> float:
    return server.metric("longdoc_exports_refused_total", model=NAME, reason=reason)


def reasons(server: Server) -> dict[str, str]:
    """Return why the highest version of each model is not served."""
    return {entry["name"]: entry.get("reason", "") for entry in server.post("/v2/repository/index").json()[::-1]}


def wait_for_scan(exports: Path, server: Server) -> None:
    """Wait for one complete scan of the exports: the server serves a new model whose name sorts last."""
    publish(prepare(exports, "ettm2", "last", 1))
    wait_until(lambda: server.metric("longdoc_model_ready", model="last"))


def announced(server: Server) -> list[str]:
    lines = server.get("/metrics").text.splitlines()
    return [line.split('version="')[1].split('"')[0] for line in lines if line.startswith("longdoc_model_info{")]


@contextmanager
def clients(server: Server, count: int = 8) -> Iterator[tuple[Counter[int], list[str]]]:
    """Send documents of one or several windows without pause; count responses by version and collect failures."""
    answers: Counter[int] = Counter()
    failures: list[str] = []
    stop = threading.Event()

    def ask(number: int) -> None:
        highest = 0
        with server.client() as client:
            while not stop.is_set():
                try:
                    found = answer(client, document(1 + 2500 * number))
                    assert found["version"] >= highest, "an older version answered after a newer one"
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
        wait_until(lambda: answers[OLD] > 50 or failures)
        publish(folder)
        wait_until(lambda: answers[NEW] > 50 or failures)
    assert failures == []
    assert version(reloading) == NEW
    assert announced(reloading) == [str(NEW)]
    assert reloading.metric("longdoc_model_ready", model=NAME) == 1
    assert reloading.metric("longdoc_queue_depth", model=NAME) == 0
    model = reloading.get(f"/v1/models/{NAME}").json()
    assert (model["version"], model["labels"]) == (NEW, ["bad", "good"])
    paths = {number: f"/v2/models/{NAME}/versions/{number}/ready" for number in (OLD, NEW)}
    assert {number: reloading.get(path).status_code for number, path in paths.items()} == {OLD: 404, NEW: 200}
    assert f"{NAME} {NEW}: serving" in reloading.text()
    assert "Traceback" not in reloading.text()


def test_damaged_version_is_rejected_once_and_served_when_repaired(exports_copy: Path, reloading: Server) -> None:
    folder = new_version(exports_copy)
    good = shutil.copy(folder / "model.onnx", exports_copy.parent)
    flip_byte(folder / "model.onnx")
    with clients(reloading, 2) as (answers, failures):
        wait_until(lambda: answers[OLD] or failures)
        folder = publish(folder)
        wait_until(lambda: refused(reloading, "hash") or failures)
        wait_for_scan(exports_copy, reloading)
        assert refused(reloading, "hash") == 1
        assert reloading.text().count("refused: ") == 1
        assert f"{NAME}/{NEW}: model.onnx has sha256" in reloading.text()
        assert set(answers) == {OLD}
        assert sorted(announced(reloading)) == sorted([str(OLD), "1"])
        os.replace(good, folder / "model.onnx")  # in one step: a partial file would be rejected again
        wait_until(lambda: answers[NEW] or failures)
    assert failures == []
    assert (version(reloading), refused(reloading, "hash")) == (NEW, 1)


def test_version_copied_file_by_file_is_served_when_complete(exports_copy: Path, reloading: Server) -> None:
    def refusals() -> float:
        return reloading.metric("longdoc_exports_refused_total", model=NAME)

    source = new_version(exports_copy)
    folder = exports_copy / NAME / str(NEW)
    folder.mkdir()
    for name in sorted((path.name for path in source.iterdir()), key=lambda name: (name != "manifest.json", name)):
        assert version(reloading) == OLD
        content = (source / name).read_bytes()
        with (folder / name).open("wb") as stream:
            before = refusals()
            stream.write(content[: len(content) // 2])
            stream.flush()
            wait_until(lambda before=before: refusals() > before)  # type: ignore[misc]
            stream.write(content[len(content) // 2 :])
    wait_until(lambda: version(reloading) == NEW)
    assert refused(reloading, "missing") > 0
    assert "Traceback" not in reloading.text()


def test_new_model_is_served_next_to_the_others(exports_copy: Path, reloading: Server) -> None:
    def names() -> list[str]:
        return [model["name"] for model in reloading.get("/v1/models").json()["models"]]

    assert names() == [NAME]
    publish(prepare(exports_copy, "ettm2", "energy", 1))
    wait_until(lambda: names() == [NAME, "energy"])
    channels = reloading.get("/v1/models/energy").json()["channels"]
    series = {channel: [float(i % 7) for i in range(96)] for channel in channels}
    forecast = reloading.post("/v1/forecast", json={"series": series, "horizon": 1}).json()
    assert (forecast["model"], forecast["version"]) == ("energy", 1)
    assert version(reloading) == OLD
    assert sorted(announced(reloading)) == sorted(["1", str(OLD)])


def test_version_of_another_task_is_rejected(exports_copy: Path, reloading: Server) -> None:
    publish(prepare(exports_copy, "ettm2"))
    wait_until(lambda: refused(reloading, "task"))
    wait_for_scan(exports_copy, reloading)
    assert refused(reloading, "task") == 1
    assert version(reloading) == OLD
    assert sorted(announced(reloading)) == sorted([str(OLD), "1"])


def test_reload_interval_of_0_disables_reloading(
    exports_copy: Path, reloading: Server, start: Callable[..., Server]
) -> None:
    """Checked after another server has scanned the folder and loaded the new version."""
    server = start("--exports", str(exports_copy), "--reload-s", "0", "--drain-delay-s", "0")
    publish(new_version(exports_copy))
    wait_until(lambda: version(reloading) == NEW)
    assert version(server) == OLD
    assert "serving" not in server.text()


def test_sigterm_after_a_new_version_loses_no_request(exports_copy: Path, reloading: ControlledServer) -> None:
    """Requests in flight with the old version and with the new one get their responses before the server exits."""
    folder = new_version(exports_copy)
    with ExitStack() as stack:
        with reloading.held():
            wires = [stack.enter_context(reloading.begin(document(9000))) for _ in range(6)]
            reloading.wait_for(6, "longdoc_requests_in_flight", model=NAME)
            publish(folder)
            wait_until(lambda: announced(reloading) == [str(NEW)])
            wires += [stack.enter_context(reloading.begin(document(5000))) for _ in range(6)]
            reloading.wait_for(12, "longdoc_requests_in_flight", model=NAME)
            reloading.drain()
        answers = [wire.answer() for wire in wires]
    assert [answer.status for answer in answers] == [200] * 12
    found = [json.loads(answer.body) for answer in answers]
    assert [answer["version"] for answer in found] == [OLD] * 6 + [NEW] * 6
    for answer in found:
        assert answer["results"][0]["label"] in LABELS[answer["version"]]
    assert reloading.exit_code() == 0
    assert "stopped" in reloading.text()


HANGING = """
import sys, threading, time
from pathlib import Path
from service import __main__
from service.engine import loading, reload

loading.SLOW_LOAD_S = reload.SLOW_LOAD_S = reload.LOAD_TURN_S = 0.1
load = loading.load_export

def load_when_the_mount_answers(path, **options):
    while path.name != "OLD" and not Path(f"ANSWERS-{path.name}").exists():
        time.sleep(0.01)
    return load(path, **options)

loading.load_export = load_when_the_mount_answers
sys.exit(__main__.main(sys.argv[1:]))
"""


def test_load_that_hangs_is_refused_until_it_ends(
    exports_copy: Path, tmp_path: Path, start: Callable[..., Server]
) -> None:
    """Simulates a network mount that does not answer; it does not block the end of the server either."""
    flags = ("--exports", str(exports_copy), "--reload-s", str(LOOK_S), "--drain-delay-s", "0")
    program = HANGING.replace("OLD", str(OLD)).replace("ANSWERS", str(tmp_path / "answers"))
    server = start(*flags, program=("-c", program))
    publish(new_version(exports_copy))
    wait_until(lambda: f"refused: {NAME}/{NEW}: loading takes longer than" in server.text())
    assert (refused(server, "timeout"), version(server)) == (1, OLD)
    (tmp_path / f"answers-{NEW}").touch()
    wait_until(lambda: version(server) == NEW)
    publish(prepare(exports_copy, version=NEW + 1))
    wait_until(lambda: refused(server, "timeout") == 2)
    assert version(server) == NEW
    assert server.stop() == 0
    assert "stopped" in server.text()


def test_model_that_never_ends_does_not_hold_up_the_others(exports_copy: Path, reloading: ControlledServer) -> None:
    """Others are loaded while it computes its golden inputs, and the server stops."""
    folder = prepare(exports_copy, name="endless", version=1)
    make_endless(folder)
    publish(folder)
    wait_until(lambda: reasons(reloading)["endless"] == "being loaded")
    reloading.advance(LOAD_TURN_S)
    publish(new_version(exports_copy))
    wait_until(lambda: version(reloading) == NEW)
    assert "continues" not in reasons(reloading)["endless"], "the load that never ends has not reached its limit"
    assert reloading.stop() == 0
    assert "stopped" in reloading.text()


def test_model_that_never_ends_is_stopped_and_refused(exports_copy: Path, start: Callable[..., Server]) -> None:
    flags = ("--exports", str(exports_copy), "--reload-s", str(LOOK_S), "--drain-delay-s", "0")
    server = start(*flags, program=("-c", LIMITED))
    folder = prepare(exports_copy, name="endless", version=1)
    make_endless(folder)
    publish(folder)
    wait_until(lambda: server.metric("longdoc_exports_refused_total", model="endless", reason="timeout"))
    assert "refused: endless/1: golden.npz: computing the golden inputs takes more than 0.2 s" in server.text()
    publish(new_version(exports_copy))
    wait_until(lambda: version(server) == NEW)
    assert server.metric("longdoc_exports_refused_total") == 1
    assert "Traceback" not in server.text()


def test_sparse_file_is_refused_at_once(exports_copy: Path, reloading: Server) -> None:
    folder = new_version(exports_copy)
    make_sparse(folder / "model.onnx", 20 * 2**30)
    publish(folder)
    wait_until(lambda: refused(reloading, "size"))
    assert f"refused: {NAME}/{NEW}: model.onnx has {20 * 2**30} bytes; allowed {2**31}" in reloading.text()
    assert version(reloading) == OLD


def test_version_with_a_pipe_is_rejected(exports_copy: Path, reloading: Server) -> None:
    """Opening a pipe for reading would block for ever."""
    folder = new_version(exports_copy)
    (folder / "manifest.json").unlink()
    os.mkfifo(folder / "manifest.json")
    publish(folder)
    wait_until(lambda: refused(reloading, "manifest"))
    wait_for_scan(exports_copy, reloading)
    assert version(reloading) == OLD
