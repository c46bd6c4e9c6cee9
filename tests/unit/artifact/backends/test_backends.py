"""Backends by format, and the runtimes they need."""

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from artifact import backends
from artifact.backends import create_backend, require_one_runtime
from artifact.errors import BadExport
from artifact.exports import read_manifest, version_folder
from tests.support.models import classifier
from tests.support.paths import EXPORTS


def install(patch: pytest.MonkeyPatch, *packages: str) -> None:
    """Pretend that only these packages are installed."""

    def version(name: str) -> str:
        if name not in packages:
            raise PackageNotFoundError(name)
        return "1"

    patch.setattr(backends, "version", version)


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnxruntime-gpu"])
def test_one_runtime_is_enough(monkeypatch: pytest.MonkeyPatch, runtime: str) -> None:
    install(monkeypatch, runtime)
    require_one_runtime()


@pytest.mark.parametrize(
    ("packages", "message"),
    [
        ([], r"pip install '\.\[cpu\]'"),
        (["onnxruntime", "onnxruntime-gpu"], "exclude each other"),
    ],
)
def test_no_runtime_or_both_are_rejected(monkeypatch: pytest.MonkeyPatch, packages: list[str], message: str) -> None:
    install(monkeypatch, *packages)
    with pytest.raises(BadExport, match=message) as caught:
        require_one_runtime()
    assert caught.value.reason == "backend"


@pytest.mark.parametrize(
    ("format", "module", "message"),
    [
        ("onnx", "onnxruntime", "backend onnx: onnxruntime is not installed"),
        ("torchscript", "torch", "backend torchscript: torch is not installed"),
    ],
)
def test_missing_runtime_is_named(monkeypatch: pytest.MonkeyPatch, format: str, module: str, message: str) -> None:
    name = "onnx" if format == "onnx" else "torchscript"
    monkeypatch.delitem(sys.modules, f"artifact.backends.{name}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    folder = version_folder(EXPORTS / "ettm2")
    with pytest.raises(BadExport, match=message):
        create_backend(read_manifest(folder), folder, format=format)  # type: ignore[arg-type]  # one of two literals


def test_missing_format_is_rejected() -> None:
    with pytest.raises(BadExport, match="the export holds no torchscript file"):
        create_backend(classifier().manifest, Path("none"), format="torchscript")
