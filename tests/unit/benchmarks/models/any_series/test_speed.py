"""Requests for the series of a competition."""

from benchmarks.models.any_series.speed import requests_of
from tests.unit.benchmarks.models.any_series.conftest import quarterly


def test_each_frequency_and_horizon_is_one_request() -> None:
    values = [float(value) for value in range(24)]
    series = [quarterly("a", values, 4), quarterly("b", values, 8, "other"), quarterly("c", values[1:], 4)]
    first, second = sorted(requests_of(series), key=lambda body: body["horizon"])
    assert (first["horizon"], first["frequency"]) == (4, "1q")
    assert first["series"] == {"a": values[:-4], "c": values[1:-4]}
    assert (second["horizon"], second["season"]) == (8, 1)
    assert second["series"] == {"b": values[:-8]}
    assert "frequency" not in second
