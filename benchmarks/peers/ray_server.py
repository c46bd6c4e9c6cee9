"""Ray Serve: an HTTP proxy in front of one replica per core, each with its batcher."""

import os
import signal
from collections.abc import Sequence

import ray
from ray import serve
from starlette.requests import Request

from benchmarks.peers.classifier import CORES, MAX_BATCH, PORT, QUEUE, SERVER_DEADLINE_S, Answer, Classifier


@serve.deployment(
    num_replicas=CORES,
    max_ongoing_requests=4 * MAX_BATCH,
    max_queued_requests=-(-QUEUE // CORES),  # of each replica
    backpressure_config={"retry_after_s": 1},
)
class Imdb:
    """The Ray Serve deployment."""

    def __init__(self) -> None:
        self.classifier = Classifier()

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=0.002)  # type: ignore[untyped-decorator]
    async def classify(self, texts: Sequence[str]) -> list[Answer]:
        """Compute a batch."""
        return self.classifier(texts)

    async def __call__(self, request: Request) -> Answer:
        """Answer a request."""
        answer: Answer = await self.classify((await request.json())["text"])
        return answer


if __name__ == "__main__":
    ray.init(
        num_cpus=CORES, include_dashboard=False, object_store_memory=80 * 2**20, _temp_dir=os.environ["PEERS_FOLDER"]
    )
    serve.start(http_options={"host": "127.0.0.1", "port": PORT, "request_timeout_s": SERVER_DEADLINE_S})
    serve.run(Imdb.bind())  # type: ignore[attr-defined]  # added by the decorator
    signal.signal(signal.SIGTERM, lambda *_: None)  # Ray's own handler would exit without draining
    signal.pause()
    serve.shutdown()
    ray.shutdown()
