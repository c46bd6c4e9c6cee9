"""The benchmark of the host side of a GPU: one measurement, and the report."""

from pathlib import Path

import pytest

from benchmarks.lib.record import Data
from benchmarks.lib.servers import server
from benchmarks.serving import host_side
from tests.support.records import expect_in_report, made_up

ROUND: Data = {
    "documents_per_s": 1000.0,
    "processor_us": 400.0,
    "p50_ms": 10.0,
    "p99_ms": 20.0,
    "batch_rows": 12.5,
    "server_share": 0.4,
    "load_share": 0.5,
}


@pytest.mark.parametrize("way", host_side.WAYS, ids=lambda way: way.name)
def test_request_has_the_documents_of_its_way(way: host_side.Way) -> None:
    assert host_side.body(way, 63).count(b"The film was long") == way.documents


def test_measurement_of_a_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_side, "WARM_UP_S", 0.0)
    way = host_side.Way("2, JSON", "application/json", 2, 2)
    with server(["-m", "benchmarks.serving.null_service", "--gpu"]) as target:
        found = host_side.measure_case(target, 256, way, 0.1)
        batches, rows = host_side.batches_of(target)
    assert found.keys() == ROUND.keys()
    assert all(
        value > 0 for name, value in found.items() if name not in ("processor_us", "server_share")
    )  # 10 ms ticks
    assert 2 <= found["batch_rows"] <= 4
    assert found["batch_rows"] == rows / batches


def test_report_names_the_rows_in_which_the_load_was_busy(tmp_path: Path) -> None:
    cases: list[Data] = [
        {"bytes": 256, **host_side.WAYS[0]._asdict(), "rounds": [ROUND, {**ROUND, "documents_per_s": 1200.0}]},
        {"bytes": 4096, **host_side.WAYS[1]._asdict(), "rounds": [{**ROUND, "load_share": 0.95}]},
    ]
    data = {"gpu": "a card", "gpu_batches_ms": {"4096": {"1": 1.0, "16": 2.0}}, "cases": cases}
    expected = [
        "as long as the GPU, a card, takes",
        "| 256 | 1, JSON | 1100 (1000 to 1200) | 400 | 2500 | 10.0 | 20.0 | 12.5 | 0.40 | 0.50 |",
        "| bytes | 1 | 16 |\n| ----- | ---: | ---: |\n| 4,096 | 1000 | 8000 |",
        "answer more.\n\n- 4,096 bytes, 1, bytes\n\n- measured on",
    ]
    expect_in_report(host_side.BENCHMARK, made_up(data, seconds=5.0, rounds=2), expected, tmp_path)
