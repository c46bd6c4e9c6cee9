"""Monitoring: Prometheus loads the alerts, the queries of the dashboard return data, Grafana is locked down."""

import json
import math
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.compose import Project, started
from tests.support.dashboard import ALERTS, BOARD, QUERIES
from tests.support.paths import ROOT
from tests.support.wire import Wire, request

pytestmark = pytest.mark.docker

SEEN_S = 60
MIB = 2**20
EVENTS = ["longdoc_requests_rejected_total > 0", "longdoc_requests_cancelled_total > 0"]
"""The default that queries of the dashboard use if there is no data."""
NAMES = re.findall(r"alert: (\w+)", ALERTS)


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    with started() as project:
        yield project


@pytest.fixture
def prometheus(project: Project) -> Iterator[httpx.Client]:
    with project.client("prometheus", 9090) as client:
        yield client


def send_everything(client: httpx.Client) -> None:
    """Send requests of every kind, including rejected, late, truncated and abandoned ones."""
    name = "imdb-s3"  # of the classifiers, those of words tell the share of known ones
    text, as_json = {"content-type": "text/plain"}, {"content-type": "application/json"}
    whole = client.post("/v1/classify", params={"model": name}, content=b"A document. " * 400, headers=text)
    head = client.post(
        "/v1/classify", params={"model": name, "on_overflow": "head"}, content=b"Long. " * 9999, headers=text
    )
    malformed = client.post("/v1/classify", content=b"{", headers=as_json)
    assert (whole.status_code, head.status_code, malformed.status_code) == (200, 200, 400)
    for route, example in (("rank", "rank.json"), ("forecast", "series.json")):
        answer = client.post(f"/v1/{route}", content=(ROOT / "docs" / example).read_bytes(), headers=as_json)
        assert answer.status_code == 200, answer.text

    large = json.dumps({"model": name, "inputs": [f"{index}" * MIB for index in range(7)]}).encode()
    for milliseconds in ("20", "100", "500"):  # one of them expires after the upload and before the response
        late = client.post("/v1/classify", content=large, headers={**as_json, "x-request-timeout-ms": milliseconds})
        assert late.status_code in (200, 429, 504), late.text
    with Wire(f"http://{client.base_url.netloc.decode()}") as wire:
        wire.send(request(body=large, content_type="application/json"))


def has_data(prometheus: httpx.Client, query: str) -> bool:
    """Return whether a query of the dashboard returns a number, with all jobs and models selected."""
    for variable, value in {"$__rate_interval": "1m", "$job": ".*", "$model": ".*"}.items():
        query = query.replace(variable, value)
    answer = prometheus.get("/api/v1/query", params={"query": query})
    assert answer.status_code == 200, answer.text
    return any(math.isfinite(float(found["value"][1])) for found in answer.json()["data"]["result"])


def configuration() -> dict[str, dict[str, Any]]:
    """Return the services as Compose reads them, including Grafana."""
    merged = json.loads(Project().output("--profile", "grafana", "config", "--format", "json"))
    services: dict[str, dict[str, Any]] = merged["services"]
    return services


def rules(prometheus: httpx.Client) -> list[dict[str, Any]]:
    groups = prometheus.get("/api/v1/rules").raise_for_status().json()["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_query_of_the_dashboard_has_data(project: Project, prometheus: httpx.Client) -> None:
    without, until = [*QUERIES, *EVENTS], time.monotonic() + SEEN_S
    with project.client("service", 8000) as client:
        while without and time.monotonic() < until:
            send_everything(client)
            without = [query for query in without if not has_data(prometheus, query)]
    assert not without


def test_prometheus_evaluates_every_alert(prometheus: httpx.Client) -> None:
    until = time.monotonic() + SEEN_S
    while any(rule["health"] == "unknown" for rule in rules(prometheus)) and time.monotonic() < until:
        time.sleep(0.5)  # the first evaluation follows within one interval
    found = rules(prometheus)
    assert [rule["name"] for rule in found] == NAMES
    for rule in found:
        assert rule["health"] == "ok", rule
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() == {"summary", "description"}


def firing(prometheus: httpx.Client) -> list[dict[str, Any]]:
    alerts = prometheus.get("/api/v1/alerts").raise_for_status().json()["data"]["alerts"]
    return [alert for alert in alerts if alert["state"] == "firing"]


def test_no_alert_fires_after_a_start_or_a_restart() -> None:
    with started() as project, project.client("prometheus", 9090) as prometheus:
        for is_last in (False, True):
            evaluations, until = set[str](), time.monotonic() + 2 * SEEN_S
            while len(evaluations) < 3 and time.monotonic() < until:  # the third evaluation has certainly seen a scrape
                time.sleep(0.5)
                if has_data(prometheus, "longdoc_inference_errors_total"):
                    evaluations.add(rules(prometheus)[0]["lastEvaluation"])
                assert firing(prometheus) == []
            assert len(evaluations) == 3
            if not is_last:
                project.output("restart", "service", timeout=120)


def test_promtool_accepts_configuration_and_alerts(project: Project) -> None:
    check = ("promtool", "check", "config", "/etc/prometheus/prometheus.yml")
    checked = project.output("exec", "--no-TTY", "prometheus", *check)
    assert f"{len(NAMES)} rules found" in checked


def test_each_alert_fires_when_it_should() -> None:
    cases = ROOT / "tests" / "docker" / "alerts_test.yml"
    assert set(re.findall(r'alertname(?:="|: )(\w+)', cases.read_text())) == set(NAMES)
    image = configuration()["prometheus"]["image"]
    # Not in the running container: its file system is read-only, and promtool writes files.
    promtool = ["docker", "run", "--rm", "--volume", f"{ROOT}:/checkout:ro", "--entrypoint", "promtool", image]
    command = [*promtool, "test", "rules", f"/checkout/{cases.relative_to(ROOT)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_starts_only_with_its_profile() -> None:
    assert set(Project().output("config", "--services").split()) == {"service", "prometheus"}


def test_grafana_is_locked_down_and_finds_its_files() -> None:
    grafana = configuration()["grafana"]
    assert grafana["read_only"] is True
    assert grafana["cap_drop"] == ["ALL"]
    assert [port["host_ip"] for port in grafana["ports"]] == ["127.0.0.1"]
    environment = grafana["environment"]
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"  # otherwise admin has the password admin
    assert not any("PASSWORD" in name for name in environment)

    mounted = {mount["target"]: Path(mount["source"]) for mount in grafana["volumes"] if mount["type"] == "bind"}
    home = Path(environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert json.loads((mounted[str(home.parent)] / home.name).read_text()) == BOARD
    (provider,) = mounted["/etc/grafana/provisioning/dashboards"].iterdir()
    assert f"path: {home.parent}\n" in provider.read_text()
    (source,) = mounted["/etc/grafana/provisioning/datasources"].iterdir()
    assert f"uid: {BOARD['templating']['list'][0]['current']['value']}\n" in source.read_text()
