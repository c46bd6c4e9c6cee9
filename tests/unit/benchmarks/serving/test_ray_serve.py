"""The report, rendered from made-up data."""

from pathlib import Path

from benchmarks.serving import ray_serve
from tests.support.records import expect_in_report, made_up


def turns(*values: float) -> list[dict[str, object]]:
    """Return rounds whose throughput and latencies follow from a value."""
    return [
        {
            "processes": 7,
            "throughput": 10 * value,
            "latency_ms": [value] * 101,
            "latency_of_one_ms": [value / 2] * 50 + [value] * 51,
        }
        for value in values
    ]


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    measured = made_up(
        {
            "rounds": {ray_serve.PLAIN: turns(10, 20, 30), "Ray Serve": turns(5, 10, 30)},
            "server_cores": [0],
            "load_cores": [1, 2],
            "servers": {"ray": "2.60.0"},
        },
        connections=32,
        rounds=3,
        seconds=4.0,
    )
    expect_in_report(
        ray_serve.BENCHMARK,
        measured,
        [
            "are on core 0, the load is on core 1, 2.",
            "| Ray Serve | 100 (50 to 300) | 0.50 | 10.0 (5.0 to 30.0) |",
            "| Ray Serve | -5.0 | -5.0 |",
            "ray 2.60.0",
        ],
        tmp_path,
    )
