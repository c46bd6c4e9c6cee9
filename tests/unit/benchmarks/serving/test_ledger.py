"""Stacks are counted by stage; the report is rendered from made-up data."""

from pathlib import Path

import pytest

from benchmarks.serving import ledger
from tests.support.records import expect_in_report, made_up


@pytest.mark.parametrize(
    ("frames", "stage"),
    [
        (["run (/x/onnxruntime/capi/session.py:1)", "infer (/x/service/batching/batcher.py:2)"], "ONNX Runtime"),
        (["all (/x/numpy/core.py:1)", "cut (/x/artifact/documents.py:2)", "f (/x/service/routes/a.py:3)"],
         "rows and answers"),
        (["poll (/x/lib/asyncio/base_events.py:1)"], ledger.REST),
    ],
)  # fmt: skip
def test_innermost_known_frame_tells_the_stage(frames: list[str], stage: str) -> None:
    assert ledger.stage_of(frames) == stage


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    stages = {**dict.fromkeys((*ledger.STAGES, ledger.REST), 10.0), "ONNX Runtime": 300.0}
    measured = made_up(
        {"cases": {"256 bytes, 1 connections": {"cpu_us": 390.0, "per_s": 1000.0, "stages_us": stages}}}, model="m"
    )
    expect_in_report(
        ledger.BENCHMARK,
        measured,
        [
            "| ONNX Runtime | 300 |",
            "| **all** | **390** |",
            "| all without ONNX Runtime | 90 |",
            "| requests/s | 1000 |",
        ],
        tmp_path,
    )
