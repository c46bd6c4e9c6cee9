"""The compose project as users start it: built, both containers healthy, scraped, stopped."""

import json
import time
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from open_inference.grpc.protocol import ModelInferRequest
from open_inference.grpc.service import GRPCInferenceServiceStub

from service.settings import Settings
from tests.support.compose import Project, started
from tests.support.paths import ROOT

pytestmark = pytest.mark.docker

SCRAPED_S = 60
GRACE_S = 30
"""`stop_grace_period`: after it Docker kills the container, and the exit code is 137."""
COUNTED = 'longdoc_http_requests_total{route="/v1/classify",code="200"}'


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    """The whole project, for all tests that only send requests."""
    with started() as project:
        yield project


def classify(client: httpx.Client) -> httpx.Response:
    """Post a document to the first classifier of the checkout."""
    models = client.get("/v1/models").raise_for_status().json()["models"]
    name = next(model["name"] for model in models if model["task"] == "text-classification")
    headers = {"content-type": "text/plain"}
    return client.post("/v1/classify", params={"model": name}, content=b"A document. " * 400, headers=headers)


def test_both_containers_are_healthy(project: Project) -> None:
    health = {service: project.inspect(service)["State"]["Health"]["Status"] for service in ("service", "prometheus")}
    assert health == {"service": "healthy", "prometheus": "healthy"}


def test_document_is_classified_and_counted_by_prometheus(project: Project) -> None:
    with project.client("service", 8000) as client:
        answer = classify(client)
    assert answer.status_code == 200, answer.text
    assert answer.json()["results"][0]["coverage"]["bytes_total"] == 4800

    found: list[dict[str, Any]] = []
    until = time.monotonic() + SCRAPED_S
    with project.client("prometheus", 9090) as client:
        while not found and time.monotonic() < until:
            time.sleep(0.5)
            answer = client.get("/api/v1/query", params={"query": COUNTED}).raise_for_status()
            found = answer.json()["data"]["result"]
    assert found, "Prometheus did not see the request"
    assert float(found[0]["value"][1]) >= 1


def test_grpc_answers_on_its_published_port(project: Project) -> None:
    request = ModelInferRequest(model_name="imdb-s3")
    request.inputs.add(name="text", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"A delight.")
    with grpc.insecure_channel(project.output("port", "service", "8001")) as channel:
        found = GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=30)
    assert found.raw_output_contents[1][4:] == b"positive"


def test_examples_of_the_readme_are_answered(project: Project) -> None:
    headers = {"content-type": "application/json"}
    with project.client("service", 8000) as client:
        for route, example in (("rank", "rank.json"), ("forecast", "series.json")):
            answer = client.post(f"/v1/{route}", content=(ROOT / "docs" / example).read_bytes(), headers=headers)
            assert answer.status_code == 200, answer.text


def test_ports_are_published_on_the_loopback_interface_only(project: Project) -> None:
    for service in ("service", "prometheus"):
        published = project.inspect(service)["NetworkSettings"]["Ports"].values()
        assert {binding["HostIp"] for bindings in published for binding in bindings} == {"127.0.0.1"}


def test_process_1_is_python_without_root_and_capabilities(project: Project) -> None:
    done = project.python("print(open('/proc/1/cmdline').read().split('\\0'), open('/proc/1/status').read())")
    assert done.returncode == 0, done.stderr
    command, status = done.stdout.split("]", 1)
    assert command.startswith("['python', '-m', 'service'")
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert "0" not in facts["Uid"].split()
    assert "0" not in facts["Gid"].split()
    assert int(facts["CapBnd"], 16) == 0
    assert facts["NoNewPrivs"] == "1"


def test_root_file_system_is_read_only_even_to_root(project: Project) -> None:
    for folder in ("/", "/app"):
        done = project.python(f"open('{folder}/x', 'w')", "--user", "0")
        assert "Read-only file system" in done.stderr, done.stderr
    assert project.python("import tempfile; tempfile.TemporaryFile()").returncode == 0


@pytest.mark.parametrize("package", ["torch", "model"])
def test_image_has_no_training_packages(project: Project, package: str) -> None:
    done = project.python(f"import {package}")
    assert done.returncode == 1
    assert f"No module named '{package}'" in done.stderr


def test_image_checks_its_exports(project: Project) -> None:
    checked = project.output("exec", "--no-TTY", "service", "python", "-m", "service", "check")
    assert "ok in" in checked


def test_onnx_runtime_sends_no_telemetry(project: Project) -> None:
    assert project.python("import os; print(os.environ['ORT_DISABLE_TELEMETRY'])").stdout.strip() == "1"
    log = project.output("logs", "--no-color", "service")
    assert "listening on" in log
    assert "telemetry" not in log  # if it is on, it warns that it cannot write its identifier


def test_stop_drains_and_exits_with_0_within_the_grace_period() -> None:
    with started("service") as project:
        with project.client("service", 8000) as client:
            assert classify(client).status_code == 200
        began = time.monotonic()
        project.output("stop", "service", timeout=GRACE_S + 30)
        seconds = time.monotonic() - began
        state = project.inspect("service")["State"]
        assert (state["Status"], state["ExitCode"], state["OOMKilled"]) == ("exited", 0, False)
        assert seconds < GRACE_S


def test_every_setting_reaches_the_container() -> None:
    inside = {
        "LONGDOC_HOST": "0.0.0.0",
        "LONGDOC_PORT": "8000",
        "LONGDOC_GRPC_PORT": "8001",
        "LONGDOC_EXPORTS": "/app/exports",
    }
    given = {f"LONGDOC_{name.upper()}": f"value of {name}" for name in Settings.model_fields} | {
        "LONGDOC_EXPORTS": "/x"
    }
    merged = json.loads(Project(variables=given).output("config", "--format", "json"))
    assert merged["services"]["service"]["environment"] == {**given, **inside}
    assert merged["services"]["service"]["volumes"][0]["source"] == "/x"


def test_project_and_image_have_default_names() -> None:
    project = Project(variables={"LONGDOC_IMAGE": ""})
    images = []
    for files in ((), ("--file", "docker-compose.gpu.yml")):
        merged = json.loads(project.output(*files, "config", "--format", "json"))
        images.append(merged["services"]["service"]["image"])
    assert images == ["longdoc-serve", "longdoc-serve:gpu"]
    assert (ROOT / "docker-compose.yml").read_text().startswith("name: longdoc-serve\n")


def test_exports_of_the_checkout_are_mounted_read_only(project: Project) -> None:
    mounts = {mount["Destination"]: mount for mount in project.inspect("service")["Mounts"]}
    exports = mounts["/app/exports"]
    assert (exports["Type"], exports["Source"], exports["RW"]) == ("bind", str(ROOT / "exports"), False)


def test_gpu_file_builds_its_target_and_requests_a_device() -> None:
    merged = json.loads(Project().output("--file", "docker-compose.gpu.yml", "config", "--format", "json"))
    service = merged["services"]["service"]
    assert service["build"]["target"] == "gpu"
    assert service["environment"]["LONGDOC_DEVICE"] == "cuda"
    assert service["read_only"] is True
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
