"""Catalogue of the compared servers: command, request format, settings. Used by `benchmarks.peers.__main__`."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from artifact.provenance import git_revision
from benchmarks.peers.classifier import MAX_BATCH, SERVER_DEADLINE_S
from benchmarks.peers.processes import HERE


@dataclass(frozen=True)
class Peer:
    """One server. `{bin}`, `{port0}`, `{cores}` etc. are substituted in command and environment."""

    name: str
    command: str
    """Words separated by spaces."""
    path: str
    settings: str
    """Configuration, as described in the report."""
    request: Callable[[str], object] = lambda document: {"text": document}
    """Document -> JSON body in the server's own format."""
    answer: Callable[[Any], tuple[str, float]] = lambda answer: (answer["label"], answer["score"])
    """JSON response -> label and score."""
    venv: str = ""
    """Its package, and name of its requirements file; empty for this project, which runs in the benchmark's
    environment."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Pinned version; for this project the revision."""
        if not self.venv:
            return git_revision()
        pinned = Path(HERE / f"requirements-{self.venv}.txt").read_text()
        found = re.search(rf"^{re.escape(self.venv)}==(\S+)", pinned, re.MULTILINE)
        return found[1] if found else "not pinned"

    def body(self, document: str) -> bytes:
        """Body of a request."""
        return json.dumps(self.request(document)).encode()


BOUND = f"the number of requests that it answers in {SERVER_DEADLINE_S / 2:g} s"
"""Bound of its queue, see `Bench.measure`."""


def _of_mlserver(document: str) -> object:
    text = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "parameters": {"content_type": "str"}}
    return {"inputs": [{**text, "data": [document]}]}


def _from_mlserver(answer: Any) -> tuple[str, float]:
    label, score = (output["data"][0] for output in answer["outputs"])
    return label, score


UVICORN = "{bin}/uvicorn benchmarks.peers.fastapi_server:app --port {port0} --no-access-log"

OURS = Peer(
    name="ours",
    command="{bin}/python -m service --exports {exports} --port {port0} --device cpu "
    f"--deadline-s {SERVER_DEADLINE_S}",
    path="/v1/classify",
    request=lambda document: {"inputs": document},
    answer=lambda answer: (answer["results"][0]["label"], answer["results"][0]["score"]),
    settings=f"defaults, with a deadline of {SERVER_DEADLINE_S} s",
)
PEERS = {
    "ours": OURS,
    "ours-workers": replace(
        OURS,
        name="ours, one process per core",
        command=OURS.command + " --workers {cores}",
        settings="the same with `--workers`",
    ),
    "fastapi": Peer(
        name="FastAPI",
        venv="fastapi",
        command=UVICORN,
        path="/classify",
        settings="one process, handler in the thread pool; no batching, no limits",
    ),
    "fastapi-workers": Peer(
        name="FastAPI, one process per core",
        venv="fastapi",
        command=UVICORN + " --workers {cores}",
        path="/classify",
        settings="the same with `--workers`",
    ),
    "litserve": Peer(
        name="LitServe",
        venv="litserve",
        command="{bin}/python -m benchmarks.peers.litserve_server",
        path="/predict",
        settings=f"`workers_per_device` and HTTP processes: one per core each; `batch_timeout=0.002`, "
        f"`timeout={SERVER_DEADLINE_S}`; its queue is unbounded",
    ),
    "bentoml": Peer(
        name="BentoML",
        venv="bentoml",
        command="{bin}/bentoml serve benchmarks.peers.bentoml_server:Imdb --host 127.0.0.1 --port {port0}",
        environment={"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": "{folder}/bentoml"},
        path="/classify",
        request=lambda document: {"texts": [document]},
        answer=lambda answer: (answer[0]["label"], answer[0]["score"]),
        settings=f"one worker per core, `max_latency_ms={1000 * SERVER_DEADLINE_S:g}`, `timeout={SERVER_DEADLINE_S}`, "
        f"`max_concurrency`: {BOUND}",
    ),
    "mlserver": Peer(
        name="MLServer",
        venv="mlserver",
        command="{bin}/mlserver start {folder}",
        environment={
            "MLSERVER_HOST": "127.0.0.1",
            "MLSERVER_HTTP_PORT": "{port0}",
            "MLSERVER_GRPC_PORT": "{port1}",
            "MLSERVER_METRICS_PORT": "{port2}",
            "MLSERVER_METRICS_DIR": "{folder}",
            "MLSERVER_ENVIRONMENTS_DIR": "{folder}",
            "MLSERVER_DEBUG": "false",
            "MLSERVER_PARALLEL_WORKERS": "{cores}",
            "MLSERVER_MODEL_NAME": "imdb-s3",
            "MLSERVER_MODEL_IMPLEMENTATION": "benchmarks.peers.mlserver_server.Imdb",
            "MLSERVER_MODEL_MAX_BATCH_SIZE": str(MAX_BATCH),
            "MLSERVER_MODEL_MAX_BATCH_TIME": "0.002",
        },
        path="/v2/models/imdb-s3/infer",
        request=_of_mlserver,
        answer=_from_mlserver,
        settings="one `parallel_workers` per core, `max_batch_time=0.002`; no limits, no deadlines",
    ),
    "ray": Peer(
        name="Ray Serve",
        venv="ray",
        command="{bin}/python -m benchmarks.peers.ray_server",
        environment={
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
            "RAY_SERVE_ENABLE_HA_PROXY": "1",
        },
        path="/",
        settings=f"one replica per core, `batch_wait_timeout_s=0.002`, `max_queued_requests`: {BOUND}; "
        f"`retry_after_s=1`, `request_timeout_s={SERVER_DEADLINE_S}`, and its high-throughput mode: HAProxy in front, "
        "`RAY_SERVE_THROUGHPUT_OPTIMIZED=1`",
    ),
}
