"""LitServe: HTTP processes in front of one inference process per core, which batches waiting requests."""

from collections.abc import Sequence

import litserve

from benchmarks.peers.classifier import CORES, MAX_BATCH, PORT, SERVER_DEADLINE_S, Answer, Classifier


class Api(litserve.LitAPI):  # type: ignore[misc]  # not installed where types are checked
    """The four LitAPI hooks."""

    def setup(self, device: str) -> None:
        """Load the model in an inference process."""
        del device
        self.classifier = Classifier()

    def decode_request(self, request: dict[str, str]) -> str:
        """Request body -> document."""
        return request["text"]

    def predict(self, texts: Sequence[str]) -> list[Answer]:
        """Compute a batch."""
        return self.classifier(texts)

    def encode_response(self, answer: Answer) -> Answer:
        """Answer -> response body."""
        return answer


if __name__ == "__main__":
    server = litserve.LitServer(
        Api(max_batch_size=MAX_BATCH, batch_timeout=0.002),
        accelerator="cpu",
        devices=1,
        workers_per_device=CORES,
        timeout=SERVER_DEADLINE_S,
    )
    server.run(host="127.0.0.1", port=PORT, log_level="warning", generate_client_file=False)
