"""Run the compose project under a unique name."""

import contextlib
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.paths import ROOT

BUILD_S = 1200
"""The first build downloads every dependency."""
HEALTHY_S = 120


@dataclass(frozen=True)
class Project:
    """A compose project with a unique name and image and with free ports, separate from any other on the machine."""

    name: str = field(default_factory=lambda: f"longdoc-test-{uuid.uuid4().hex[:12]}")
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        ports = ("LONGDOC_PUBLISHED_PORT", "LONGDOC_PUBLISHED_GRPC_PORT", "PROMETHEUS_PUBLISHED_PORT")
        own = {"LONGDOC_IMAGE": self.name, **dict.fromkeys(ports, "0")}
        return subprocess.run(
            ["docker", "compose", "--project-name", self.name, "--file", "docker-compose.yml", *arguments],
            cwd=ROOT, env={**os.environ, **own, **self.variables}, capture_output=True, text=True, check=False,
            timeout=timeout,
        )  # fmt: skip

    def output(self, *arguments: str, timeout: float = 60) -> str:
        done = self.run(*arguments, timeout=timeout)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.run('logs', '--no-color').stdout}"
        return done.stdout.strip()

    def python(self, code: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run code inside the service's container."""
        return self.run("exec", "--no-TTY", *options, "service", "python", "-c", code)

    def inspect(self, service: str) -> dict[str, Any]:
        """Return what `docker inspect` says about a container, running or not."""
        container = self.output("ps", "--all", "--quiet", service)
        done = subprocess.run(["docker", "inspect", container], capture_output=True, text=True, check=True)
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found[0]

    def client(self, service: str, port: int) -> httpx.Client:
        """Return a client of the published port; it uses no proxy."""
        address = self.output("port", service, str(port))
        return httpx.Client(base_url=f"http://{address}", timeout=30, trust_env=False)


@contextlib.contextmanager
def started(*services: str) -> Iterator[Project]:
    """Build, start and wait until healthy; always remove everything at the end."""
    project = Project()
    try:
        project.output("build", *services, timeout=BUILD_S)
        project.output("up", "--detach", "--wait", "--wait-timeout", str(HEALTHY_S), *services, timeout=HEALTHY_S + 60)
        yield project
    finally:
        project.output("down", "--volumes", "--timeout", "1", timeout=120)
        subprocess.run(["docker", "image", "rm", project.name], capture_output=True, check=False)
