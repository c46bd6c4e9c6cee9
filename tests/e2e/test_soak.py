"""Mixed traffic for a long time: correct answers and expected errors only; constant memory, descriptors and threads.

`LONGDOC_SOAK_S` is the duration, 600 s by default. The first quarter is the warm-up; the maxima of the second and of
the last quarter are compared.
"""

import json
import logging
import os
import random
import re
import shutil
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from artifact.exports import version_folder
from tests.support.offline import Offline, OfflineForecaster, OfflineMatcher, document, documents, same_score
from tests.support.paths import EXPORTS
from tests.support.problems import SECRET
from tests.support.server import Server
from tests.support.versions import NAME, OLD, prepare, publish
from tests.support.waiting import wait_until
from tests.support.wire import Wire, request

log = logging.getLogger(__name__)

SOAK_S = float(os.environ.get("LONGDOC_SOAK_S", "600"))
CLIENTS = 6
MAX_HALF_OPEN = 16
TEXT, JSON, NDJSON = ({"content-type": kind} for kind in ("text/plain", "application/json", "application/x-ndjson"))
GROWTH = 1.10
"""Largest allowed ratio of the last quarter to the second one."""
SLACK_BYTES = 24 * 2**20
"""Allowed in addition: during a reload two versions of an export are loaded."""
SLOPE_BYTES = 4 * 2**20
"""Largest allowed growth per minute over the second half; the allocator alone causes 2 MB, more in a short run."""
SLOPE_FROM_S = 300


@dataclass
class Traffic:
    """Requests of the clients, and checks of the responses."""

    server: Server
    offline: Offline
    matcher: OfflineMatcher
    forecaster: OfflineForecaster
    answers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.documents = documents(24, 9000)
        self.expected = [list(self.offline(given).values()) for given in self.documents]
        self.texts = [given.decode() for given in documents(6, 3000)]
        self.scores = {(a, b): self.matcher(a, b) for a in self.texts[:2] for b in self.texts}
        self.series = self.forecaster.series(self.forecaster.manifest.context_length)
        self.forecast = self.forecaster(self.series)
        self.half_open: deque[socket.socket] = deque()
        self.stop = threading.Event()
        self.kinds: list[Callable[[httpx.Client, random.Random], None]] = [
            self.classify_text, self.classify_text, self.classify_json, self.classify_lines, self.score, self.rank,
            self.predict, self.infer, self.forecast_series, self.err, self.err, self.miss_deadline, self.disconnect,
            self.disconnect_from_lines, self.open_half, self.read_pages,
        ]  # fmt: skip

    def client(self, seed: int) -> None:
        """Send random requests until `stop` is set; collect failures."""
        generator = random.Random(seed)
        with self.server.client() as client:
            while not self.stop.is_set() and not self.failures:
                kind = generator.choice(self.kinds)
                try:
                    kind(client, generator)
                except Exception as error:
                    self.failures.append(f"{kind.__name__}: {error!r}")
                self.answers[kind.__name__] += 1

    def post(self, client: httpx.Client, path: str, body: Any) -> Any:
        response = client.post(path, json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def check_scores(self, result: dict[str, Any], index: int) -> None:
        """Compare with the scores computed offline; versions differ only in the names of the labels."""
        found = {score["label"]: score["score"] for score in result["scores"]}
        names = ("negative", "positive") if "negative" in found else ("bad", "good")
        assert [found[name] for name in names] == pytest.approx(self.expected[index], abs=1e-5)

    def classify_text(self, client: httpx.Client, generator: random.Random) -> None:
        index = generator.randrange(len(self.documents))
        response = client.post("/v1/classify", content=self.documents[index], headers=TEXT)
        assert response.status_code == 200, response.text
        self.check_scores(response.json()["results"][0], index)

    def classify_json(self, client: httpx.Client, generator: random.Random) -> None:
        indices = generator.choices(range(len(self.documents)), k=4)
        answer = self.post(client, "/v1/classify", {"inputs": [self.documents[i].decode() for i in indices]})
        for result, index in zip(answer["results"], indices, strict=True):
            self.check_scores(result, index)

    def classify_lines(self, client: httpx.Client, generator: random.Random) -> None:
        """Send lines of which the last is invalid."""
        indices = generator.choices(range(len(self.documents)), k=8)
        lines = [json.dumps({"id": i, "text": self.documents[i].decode()}) for i in indices] + [f'{{"text": "{SECRET}']
        response = client.post("/v1/classify", content="\n".join(lines), headers=NDJSON)
        *answers, wrong = [json.loads(line) for line in response.text.splitlines()]
        assert [answer["id"] for answer in answers] == indices
        for answer in answers:
            self.check_scores(answer, answer["id"])
        assert wrong["error"]["code"] == "malformed_input"
        assert SECRET not in response.text

    def score(self, client: httpx.Client, generator: random.Random) -> None:
        pairs = generator.choices(list(self.scores), k=3)
        answer = self.post(client, "/v1/score", {"pairs": pairs})
        for pair, result in zip(pairs, answer["results"], strict=True):
            assert same_score(result["score"], self.scores[pair])

    def rank(self, client: httpx.Client, generator: random.Random) -> None:
        query = generator.choice(self.texts[:2])
        answer = self.post(client, "/v1/rank", {"query": query, "documents": self.texts})
        for result in answer["results"]:
            assert same_score(result["score"], self.scores[query, self.texts[result["index"]]])

    def predict(self, client: httpx.Client, generator: random.Random) -> None:
        index = generator.randrange(len(self.documents))
        self.check_scores({"scores": self.post(client, "/predict", {"inputs": self.documents[index].decode()})}, index)

    def infer(self, client: httpx.Client, generator: random.Random) -> None:
        index = generator.randrange(len(self.documents))
        tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [self.documents[index].decode()]}
        answer = self.post(client, f"/v2/models/{NAME}/infer", {"inputs": [tensor]})
        assert answer["outputs"][0]["data"] == pytest.approx(self.expected[index], abs=1e-5)

    def forecast_series(self, client: httpx.Client, generator: random.Random) -> None:
        del generator
        answer = self.post(client, "/v1/forecast", {"series": self.series})
        assert self.forecaster.agree(answer["forecast"], self.forecast)

    def err(self, client: httpx.Client, generator: random.Random) -> None:
        path, headers, body, status = generator.choice(
            [
                ("/v1/classify", JSON, b'{"inputs": ["' + SECRET.encode(), 400),
                ("/v1/classify", JSON, json.dumps({"inputs": SECRET, "model": "none"}).encode(), 404),
                ("/v1/classify", TEXT, (2**20 + 1) * b"x", 413),
                ("/v1/rank", TEXT, SECRET.encode(), 415),
                ("/v1/score", JSON, json.dumps({"pairs": [[SECRET]]}).encode(), 422),
                ("/v1/forecast", JSON, b'{"series": [[1, 2]]}', 422),
                ("/v2/models/none/infer", JSON, b"{}", 404),
                ("/nowhere", JSON, b"{}", 404),
            ]
        )
        response = client.post(path, content=body, headers=headers)
        assert response.status_code == status, response.text
        assert SECRET not in response.text

    def miss_deadline(self, client: httpx.Client, generator: random.Random) -> None:
        del generator
        headers = {**TEXT, "x-request-timeout-ms": "1"}
        response = client.post("/v1/classify", content=document(2**20), headers=headers)
        assert response.status_code in (429, 504), response.text  # 429: admission expects a miss

    def disconnect(self, client: httpx.Client, generator: random.Random) -> None:
        del client
        with self.server.begin(document(200_000)):
            time.sleep(generator.uniform(0, 0.05))

    def disconnect_from_lines(self, client: httpx.Client, generator: random.Random) -> None:
        """Disconnect in the middle of a line, after the first answers."""
        del client
        with Wire(self.server.url) as wire:
            lines = [json.dumps({"text": text}).encode() + b"\n" for text in self.texts]
            body = b"".join(lines[: generator.randint(1, len(lines))]) + b'{"text": "'
            head = request(body=None, content_type=NDJSON["content-type"], content_length="1000000")
            assert wire.send(head + body).head()[0] == 200

    def open_half(self, client: httpx.Client, generator: random.Random) -> None:
        """Open a connection with the beginning of a request, and abandon the oldest one."""
        del client
        host, port = self.server.url.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)), timeout=60)
        head = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 9000\r\n\r\nabc"
        connection.sendall(head[: generator.randrange(len(head) + 1)])
        self.half_open.append(connection)
        while len(self.half_open) > MAX_HALF_OPEN:
            self.half_open.popleft().close()

    def read_pages(self, client: httpx.Client, generator: random.Random) -> None:
        assert client.get(generator.choice(("/metrics", "/v1/models", "/health", "/docs"))).status_code == 200


@dataclass(frozen=True)
class Held:
    """Resources of the process at a point in time."""

    at: float
    rss: int
    descriptors: int
    threads: int


def sample(server: Server, began: float) -> Held:
    threads = re.search(r"Threads:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
    assert threads is not None
    return Held(time.monotonic() - began, server.rss_bytes(), server.descriptors(), int(threads[1]))


def check_flat(held: list[Held]) -> None:
    """Check that the process holds no more in the last quarter than in the second one, except for noise."""
    first, last = held[len(held) // 4 : len(held) // 2], held[3 * len(held) // 4 :]
    most = {name: [max(getattr(h, name) for h in part) for part in (first, last)] for name in Held.__annotations__}
    second_half = held[len(held) // 2 :]
    slope = 60 * np.polyfit([h.at for h in second_half], [h.rss for h in second_half], 1)[0]
    log.info("most in the second and the last quarter: %s; %.2f MB a minute", most, slope / 1e6)
    log.info("MB over time: %s", [round(h.rss / 1e6) for h in held[:: max(1, len(held) // 40)]])
    assert most["rss"][1] <= GROWTH * most["rss"][0] + SLACK_BYTES, most
    assert most["descriptors"][1] <= GROWTH * most["descriptors"][0] + MAX_HALF_OPEN, most
    assert most["threads"][1] <= GROWTH * most["threads"][0] + 4, most
    assert held[-1].at < SLOPE_FROM_S or slope < SLOPE_BYTES, slope


def reload(exports: Path, version: int) -> None:
    """Publish a version whose labels differ from the previous one; remove the version before that."""
    labels = ["bad", "good"] if version % 2 else ["negative", "positive"]
    publish(prepare(exports, version=version, labels=labels))
    shutil.rmtree(exports / NAME / str(version - 2), ignore_errors=True)


@pytest.mark.slow
def test_long_mixed_traffic_does_not_leak(
    start: Callable[..., Server],
    exports_copy: Path,
    offline: Offline,
    matcher: OfflineMatcher,
    forecaster: OfflineForecaster,
) -> None:
    for name in ("aan", "ettm2"):
        source = version_folder(EXPORTS / name)
        shutil.copytree(source, exports_copy / name / source.name)
    server = start("--exports", str(exports_copy), "--reload-s", "0.5", "--drain-delay-s", "0")
    idle = sample(server, time.monotonic())
    traffic = Traffic(server, offline, matcher, forecaster)
    held: list[Held] = []
    version, every_s = OLD, max(3.0, SOAK_S / 40)
    began = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(traffic.client, seed) for seed in range(CLIENTS)]
        try:
            while time.monotonic() < began + SOAK_S and not traffic.failures:
                time.sleep(SOAK_S / 400)
                held.append(sample(server, began))
                if held[-1].at > (version - OLD + 1) * every_s:
                    version += 1
                    reload(exports_copy, version)
        finally:
            traffic.stop.set()
    for done in clients:
        done.result()
    for connection in traffic.half_open:
        connection.close()
    assert not traffic.failures
    log.info("%s; versions %d to %d", dict(traffic.answers), OLD, version)
    assert all(traffic.answers[kind.__name__] for kind in traffic.kinds)
    check_flat(held)
    models = server.get("/v1/models").json()["models"]
    served = {model["name"]: model["version"] for model in models}
    assert served[NAME] in (version - 1, version), "the server has not reloaded the newest versions"
    assert served[NAME] > OLD
    wait_until(lambda: server.descriptors() <= idle.descriptors + 8, lambda: "connections or files stay open")
    assert "Traceback" not in server.text()
    assert "Warning" not in server.text()
    assert server.stop() == 0
