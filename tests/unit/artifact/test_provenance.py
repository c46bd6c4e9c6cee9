import subprocess
from pathlib import Path

import pytest

from artifact import provenance
from artifact.provenance import git_revision


def test_revision_is_dirty_by_code_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    for name in ("model/train.py", "docs/a.md", "README.md", "benchmarks/results/a.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    revision = git("rev-parse", "HEAD")[:12]
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "model" / "train.py"))
    for name in ("docs/a.md", "README.md", "benchmarks/results/a.json"):
        (tmp_path / name).write_text("after")
    (tmp_path / "new.py").write_text("")
    assert git_revision() == revision
    (tmp_path / "model" / "train.py").write_text("after")
    assert git_revision() == f"{revision}-dirty"
    monkeypatch.setattr(provenance, "__file__", "/nowhere/train.py")
    assert git_revision() == "unknown"
