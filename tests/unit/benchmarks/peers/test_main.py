"""The table of measurements of other servers."""

import pytest

from benchmarks.peers.__main__ import BENCHMARK, common_rate


def test_common_rate_is_found() -> None:
    assert [common_rate([rate, 900.0]) for rate in (130.0, 41.0, 9.0, 0.5)] == [60.0, 20.0, 4.0, 1.0]


def test_unknown_peer_is_named_in_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert BENCHMARK.parse(["--peers", "ours,ray"]).peers == ["ours", "ray"]
    with pytest.raises(SystemExit):
        BENCHMARK.parse(["--peers", "ours,theirs"])
    assert "no theirs; there are: ours, fastapi" in capsys.readouterr().err
