from pathlib import Path

import pytest

from artifact import cores
from artifact.cores import cpu_count
from service.settings import Settings


def test_every_setting_is_described() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name


def test_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGDOC_PORT", "1234")
    monkeypatch.setenv("LONGDOC_DRAIN_DELAY_S", "0.5")
    chosen = Settings()
    assert (chosen.port, chosen.drain_delay_s) == (1234, 0.5)


@pytest.mark.parametrize(("content", "expected"), [("100000 100000\n", 1), ("150000 100000\n", 2), ("50000 100000", 1)])
def test_cores_follow_the_quota(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(content)
    monkeypatch.setattr(cores, "CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert cpu_count() == expected


@pytest.mark.parametrize("content", ["max 100000\n", None])
def test_cores_without_a_quota(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "cpu.max").write_text(content)
    monkeypatch.setattr(cores, "CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert cpu_count() == 8
