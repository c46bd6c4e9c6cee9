"""The Helm chart: valid for Kubernetes, safe, and in agreement with the service."""

import json
import re

import kubernetes_validate
import pytest
import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import PrometheusRule, ServiceMonitor
from packaging.version import Version
from pydantic import BaseModel

from artifact import __version__
from service.settings import Settings
from tests.support.helm import CHART, NAMESPACE, RELEASE, Helm, Object, pod_of, service_container, variables
from tests.support.paths import ROOT

NAME = f"{RELEASE}-longdoc-serve"
MONITORED = tuple(f"monitoring.{part}.enabled=true" for part in ("serviceMonitor", "prometheusRule", "dashboard"))
COPIED = ('exports.source="objectStorage"', 'exports.objectStorage.path=":s3,env_auth=true:bucket/exports"')
MOUNTED = ('exports.source="volume"', 'exports.volume={"persistentVolumeClaim": {"claimName": "exports"}}')
CONFIGURATIONS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "defaults": ((), None),
    "GPU": ((), "values-gpu.yaml"),
    "CPU utilisation": (('autoscaling.type="hpa"',), None),
    "queue": (('autoscaling.type="keda"',), None),
    "queue on GPU": (('autoscaling.type="keda"',), "values-gpu.yaml"),
    "monitoring": (MONITORED, None),
    "exports from object storage": ((*COPIED, 'exports.objectStorage.existingSecret="s3"'), None),
    "exports from a volume": (MOUNTED, None),
    "gRPC": (("grpc.enabled=true",), None),
    "everything else": (
        (
            "grpc.enabled=true",
            "grpc.port=50051",
            'grpc.tlsSecret="certificate"',
            "ingress.enabled=true",
            'ingress.host="documents.example.org"',
            'ingress.className="nginx"',
            'ingress.tlsSecret="certificate"',
            'ingress.annotations={"a": "b"}',
            'apiKeys.existingSecret="keys"',
            'settings.otlp_endpoint="http://collector.tracing:4318"',
            'networkPolicy.egress=[{"to": [{"podSelector": {}}]}]',
            'networkPolicy.from=[{"podSelector": {}}]',
            'imagePullSecrets=[{"name": "registry"}]',
            'podAnnotations={"a": "b"}',
            'nodeSelector={"a": "b"}',
            'tolerations=[{"key": "a", "operator": "Exists"}]',
            'affinity={"podAntiAffinity": {}}',
            'service.annotations={"a": "b"}',
            'serviceAccount.annotations={"a": "b"}',
        ),
        None,
    ),
}
CUSTOM: dict[str, type[BaseModel]] = {
    "ScaledObject": ScaledObject,
    "ServiceMonitor": ServiceMonitor,
    "PrometheusRule": PrometheusRule,
}
"""Kinds that Kubernetes itself does not have."""
FIXED = {"host", "port", "grpc_port", "grpc_certificate", "grpc_private_key", "exports", "api_keys"}
"""Settings that the image or other values set."""


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def objects(helm: Helm, request: pytest.FixtureRequest) -> dict[str, Object]:
    """Objects of the chart in each configuration, by kind."""
    values, file = CONFIGURATIONS[request.param]
    return helm.objects(*values, file=file)


@pytest.fixture(scope="module")
def defaults(helm: Helm) -> dict[str, Object]:
    return helm.objects()


def seconds_of_drain(objects: dict[str, Object]) -> float:
    found = variables(objects)
    return float(found["LONGDOC_DRAIN_DELAY_S"]) + float(found["LONGDOC_DRAIN_TIMEOUT_S"])


def test_chart_passes_the_linter(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", ["1.30", "1.33", "1.37"])
def test_objects_agree_with_the_schema_of_kubernetes(objects: dict[str, Object], version: str) -> None:
    for kind, found in objects.items():
        if kind not in CUSTOM:
            kubernetes_validate.validate(found, version, strict=True)


def test_custom_objects_agree_with_their_schema(objects: dict[str, Object]) -> None:
    """A field that the schema does not have is dropped when the object is parsed."""
    for kind in CUSTOM.keys() & objects.keys():
        parsed = CUSTOM[kind].model_validate(objects[kind])
        assert parsed.model_dump(by_alias=True, exclude_unset=True, mode="json") == objects[kind]


def test_objects_are_in_the_namespace_of_the_release(objects: dict[str, Object]) -> None:
    assert {found["metadata"]["namespace"] for found in objects.values()} == {NAMESPACE}


def test_containers_have_limits_pinned_images_and_no_privileges(objects: dict[str, Object]) -> None:
    pod = pod_of(objects)
    assert pod["automountServiceAccountToken"] is False
    assert objects["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"USER {pod['securityContext']['runAsUser']}:" in (ROOT / "Dockerfile").read_text()
    for container in (*pod["containers"], *pod.get("initContainers", [])):
        assert all(container["resources"][kind].keys() >= {"cpu", "memory"} for kind in ("limits", "requests"))
        assert re.match(r"\d+\.\d+\.\d+", container["image"].rpartition(":")[2]), container["image"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_probes_request_routes_that_need_no_key(objects: dict[str, Object]) -> None:
    routes = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]
    container = service_container(objects)
    ports = {port["name"] for port in container["ports"]}
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = container[name]["httpGet"]
        assert "401" not in routes[probe["path"]]["get"]["responses"]
        assert probe["port"] in ports


@pytest.mark.parametrize(
    "values",
    [
        (),
        ("settings.drain_delay_s=0", "settings.drain_timeout_s=0.5", "preStopSeconds=0"),
        ("settings.drain_delay_s=12.5", "settings.drain_timeout_s=300", "preStopSeconds=20"),
    ],
)
def test_grace_period_exceeds_the_drain(helm: Helm, values: tuple[str, ...]) -> None:
    found = helm.objects(*values)
    before = service_container(found).get("lifecycle", {"preStop": {"sleep": {"seconds": 0}}})["preStop"]["sleep"]
    assert pod_of(found)["terminationGracePeriodSeconds"] > before["seconds"] + seconds_of_drain(found)


def test_selectors_find_the_pods(objects: dict[str, Object]) -> None:
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        objects["Service"]["spec"]["selector"],
        objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        *(spread["labelSelector"]["matchLabels"] for spread in pod_of(objects)["topologySpreadConstraints"]),
    ]
    for selector in selectors:
        assert selector.items() <= labels
        assert "app.kubernetes.io/instance" in selector, "two releases in a namespace must not mix"
    if monitor := objects.get("ServiceMonitor"):
        assert monitor["spec"]["selector"]["matchLabels"].items() <= objects["Service"]["metadata"]["labels"].items()


def test_references_name_objects_of_the_chart(objects: dict[str, Object]) -> None:
    assert pod_of(objects)["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"] == NAME
    for kind in ("HorizontalPodAutoscaler", "ScaledObject"):
        if scaler := objects.get(kind):
            assert scaler["spec"]["scaleTargetRef"]["name"] == objects["Deployment"]["metadata"]["name"]
    if ingress := objects.get("Ingress"):
        (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
        assert path["backend"]["service"]["name"] == objects["Service"]["metadata"]["name"]


def test_replicas_are_set_by_the_chart_or_by_the_autoscaler(helm: Helm) -> None:
    assert helm.objects("replicas=3")["Deployment"]["spec"]["replicas"] == 3
    for kind, scaler in (("hpa", "HorizontalPodAutoscaler"), ("keda", "ScaledObject")):
        found = helm.objects(f'autoscaling.type="{kind}"')
        assert "replicas" not in found["Deployment"]["spec"], "an upgrade would undo the scaling"
        assert {"HorizontalPodAutoscaler", "ScaledObject"} & found.keys() == {scaler}


@pytest.mark.parametrize("file", [None, "values-gpu.yaml"])
def test_scaling_by_queue_reads_a_metric_of_the_service(helm: Helm, file: str | None) -> None:
    """And, with a GPU, nothing else: its use of the CPU tells nothing."""
    first, *more = helm.objects('autoscaling.type="keda"', file=file)["ScaledObject"]["spec"]["triggers"]
    (metric,) = re.findall(r"longdoc_\w+", first["metadata"]["query"])
    assert f'"{metric}"' in (ROOT / "service" / "metrics.py").read_text()
    assert f'namespace="{NAMESPACE}",service="{NAME}"' in first["metadata"]["query"]
    assert file is None or not more


def test_gpu_pool_requests_one_gpu_and_fails_without(helm: Helm) -> None:
    found = helm.objects(file="values-gpu.yaml")
    resources = service_container(found)["resources"]
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == 1
    assert variables(found)["LONGDOC_DEVICE"] == "cuda"


def test_settings_of_the_chart_are_those_of_the_service() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["properties"]["settings"]["properties"].keys() == Settings.model_fields.keys() - FIXED


def test_service_reads_the_settings_of_the_chart(helm: Helm, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"deadline_s": 2.5, "skip_bad_exports": True, "cors_origins": "https://example.org", "log_format": None}
    objects = helm.objects(f"settings={json.dumps(wanted)}", 'apiKeys.existingSecret="keys"')
    secrets = [entry["valueFrom"] for entry in service_container(objects)["env"] if entry["name"] == "LONGDOC_API_KEYS"]
    assert secrets == [{"secretKeyRef": {"name": "keys", "key": "api-keys"}}]
    found = variables(objects)
    assert "LONGDOC_LOG_FORMAT" not in found, "null leaves it to the service"
    assert {"LONGDOC_DEVICE", "LONGDOC_DRAIN_DELAY_S"} <= found.keys(), "the defaults of the chart are kept"
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert (settings.deadline_s, settings.skip_bad_exports, settings.device) == (2.5, True, "cpu")
    assert settings.cors_origins == ("https://example.org",)


@pytest.mark.parametrize("secret", ["", "certificate"])
def test_grpc_has_a_port_and_the_files_of_its_secret(helm: Helm, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = helm.objects("grpc.enabled=true", f"grpc.tlsSecret={json.dumps(secret)}")
    for name, value in variables(objects).items():
        monkeypatch.setenv(name, value)
    settings, container = Settings(), service_container(objects)
    assert {"name": "grpc", "containerPort": settings.grpc_port} in container["ports"]
    assert objects["Service"]["spec"]["ports"][1]["targetPort"] == "grpc"
    assert {"protocol": "TCP", "port": "grpc"} in objects["NetworkPolicy"]["spec"]["ingress"][0]["ports"]
    files = (settings.grpc_certificate, settings.grpc_private_key)
    mounts = [one for one in container["volumeMounts"] if one["name"] == "tls"]
    if not secret:
        assert (files, mounts) == ((None, None), [])
        return
    assert [str(file) for file in files] == [f"{mounts[0]['mountPath']}/tls.{part}" for part in ("crt", "key")]
    assert {"name": "tls", "secret": {"secretName": secret}} in pod_of(objects)["volumes"]


@pytest.mark.parametrize("values", [COPIED, MOUNTED], ids=["object storage", "volume"])
def test_exports_are_mounted_where_the_image_has_them(helm: Helm, values: tuple[str, ...]) -> None:
    found = helm.objects(*values)
    (mount,) = [one for one in service_container(found)["volumeMounts"] if one["name"] == "exports"]
    assert mount == {"name": "exports", "mountPath": "/app/exports", "readOnly": True}
    assert "WORKDIR /app\n" in (ROOT / "Dockerfile").read_text()
    assert "exports" in {volume["name"] for volume in pod_of(found)["volumes"]}


def test_network_policy_allows_one_port_and_no_egress(defaults: dict[str, Object]) -> None:
    spec = defaults["NetworkPolicy"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"] == []
    (rule,) = spec["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "http"}]


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        (COPIED, [53, 53, 443]),
        (('settings.otlp_endpoint="http://collector:4318/v1"',), [53, 53, 4318]),
        (('settings.otlp_endpoint="https://collector"',), [53, 53, 443]),
        (('settings.otlp_endpoint="http://collector"',), [53, 53, 80]),
    ],
)
def test_network_policy_allows_what_the_values_need(helm: Helm, values: tuple[str, ...], ports: list[int]) -> None:
    rules = helm.objects(*values)["NetworkPolicy"]["spec"]["egress"]
    assert [port["port"] for rule in rules for port in rule["ports"]] == ports


def test_alerts_and_dashboard_are_those_of_docker(helm: Helm) -> None:
    found = helm.objects(*MONITORED)
    alerts = yaml.safe_load((ROOT / "docker" / "alerts.yml").read_text())
    assert found["PrometheusRule"]["spec"] == alerts
    dashboard = ROOT / "docker" / "grafana" / "dashboards" / "longdoc.json"
    assert found["ConfigMap"]["data"]["longdoc.json"] == dashboard.read_text()


def test_scraped_job_has_the_name_that_alerts_select(helm: Helm) -> None:
    found = helm.objects(*MONITORED)
    job = found["Service"]["metadata"]["labels"][found["ServiceMonitor"]["spec"]["jobLabel"]]
    jobs = re.findall(r'job="([^"]+)"', (ROOT / "docker" / "alerts.yml").read_text())
    assert set(jobs) == {job}


def test_versions_agree(defaults: dict[str, Object]) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    assert service_container(defaults)["image"] == f"longdoc-serve:{__version__}"
    gpu = yaml.safe_load((CHART / "values-gpu.yaml").read_text())
    assert gpu["image"]["tag"] == f"{__version__}-gpu"
    assert Version(chart["kubeVersion"].removeprefix(">=").removesuffix("-0")) == Version("1.30.0")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('autoscaling.type="hpa" autoscaling.targetCPUUtilization=null', "targetCPUUtilization must be set"),
        ("settings.workerz=2", "additional properties 'workerz' not allowed"),
        ("settings.drain_delay_s=-1", "'/settings/drain_delay_s': minimum: got -1, want 0"),
        ("settings.drain_delay_s=null", "missing property 'drain_delay_s'"),
        ('image.tag="latest"', "'/image/tag'"),
        ('resources={"limits":null}', "'/resources': missing property 'limits'"),
        ('exports.source="s3"', "value must be one of 'image', 'volume', 'objectStorage'"),
        ('exports.source="volume"', "exports.volume must be set"),
        ('exports.source="objectStorage"', "exports.objectStorage.path must be set"),
        ("ingress.enabled=true", "ingress.host must be set"),
        ("replica=3", "additional properties 'replica' not allowed"),
    ],
)
def test_wrong_value_is_named(helm: Helm, value: str, said: str) -> None:
    done = helm.template(*value.split())
    assert done.returncode != 0
    assert said in done.stderr
