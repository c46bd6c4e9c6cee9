"""The report, rendered from made-up data, and what a restarted benchmark measures."""

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib import record
from benchmarks.papers import attention_speed, attention_speed_gpu


def test_restarted_benchmark_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = list[tuple[int, bool]]()

    def speed(rows: list[str], length: int, batch: int, rounds: int, *, trains: bool) -> dict[str, float]:
        assert (rows, batch, rounds) == (["s3"], 32, 1)
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append((length, trains))
        return {"s3": 0.5}

    def added_memory(*arguments: Any) -> int:
        assert arguments == ("s3", 1024, 32)
        return 2**20

    monkeypatch.setattr(attention_speed, "speed", speed)
    monkeypatch.setattr(attention_speed, "added_memory_of", added_memory)
    benchmark = attention_speed_gpu.BENCHMARK
    sizes = ["--training", "1024", "--inference", "1024", "4096"]
    words = ["--rows", "s3", *sizes, "--rounds", "1", "--out", str(tmp_path)]
    assert benchmark.missing is not None
    with pytest.raises(KeyboardInterrupt):
        benchmark.main(words)
    assert measured == [(1024, True), (1024, False)]
    assert benchmark.missing(benchmark.parse(words)) == ["inference_s 4096", "memory_bytes 1024"]
    measured.clear()
    benchmark.main(words)
    assert measured == [(4096, False)]
    assert benchmark.missing(benchmark.parse(words)) == []
    data = record.read("attention_speed_gpu", tmp_path).data
    assert data["inference_s"] == {"1024": {"s3": 0.5}, "4096": {"s3": 0.5}}
    report = re.sub(" +", " ", (tmp_path / "attention_speed_gpu" / "report.md").read_text())
    assert "| s3 | 1 (1.00) |\n" in report
    assert "dba" not in report
    changed = benchmark.parse([*words, "--batch", "16"])
    assert len(benchmark.missing(changed)) == 4  # other settings: nothing of the record counts
