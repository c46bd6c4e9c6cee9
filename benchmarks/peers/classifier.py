"""The classifier that every peer serves, and common settings; imported in the peers' environments.

It uses the service's own backend and preprocessing, so that only the servers differ.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from typing_extensions import TypedDict  # before Python 3.12, pydantic (FastAPI, BentoML) requires this one

from artifact.backends import create_backend
from artifact.documents import combine, cut, pad_rows, take
from artifact.exports import read_manifest, version_folder
from artifact.tasks.classification import ClassifierManifest

MODEL = "imdb-s3"
PORT = int(os.environ.get("PEERS_PORT", "8000"))
CORES = int(os.environ.get("PEERS_CORES", "1"))
"""Number of computing workers, each with one thread."""
QUEUE = int(os.environ.get("PEERS_QUEUE", "256"))
"""Maximum number of queued requests, for servers with such a setting."""
SERVER_DEADLINE_S = 0.8
"""Timeout in seconds, for servers with such a setting; slightly below that of the clients."""
MAX_BATCH = 16
"""Maximum batch size, as in the service on a CPU for the longest documents."""


class Answer(TypedDict):
    """Answer for one document."""

    label: str
    score: float


class Classifier:
    """Single-threaded classifier: documents -> labels."""

    def __init__(self) -> None:
        folder = version_folder(Path("exports") / MODEL)
        manifest = read_manifest(folder)
        assert isinstance(manifest, ClassifierManifest)
        self._manifest = manifest
        self._backend = create_backend(manifest, folder, device="cpu")
        self._buckets = sorted(manifest.files_of("onnx"))
        self([" " * bucket for bucket in self._buckets])

    def __call__(self, texts: Sequence[str]) -> list[Answer]:
        """Classify documents as one batch, padded to the shortest bucket that holds all of them."""
        rows, of_document = list[bytes](), list[slice]()
        for document in (text.encode() for text in texts):
            plan = cut(len(document), self._manifest.max_length, self._manifest.window_overlap, "windows")
            of_document.append(slice(len(rows), len(rows) + len(plan)))
            rows += [take(document, spans) for spans in plan]
        bucket = next(bucket for bucket in self._buckets if bucket >= max(map(len, rows)))
        padded, lengths = pad_rows(rows, bucket)
        logits = self._backend.run({"bytes": padded, "lengths": lengths})["logits"]
        answers = list[Answer]()
        for own in of_document:
            scores = combine(list(logits[own]))
            best = int(np.argmax(scores))
            answers.append({"label": self._manifest.labels[best], "score": scores[best]})
        return answers
