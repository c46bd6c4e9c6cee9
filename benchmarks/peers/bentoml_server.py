"""BentoML: one worker process per core, each with its adaptive batcher."""

import bentoml

from benchmarks.peers.classifier import CORES, MAX_BATCH, QUEUE, SERVER_DEADLINE_S, Answer, Classifier


@bentoml.service(
    workers=CORES,
    traffic={"max_concurrency": QUEUE, "timeout": SERVER_DEADLINE_S},
    logging={"access": {"enabled": False}},
)
class Imdb:
    """The BentoML service."""

    def __init__(self) -> None:
        self.classifier = Classifier()

    @bentoml.api(batchable=True, max_batch_size=MAX_BATCH, max_latency_ms=int(1000 * SERVER_DEADLINE_S))  # type: ignore[untyped-decorator]
    def classify(self, texts: list[str]) -> list[Answer]:
        """Compute a batch."""
        return self.classifier(texts)
