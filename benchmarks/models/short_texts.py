"""`python -m benchmarks.models.short_texts`: whether scores of short texts can be trusted.

Training documents are far longer than a search query or a comment. The shipped classifier reads with `artifact.load`
random test documents, and parts of them of a few consecutive words, which keep the document's label. A part often does
not tell the label: the score of the chosen class should then be moderate. Where scores can be trusted, their mean is
the accuracy.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import artifact
from artifact.exports import read_manifest, version_folder
from artifact.tasks.classification import ClassifierManifest
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from model.config.data import DocumentsConfig
from model.data.documents import load_documents
from model.errors import UserError

WORDS = (1, 2, 4, 8, 16, 32, 64)
WHOLE = "whole documents"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    add_data_dir(parser)
    parser.add_argument("--export", default="exports/imdb-s3", type=Path, help="default: %(default)s")
    parser.add_argument("--documents", type=int, default=2_500, help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Classify whole documents, then parts of them by number of words."""
    manifest = read_manifest(version_folder(args.export))
    if not isinstance(manifest, ClassifierManifest):
        raise UserError(f"{args.export} is no classifier")
    config = DocumentsConfig.model_validate({"name": manifest.training.data})
    data, generator = load_documents(config, args.data_dir), np.random.default_rng(0)
    count = min(args.documents, len(data.test))
    chosen = generator.choice(len(data.test), count, replace=False).tolist()
    documents = [(data.test.texts[i], data.labels[data.test.labels[i]]) for i in chosen]
    classify, rows = artifact.load(args.export, device="cpu").classify, list[Data]()
    for words in (None, *WORDS):
        texts = [(part, label) for text, label in documents if (part := part_of(text, words, generator))]
        if not texts:  # all documents are shorter
            break
        best = [max(classify(text)["scores"], key=lambda found: found["score"]) for text, _ in texts]
        scores = [found["score"] for found in best]
        correct = [found["label"] == label for found, (_, label) in zip(best, texts, strict=True)]
        found = {"accuracy": np.mean(correct), "mean_score": np.mean(scores), "largest_score": max(scores)}
        rows.append({"words": words, "texts": len(texts), **{key: float(value) for key, value in found.items()}})
        yield {"model": f"{manifest.name}/{manifest.version}", "rows": rows}


def part_of(text: bytes, words: int | None, generator: np.random.Generator) -> bytes:
    """A random part of that many consecutive words; the whole text for None, nothing if it has fewer words."""
    if words is None:
        return text
    found = text.split()
    if len(found) < words:
        return b""
    first = int(generator.integers(len(found) - words + 1))
    return b" ".join(found[first : first + words])


def report(record: Record) -> str:
    """Report with one row for each number of words."""
    rows = [
        [
            WHOLE if row["words"] is None else str(row["words"]),
            f"{row['texts']:,}",
            *(f"{100 * row[key]:.1f}" for key in ("accuracy", "mean_score", "largest_score")),
        ]
        for row in record.data["rows"]
    ]
    columns = ["words", "texts", "accuracy, %", "mean score, %", "largest score, %"]
    return (
        f"Test documents of `{record.data['model']}`, and parts of them of consecutive words: accuracy, and the score "
        f"of the chosen class.\n\n{table(columns, rows)}\n"
    )


BENCHMARK = Benchmark.of("Short texts", measure, report, None, options, ("onnxruntime", "numpy"))

if __name__ == "__main__":
    BENCHMARK.main()
