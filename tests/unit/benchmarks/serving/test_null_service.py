"""The trivial services that the front-end benchmark measures."""

import httpx
import pytest

from benchmarks.lib.load import closed_loop, post, run
from benchmarks.lib.servers import server


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
