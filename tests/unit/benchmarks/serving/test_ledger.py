"""Stacks are counted by stage; the report is rendered from made-up data."""

import pytest

from benchmarks.serving import ledger


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
