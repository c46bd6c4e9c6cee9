"""A start of the service, and the report rendered from made-up data."""

from benchmarks.serving import startup


def test_start_is_measured_with_and_without_compiled_modules() -> None:
    (data,) = startup.measure(startup.BENCHMARK.parse(["--rounds", "1"]))
    assert {"imdb-s3", "scotus", "aan"} <= set(data["models"])
    for (found,) in data["starts"].values():
        assert found["core_seconds"] > 0
        assert found["seconds"] > 0
        assert min(found["mib"]) > 0
