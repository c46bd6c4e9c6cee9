"""Compute answers without the service, one row at a time."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifact.backends.onnx import OnnxBackend
from artifact.documents import combine, cut, pad_rows, pool, sigmoid, take
from artifact.exports import read_manifest
from artifact.manifest import Graph
from artifact.series import Column, Tails, read_window
from artifact.tasks.classification import ClassifierManifest
from artifact.tasks.forecasting import ForecasterManifest
from artifact.tasks.matching import MatcherManifest

Columns = list[list[float | None]]


def backend(graph: Graph, folder: Path) -> OnnxBackend:
    files = {bucket: folder / file.path for bucket, file in graph.files_of("onnx").items()}
    return OnnxBackend(files, graph)


def rows_of(manifest: ClassifierManifest | MatcherManifest, document: bytes, on_overflow: str) -> list[bytes]:
    spans = cut(len(document), manifest.max_length, manifest.window_overlap, on_overflow)  # type: ignore[arg-type]
    return [take(document, s) for s in spans]


class Offline:
    """The repository's classifier."""

    def __init__(self, folder: Path) -> None:
        manifest = read_manifest(folder)
        assert isinstance(manifest, ClassifierManifest)
        self.backend = backend(manifest, folder)
        self.manifest = manifest

    def __call__(self, document: bytes, on_overflow: str = "windows") -> dict[str, float]:
        logits = [outputs["logits"][0] for outputs in self.outputs(document, on_overflow)]
        return dict(zip(self.manifest.labels, combine(logits), strict=True))

    def known(self, document: bytes, on_overflow: str = "windows") -> float | None:
        """Share of the words that the model knows; None if it does not count words."""
        if not self.manifest.counts_words:
            return None
        counts = [outputs["known"][0] for outputs in self.outputs(document, on_overflow)]
        known, words = np.sum(counts, axis=0).tolist()
        return float(known / words) if words else 0.0

    def outputs(self, document: bytes, on_overflow: str) -> list[dict[str, np.ndarray]]:
        """Outputs of the graph for each row."""
        found = []
        for row in rows_of(self.manifest, document, on_overflow):
            padded, lengths = pad_rows([row], self.manifest.max_length)
            found.append(self.backend.run({"bytes": padded, "lengths": lengths}))
        return found


class OfflineMatcher:
    """The repository's matcher."""

    def __init__(self, folder: Path) -> None:
        manifest = read_manifest(folder)
        assert isinstance(manifest, MatcherManifest)
        self.encoder, self.head = backend(manifest, folder), backend(manifest.head, folder)
        self.manifest = manifest

    def vector(self, document: bytes, on_overflow: str) -> np.ndarray:
        return self.encoding(document, on_overflow)[: self.manifest.dim]

    def encoding(self, document: bytes, on_overflow: str) -> np.ndarray:
        encodings = []
        for row in rows_of(self.manifest, document, on_overflow):
            padded, lengths = pad_rows([row], self.manifest.max_length)
            encodings.append(self.encoder.run({"bytes": padded, "lengths": lengths})["vectors"][0])
        return pool(np.stack(encodings), self.manifest.num_words)

    def __call__(self, a: str, b: str, on_overflow: str = "windows") -> float:
        encodings = {name: self.encoding(text.encode(), on_overflow)[None] for name, text in (("a", a), ("b", b))}
        return float(sigmoid(self.head.run(encodings)["logits"])[0, 0])


class OfflineForecaster:
    """The repository's forecaster."""

    def __init__(self, folder: Path) -> None:
        manifest = read_manifest(folder)
        assert isinstance(manifest, ForecasterManifest)
        self.backend = backend(manifest, folder)
        self.manifest = manifest
        with np.load(folder / manifest.calibration.path) as arrays:
            self.levels, self.errors = arrays["levels"], arrays["errors"]

    def scaled(self, columns: Sequence[Column]) -> np.ndarray:
        """Forecast (horizon, channels), not in the units of the data."""
        m = self.manifest
        window = read_window(
            Tails.of(columns, m.context_length),
            m.channels,
            context_length=m.context_length,
            min_observations=1,
            mean=m.mean,
            scale=m.scale,
        )
        forecast: np.ndarray = self.backend.run({"series": window.values[None]})["forecast"][0]
        return forecast

    def __call__(self, columns: Sequence[Column], index: int | None = None) -> list[list[float]]:
        """One list a channel: the forecast, or its quantile of the level stored at an index."""
        scaled = self.scaled(columns) + (0 if index is None else self.errors[index])
        values = scaled * np.array(self.manifest.scale) + np.array(self.manifest.mean)
        return [list(column) for column in values.T.tolist()]

    def agree(self, forecast: Sequence[Sequence[float]], expected: Sequence[Sequence[float]]) -> bool:
        """Whether two forecasts differ by less than 1e-4 deviations of the training data."""
        if [len(column) for column in forecast] != [len(column) for column in expected]:
            return False
        distance = (np.array(forecast) - np.array(expected)) / np.array(self.manifest.scale)[:, None]
        return float(np.abs(distance).max()) < 1e-4

    def series(self, length: int, seed: int = 0) -> Columns:
        """Waves around the mean of the training data, one list a channel."""
        m = self.manifest
        generator = np.random.default_rng(seed)
        steps = np.arange(length)[:, None] / generator.uniform(5, 50, len(m.channels))
        waves = np.sin(steps + generator.uniform(0, 6, len(m.channels)))
        values = np.array(m.mean) + np.array(m.scale) * (waves + 0.1 * generator.standard_normal(waves.shape))
        return [list(column) for column in values.T.round(4).tolist()]


def scores_of(result: dict[str, Any]) -> dict[str, float]:
    return {s["label"]: s["score"] for s in result["scores"]}


def agree(result: dict[str, Any], expected: dict[str, float]) -> bool:
    return scores_of(result) == pytest.approx(expected, abs=1e-5)


def same_score(score: float, expected: float) -> bool:
    """Whether two probabilities agree, also where they are all but 0 or 1: there, in their logits."""
    logits = [math.log(p / (1 - p)) for p in (min(max(p, 1e-9), 1 - 1e-9) for p in (score, expected))]
    return score == pytest.approx(expected, abs=1e-5) and logits[0] == pytest.approx(logits[1], rel=1e-3, abs=1e-3)


def document(length: int) -> bytes:
    text = b"The film was long, and I liked most of it; the rest was noise. "
    return (text * (1 + length // len(text)))[:length]


def documents(count: int, longest: int) -> list[bytes]:
    """Different texts of different lengths."""
    generator = random.Random(7)
    texts = []
    for _ in range(count):
        start = generator.randrange(60)
        texts.append(document(longest + 64)[start : start + generator.randint(1, longest)])
    return texts
