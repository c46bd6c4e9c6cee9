"""Paths of the paper's encoder, measured on a CPU."""

import json
import sys

import pytest

from benchmarks.models import gpu_paths
from benchmarks.serving.gpu import PATHS


@pytest.mark.parametrize("path", [path for path in PATHS if not path.startswith("torch.compile")])
def test_path_of_the_papers_encoder_is_measured(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    path: str,
) -> None:
    folder = tmp_path_factory.getbasetemp() / "paths"
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(gpu_paths, "ROWS", (1, 2))
    monkeypatch.setattr(gpu_paths, "SECONDS", 0.0)
    arguments = ["gpu_paths", path, "--device", "cpu", "--folder", str(folder), "--length", "128"]
    monkeypatch.setattr(sys, "argv", arguments)
    gpu_paths.main()
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["rows"] for one in found] == [1, 2]
    assert all(one["path"] == path and one["error"] < (1e-2 if "float16" in path else 1e-5) for one in found)
