"""The configuration of the Compose profile `scaled`, for servers of this machine."""

from pathlib import Path

import pytest

from benchmarks.lib import haproxy


def test_addresses_of_compose_are_replaced() -> None:
    text = haproxy.configuration(7, ["127.0.0.1:8", "127.0.0.1:9"])
    assert "bind 127.0.0.1:7\n" in text
    servers = ["    server r0 127.0.0.1:8", "    server r1 127.0.0.1:9"]
    assert [line for line in text.splitlines() if line.startswith("    server ")] == 3 * servers
    assert "docker" not in text
    assert "replica:8000" not in text


def test_other_configuration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.cfg"
    other.write_text(haproxy.FILE.read_text().replace("server-template", "server"))
    monkeypatch.setattr(haproxy, "FILE", other)
    with pytest.raises(ValueError, match="expected one bind"):
        haproxy.configuration(7, [])
