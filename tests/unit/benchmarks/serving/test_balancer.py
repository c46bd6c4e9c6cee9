"""The configuration that HAProxy gets, and the report, rendered from made-up data."""

from pathlib import Path

import pytest

from benchmarks.serving import balancer
from tests.support.records import expect_in_report, made_up


def test_configuration_is_the_shipped_one_with_other_addresses() -> None:
    lines = balancer.configuration(8123, ["127.0.0.1:1", "127.0.0.1:2"]).splitlines()
    shipped = balancer.CONFIGURATION.read_text().splitlines()
    assert "    bind 127.0.0.1:8123" in lines
    assert lines[-2:] == ["    server r0 127.0.0.1:1", "    server r1 127.0.0.1:2"]
    assert set(lines) - set(shipped) == {"    bind 127.0.0.1:8123", *lines[-3:]}
    assert lines[-3] == "    default-server check inter 1s fall 1 rise 1"


def test_changed_configuration_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "haproxy.cfg"
    path.write_text("frontend http\n    bind :80\n")
    monkeypatch.setattr(balancer, "CONFIGURATION", path)
    with pytest.raises(ValueError, match="expected one bind, one server and one server-template"):
        balancer.configuration(8123, [])


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    kills = {"sent": 2057, "failed: 502": 2, "failed: ReadError": 3, "failed: 503": 0, "lost": 1}
    measured = made_up(
        {"haproxy": "3.2", "cases": {"restarts": {"sent": 10, "failed: 200": 0, "lost": 0}, "kills": kills}},
        times=5,
        clients=8,
    )
    wanted = ["| restarts | 10 | 0 | none | 0 |", "| kills | 2,057 | 5 | 2 x 502, 3 x ReadError | 1 |"]
    expect_in_report(balancer.BENCHMARK, measured, wanted, tmp_path)
