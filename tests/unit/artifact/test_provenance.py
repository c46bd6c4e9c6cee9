import subprocess
from pathlib import Path

import pytest

from artifact import provenance
from artifact.provenance import git_revision


def commit(folder: Path, paths: str) -> str:
    """Create a repository with one commit of these paths and return its revision."""

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    git("add", paths)
    git("commit", "--quiet", "--message", "first")
    return git("rev-parse", "HEAD")[:12]


def test_only_changed_code_makes_a_revision_dirty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("model/train.py", "docs/a.md", "README.md", "benchmarks/results/a.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    revision = commit(tmp_path, ".")
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "model" / "train.py"))
    for name in ("docs/a.md", "README.md", "benchmarks/results/a.json"):
        (tmp_path / name).write_text("after")
    (tmp_path / "new.py").write_text("")
    assert git_revision() == revision
    (tmp_path / "model" / "train.py").write_text("after")
    assert git_revision() == f"{revision}-dirty"


@pytest.mark.parametrize("place", ["/nowhere/train.py", "{checkout}/.venv/lib/train.py"])
def test_revision_outside_a_checkout_is_unknown(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(place.format(checkout=tmp_path))
    if place.startswith("{checkout}"):
        file.parent.mkdir(parents=True)
        file.touch()
        (tmp_path / "tracked").touch()
        commit(tmp_path, "tracked")
    monkeypatch.setattr(provenance, "__file__", str(file))
    assert git_revision() == "unknown"
    monkeypatch.setenv("LONGDOC_REVISION", "0123456789ab")
    assert git_revision() == "0123456789ab"
