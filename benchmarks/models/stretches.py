"""`python -m benchmarks.models.stretches [MODEL...]`: whether the stretches with the largest contributions decide.

From each test document, the three stretches with the largest contributions to its label are removed, and three random
ones instead. The measured value is how much the score of that label drops. MODEL is an export of a classifier that
returns contributions (default: `exports/imdb-s3`). A result replaces the recorded one of the same documents; others are
kept.
"""

import argparse
import random
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from artifact.loading import load_export
from artifact.local import Model
from artifact.manifest import ClassifierManifest, version_folder
from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from model.config.run import ClassificationRun
from model.config.stored import from_stored
from model.data.documents import load_test

NAME = "stretches"
DOCUMENTS = 200
MIN_STRETCHES = 8
"""Shorter documents are left out: three stretches would be too large a part of them."""
REMOVED = 3
"""Stretches removed from a document."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", default=[Path("exports/imdb-s3")])
    parser.add_argument("--documents", metavar="NAME", help="data set (default: that of the model's recipe)")
    add_data_dir(parser)


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure each model."""
    sets: dict[str, Data] = {found["documents"]: found for found in earlier(NAME, args.out).get("sets", [])}
    for folder in args.models:
        found = measure_model(folder, args.documents, args.data_dir)
        sets[found["documents"]] = found
        yield {"sets": list(sets.values())}


def measure_model(folder: Path, documents: str | None, data_dir: Path) -> Data:
    """Drops of the scores of one model. Raises: ValueError without contributions or documents of that length."""
    model = Model(load_export(version_folder(folder), device="cpu"))
    manifest = model.manifest
    if not isinstance(manifest, ClassifierManifest) or manifest.stretches is None:
        raise ValueError(f"{folder} returns no contributions; export a classifier of words again")
    recipe = from_stored(manifest.training.recipe)
    assert isinstance(recipe, ClassificationRun)
    config = recipe.data.model_copy(update={"name": documents or recipe.data.name})
    shortest = (MIN_STRETCHES - 1) * manifest.stretches.length + 1
    texts = load_test(config, data_dir, list(manifest.labels)).texts
    fitting = [text for text in texts if shortest <= len(text) <= manifest.max_length]
    if len(fitting) < 2:
        raise ValueError(f"{config.name} has {len(fitting)} documents of {shortest} to {manifest.max_length} bytes")
    generator = random.Random(0)
    chosen = generator.sample(fitting, min(DOCUMENTS, len(fitting)))
    largest, others = drops(model, chosen, generator)
    return {
        "documents": config.name,
        "model": f"{manifest.name}/{manifest.version}",
        "revision": git_revision(),
        "largest": largest,
        "random": others,
    }


def drops(model: Model, texts: Sequence[bytes], generator: random.Random) -> tuple[list[float], list[float]]:
    """Drops of the score of each document's label without the largest stretches, and without random ones."""
    before = model.classify(texts, detail=True)
    ranked = [by_contribution(answer) for answer in before]
    kinds = [
        [stretches[:REMOVED] for stretches in ranked],
        [generator.sample(stretches, REMOVED) for stretches in ranked],
    ]
    largest, others = (
        [
            round(answer["score"] - score_of(after, answer["label"]), 6)
            for answer, after in zip(
                before, model.classify([without(*pair) for pair in zip(texts, removed, strict=True)]), strict=True
            )
        ]
        for removed in kinds
    )
    return largest, others


def by_contribution(answer: dict[str, Any]) -> list[tuple[int, int]]:
    """Start and end of each stretch, the one with the largest contribution to the answer's label first."""
    label = answer["label"]
    ranked = sorted(answer["stretches"], key=lambda stretch: -stretch["contributions"][label])
    return [(stretch["start"], stretch["end"]) for stretch in ranked]


def without(text: bytes, stretches: Sequence[tuple[int, int]]) -> bytes:
    """Remove stretches, which do not overlap, from a document."""
    kept, begin = list[bytes](), 0
    for start, end in sorted(stretches):
        kept.append(text[begin:start])
        begin = end
    return b"".join((*kept, text[begin:]))


def score_of(answer: dict[str, Any], label: str) -> float:
    """Score of one label."""
    return float(next(score["score"] for score in answer["scores"] if score["label"] == label))


def report(record: Record) -> str:
    """Report with one row per data set."""
    rows = []
    for found in record.data["sets"]:
        differences = [a - b for a, b in zip(found["largest"], found["random"], strict=True)]
        values = (found["largest"], found["random"], differences)
        rows.append([found["documents"], str(len(differences)), *map(mean_and_error, values)])
    models = ", ".join(f"`{found['model']}` at {found['revision']}" for found in record.data["sets"])
    return (
        f"Mean drop of the score of the label, ± standard error, after {REMOVED} stretches were removed: those with "
        "the largest contributions to the label, or random ones. Random test documents that the model reads in one "
        f"pass, of at least {MIN_STRETCHES} stretches.\n\n"
        f"{table(['documents', 'number', 'largest', 'random', 'difference'], rows)}\nMeasured: {models}.\n"
    )


def mean_and_error(values: Sequence[float]) -> str:
    """Mean ± standard error of at least two values."""
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values) / len(values) ** 0.5:.3f}"


BENCHMARK = Benchmark(
    program="benchmarks.models.stretches",
    title="Stretches that decide",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=("onnxruntime", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
