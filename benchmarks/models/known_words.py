"""`python -m benchmarks.models.known_words`: what share of the words of documents the shipped classifiers know.

Each classifier of words reads with `artifact.load` random test documents of its own data, those of the other data sets,
and texts that are none: its own documents with other letters (ROT13, as another language has) or in another encoding
(EBCDIC), and noise.
"""

import argparse
import codecs
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import artifact
from artifact.errors import InvalidInput
from artifact.exports import read_manifest, version_folder
from artifact.tasks.classification import ClassifierManifest
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from model.config.data import DocumentsConfig
from model.data.documents import load_documents
from model.errors import UserError

MODELS = ("imdb-s3", "scotus", "un-debate")
SETS = ("imdb", "20newsgroups", "scotus", "un-debate")
OWN = "own test documents"
NOISE_BYTES = 2_000
"""Length of a text of noise."""
QUANTILES = (0.01, 0.5, 0.99)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    add_data_dir(parser)
    parser.add_argument("--exports", default="exports", type=Path, help="default: %(default)s")
    parser.add_argument("--models", nargs="+", default=MODELS, help="names of exports")
    parser.add_argument("--sets", nargs="+", default=SETS, help="data sets")
    parser.add_argument("--documents", type=int, default=200, help="of each kind (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Read every kind of text with every model."""
    generator, models = np.random.default_rng(0), list[Data]()
    texts = {name: sample(_test_documents(name, args.data_dir), args.documents, generator) for name in args.sets}
    for name in args.models:
        manifest = read_manifest(version_folder(args.exports / name))
        if not isinstance(manifest, ClassifierManifest) or manifest.known is None:
            raise UserError(f"{name} {manifest.version} does not count words; export it again")
        classify = artifact.load(args.exports / name, device="cpu").classify
        shares = {}
        for kind, documents in kinds(texts, manifest.training.data, generator).items():
            found = []
            for document in documents:
                try:
                    found.append(classify(document)["coverage"]["known"])
                except InvalidInput:  # bytes that look like UTF-16
                    continue
            shares[kind] = found
        models.append({"model": f"{name}/{manifest.version}", "low": manifest.known.low, "shares": shares})
        yield {"models": models}


def kinds(texts: Mapping[str, Sequence[bytes]], own: str, generator: np.random.Generator) -> dict[str, Sequence[bytes]]:
    """Kind of text -> documents, for a model whose own data set is `own`."""
    documents, count = texts[own], len(texts[own])
    words = [generator.integers(ord("a"), ord("z") + 1, (NOISE_BYTES // 6, 6), np.uint8) for _ in range(count)]
    return {
        OWN: documents,
        **{name: part for name, part in texts.items() if name != own},
        "own, ROT13": [codecs.encode(text.decode(), "rot13").encode() for text in documents],
        "own, EBCDIC": [text.decode().encode("cp037", "replace") for text in documents],
        "random letters": [b" ".join(word.tobytes() for word in part) for part in words],
        "random ASCII": [generator.integers(32, 127, NOISE_BYTES, np.uint8).tobytes() for _ in range(count)],
        "random bytes": [generator.bytes(NOISE_BYTES) for _ in range(count)],
    }


def sample(documents: Sequence[bytes], count: int, generator: np.random.Generator) -> list[bytes]:
    """Random documents, at most `count`."""
    chosen = generator.choice(len(documents), min(count, len(documents)), replace=False)
    return [documents[i] for i in chosen.tolist()]


def _test_documents(name: str, data_dir: Path) -> Sequence[bytes]:
    return load_documents(DocumentsConfig.model_validate({"name": name}), data_dir).test.texts


def report(record: Record) -> str:
    """Report with one row for each model and kind of text."""
    rows = []
    for model in record.data["models"]:
        for kind, shares in model["shares"].items():
            quantiles = [f"{share:.2f}" for share in np.quantile(shares, QUANTILES).tolist()]
            below = 100 * np.mean(np.array(shares) < model["low"])
            rows.append([model["model"].partition("/")[0], kind, str(len(shares)), *quantiles, f"{below:.1f}"])
    columns = ["model", "documents", "number", "1 %", "median", "99 %", "below low, %"]
    low = (f"`{model['model']}` {model['low']:.2f}" for model in record.data["models"])
    return (
        "Share of known words, `coverage.known`: 1st percentile, median and 99th percentile over random documents, and "
        "how many of them are below `known.low` of the model.\n\n"
        f"{table(columns, rows, left=2)}\n`known.low`: {', '.join(low)}.\n"
    )


BENCHMARK = Benchmark.of("Known words", measure, report, None, options, ("onnxruntime", "numpy"))

if __name__ == "__main__":
    BENCHMARK.main()
