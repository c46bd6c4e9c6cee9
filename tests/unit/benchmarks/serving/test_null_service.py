"""The trivial services that benchmarks measure, and the times of a GPU."""

import httpx
import pytest

from benchmarks.lib.load import closed_loop, post, run
from benchmarks.lib.record import Data
from benchmarks.lib.servers import server
from benchmarks.serving.null_service import gpu_batch_s, gpu_batches_ms

GPU = {
    256: {1: 1.0, 16: 2.0, 64: 4.0},
    4096: {1: 1.0, 16: 4.0, 64: 10.0},
}
"""Milliseconds of a batch by bytes of a row and rows."""


@pytest.mark.parametrize("make", ["ours", "fastapi", "asgi"])
def test_null_service_of_each_framework_answers(make: str) -> None:
    with server(["-m", "benchmarks.serving.null_service", "--make", make]) as target:
        url = f"{target.url}/v1/classify"
        answer = httpx.post(url, json={"inputs": "a text"}, trust_env=False)
        done = run(
            closed_loop(target.url, [post(url, b'{"inputs":"a"}', "application/json")], connections=2, seconds=0.1)
        )
    assert answer.status_code == 200
    assert '"model":"imdb-s3"' in answer.text
    assert set(done.statuses()) <= {200}


def record_of(on: str) -> Data:
    """Return the data of a record of a GPU, in which another model is slower."""
    batches = [
        {"on": on, "bucket": bucket, "rows": rows, "ms": ms} for bucket, of in GPU.items() for rows, ms in of.items()
    ]
    return {
        "models": [
            {"model": "imdb-s3@2", "batches": [{**batches[0], "on": "onnx, cpu", "ms": 90.0}, *batches]},
            {"model": "other@1", "batches": [{**one, "ms": 99.0} for one in batches]},
        ]
    }


@pytest.mark.parametrize(
    ("rows", "length", "ms"),
    [
        (1, 256, 1.0),
        (3, 256, 1.2),  # padded to 4
        (5, 256, 2.0),  # padded to 16
        (64, 256, 4.0),
        (65, 256, 6.0 + 2 / 3),  # padded to 128
        (17, 4096, 6.0),  # padded to 32: more than 16 rows of this length are not recorded
        (16, 2176, 3.0),  # between both lengths
    ],
)
def test_batch_takes_as_long_as_on_a_gpu(rows: int, length: int, ms: float) -> None:
    assert gpu_batch_s(GPU, rows, length) == pytest.approx(ms / 1e3)


def test_times_are_those_of_the_classifier_on_the_gpu_of_a_record() -> None:
    assert gpu_batches_ms(record_of("onnx, cuda")) == GPU


def test_record_without_a_gpu_is_an_error() -> None:
    with pytest.raises(ValueError, match="the record gpu has no batch of imdb-s3 on 'onnx, cuda'"):
        gpu_batches_ms(record_of("onnx, cpu"))
