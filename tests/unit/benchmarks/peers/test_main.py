"""The table of measurements of other servers."""

from benchmarks.peers.__main__ import cell, common_rate, share


def test_common_rate_is_found() -> None:
    assert [common_rate([rate, 900.0]) for rate in (130.0, 41.0, 9.0, 0.5)] == [60.0, 20.0, 4.0, 1.0]


def test_median_needs_every_round() -> None:
    server = {"rounds": [{"value": 3.0, "overload": {"late": 0.5}}, {"value": 1.0, "overload": {"late": 0.0}}]}
    assert cell(server, lambda found: found["value"], ".1f") == "2.0"
    assert share(server, "late") == 0.25
    server["rounds"].append({"value": None, "overload": {"late": 0.1}})
    assert cell(server, lambda found: found["value"], ".1f", "killed") == "killed"
