"""What every peer serves, and how it is set up; imported in the peers' own environments.

The model is computed by the service's own backend and preprocessing, so that nothing differs but the server around it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from typing_extensions import TypedDict  # pydantic, which FastAPI and BentoML ask, takes no other before Python 3.12

from artifact.backends import create_backend
from artifact.documents import combine, cut, pad_rows, take
from artifact.manifest import ClassifierManifest, newest_version, read_manifest

MODEL = "imdb-s3"
PORT = int(os.environ.get("PEERS_PORT", "8000"))
CORES = int(os.environ.get("PEERS_CORES", "1"))
"""Workers that compute, each on one thread."""
QUEUE = int(os.environ.get("PEERS_QUEUE", "256"))
"""Requests that may be in the server, where it has such a bound."""
SERVER_DEADLINE_S = 0.8
"""Of a request in the server, where it has such a setting; its client has a little more patience."""
MAX_BATCH = 16
"""What the service takes at most on a CPU, for documents of the longest length."""


class Answer(TypedDict):
    """Of one document."""

    label: str
    score: float


class Classifier:
    """Documents -> labels, one thread."""

    def __init__(self) -> None:
        folder = newest_version(Path("exports") / MODEL)
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
            scores = combine(logits[own])
            best = int(np.argmax(scores))
            answers.append({"label": self._manifest.labels[best], "score": float(scores[best])})
        return answers
