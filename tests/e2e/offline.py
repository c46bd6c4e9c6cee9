"""Answers computed without the service: one row at a time."""

from pathlib import Path

import numpy as np
import pytest

from service.backends.onnx import OnnxBackend
from service.codec import combine, cut, pad_rows, take
from service.manifest import read_manifest


class Offline:
    """The repository's classifier."""

    def __init__(self, folder: Path) -> None:
        manifest = read_manifest(folder)
        files = {bucket: folder / file.path for bucket, file in manifest.files_of("onnx").items()}
        self.backend = OnnxBackend(files, manifest, device="cpu", threads=1)
        self.manifest = manifest

    def __call__(self, document: bytes, on_overflow: str = "windows") -> dict[str, float]:
        m = self.manifest
        rows = [take(document, s) for s in cut(len(document), m.max_length, m.window_overlap, on_overflow)]  # type: ignore[arg-type]
        logits = []
        for row in rows:
            padded, lengths = pad_rows([row], m.max_length)
            logits.append(self.backend.run({"bytes": padded, "lengths": lengths})["logits"][0])
        return dict(zip(m.labels, combine(np.stack(logits)).tolist(), strict=True))


def scores_of(result: dict[str, object]) -> dict[str, float]:
    return {s["label"]: s["score"] for s in result["scores"]}  # type: ignore[index, attr-defined]


def agree(result: dict[str, object], expected: dict[str, float]) -> bool:
    return scores_of(result) == pytest.approx(expected, abs=1e-5)


def document(length: int) -> bytes:
    text = b"The film was long, and I liked most of it; the rest was noise. "
    return (text * (1 + length // len(text)))[:length]
