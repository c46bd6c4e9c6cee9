"""The number of cores that the process may use."""

import os
from pathlib import Path

import pytest

from artifact import cores
from artifact.cores import cpu_count


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simulate eight cores without a container quota."""
    monkeypatch.setattr(cores, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(cores, "MEMBERSHIP", tmp_path / "membership")
    cores.GROUPS.mkdir()
    cores.MEMBERSHIP.write_text("0::/\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("100000 100000\n", 1), ("150000 100000\n", 2), ("50000 100000", 1), ("10000 100000\n", 1),
        ("100001 100000\n", 2), ("1000 1000000\n", 1), ("nonsense\n", 8), ("9900000 100000", 8), ("max 100000\n", 8),
        ("", 8),
    ],
)  # fmt: skip
def test_quota_limits_the_cores(content: str, expected: int) -> None:
    (cores.GROUPS / "cpu.max").write_text(content)
    assert cpu_count() == expected


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({"system.slice/longdoc.service": "10000 100000"}, 1),
        ({"system.slice/longdoc.service": "max 100000", "system.slice": "300000 100000"}, 3),
        ({"system.slice/longdoc.service": "500000 100000", "system.slice": "300000 100000"}, 3),
        ({"system.slice/longdoc.service": "200000 100000", "system.slice": "300000 100000"}, 2),
        ({"system.slice/other.service": "100000 100000"}, 8),
        ({"": "400000 100000"}, 4),
    ],
)
def test_smallest_quota_of_all_parent_groups_applies(quotas: dict[str, str], expected: int) -> None:
    """A systemd service has parent groups; a container may see their names but has only its own files."""
    cores.MEMBERSHIP.write_text("1:name=x:/elsewhere\n0::/system.slice/longdoc.service\n")
    for group, quota in quotas.items():
        (cores.GROUPS / group).mkdir(parents=True, exist_ok=True)
        (cores.GROUPS / group / "cpu.max").write_text(quota)
    assert cpu_count() == expected


V1 = "11:memory:/docker/a1\n4:cpu,cpuacct:/docker/a1\n1:name=systemd:/docker/a1\n"


def put_v1(group: str, quota: str, period: str = "100000\n") -> None:
    """The files of a control group of version 1."""
    folder = cores.GROUPS / "cpu" / group
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.cfs_quota_us").write_text(quota)
    (folder / "cpu.cfs_period_us").write_text(period)


@pytest.mark.parametrize(
    ("quota", "period", "expected"),
    [
        ("100000\n", "100000\n", 1), ("150000\n", "100000\n", 2), ("25000\n", "50000\n", 1),
        ("9900000\n", "100000\n", 8), ("-1\n", "100000\n", 8), ("100000\n", "0\n", 8), ("nonsense\n", "100000\n", 8),
    ],
)  # fmt: skip
@pytest.mark.parametrize("group", ["docker/a1", "docker", "."])
def test_quota_of_version_1_bounds_the_cores(group: str, quota: str, period: str, expected: int) -> None:
    """Of the process's group, of one above it, and of a container, which sees its own group as the root."""
    cores.MEMBERSHIP.write_text(V1)
    put_v1(group, quota, period)
    assert cpu_count() == expected


def test_smallest_quota_of_version_1_counts() -> None:
    cores.MEMBERSHIP.write_text(V1)
    put_v1("docker/a1", "-1\n")
    put_v1("docker", "300000\n")
    put_v1("docker/b2", "100000\n")
    assert cpu_count() == 3


@pytest.mark.parametrize(("of_1", "of_2", "expected"), [("200000\n", "300000 100000", 2), ("-1\n", "300000 100000", 3)])
def test_both_versions_at_once_count(of_1: str, of_2: str, expected: int) -> None:
    """A hybrid system mounts version 2 beside the controllers of version 1."""
    cores.MEMBERSHIP.write_text(f"{V1}0::/docker/a1\n")
    put_v1("docker/a1", of_1)
    (cores.GROUPS / "docker/a1").mkdir(parents=True)
    (cores.GROUPS / "docker/a1/cpu.max").write_text(of_2)
    assert cpu_count() == expected


@pytest.mark.parametrize("membership", ["", "\n", "nonsense\n", "4:cpuset:/docker\n"])
def test_process_without_a_group_for_the_cpu_has_no_quota(membership: str) -> None:
    cores.MEMBERSHIP.write_text(membership)
    put_v1("docker", "100000\n")
    assert cpu_count() == 8


def test_system_without_control_groups_has_no_quota() -> None:
    cores.MEMBERSHIP.unlink()
    assert cpu_count() == 8


def test_without_an_affinity_all_cores_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert cpu_count() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cpu_count() == 1
