"""Cores that the process may use."""

import os
from pathlib import Path

import pytest

from artifact import cores
from artifact.cores import cpu_count


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Eight of them, and no quota."""
    monkeypatch.setattr(cores, "CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("100000 100000\n", 1),
        ("150000 100000\n", 2),
        ("50000 100000", 1),
        ("9900000 100000", 8),
        ("max 100000\n", 8),
        ("", 8),
    ],
)
def test_quota_bounds_the_cores(content: str, expected: int) -> None:
    cores.CPU_QUOTA.write_text(content)
    assert cpu_count() == expected


def test_without_a_quota_the_affinity_counts() -> None:
    assert cpu_count() == 8


def test_without_an_affinity_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert cpu_count() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cpu_count() == 1
