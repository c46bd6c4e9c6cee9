"""`python -m benchmarks.models.bytes_speed`: cost of classifiers of bytes against the length of a document.

`imdb-bytes` and `imdb-s3` as shipped, and classifiers of `benchmarks.models.bytes` with random weights, whose linear
views know the most frequent n-grams of training reviews: ONNX Runtime, one thread, one document, in turns. The
documents are training reviews, joined and cut. Each turn first computes another document of the length: the tables of
the model are then in the caches, as under load.
"""

import argparse
import functools
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from artifact.backends import create_backend
from artifact.backends.base import InferenceBackend
from artifact.documents import pad_rows
from artifact.exports import read_manifest, version_folder
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.interleave import interleave, timed
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table, three_digits
from benchmarks.models.bytes import BYTES, CASES, ONE_EPOCH, SERVED
from benchmarks.models.runs import Case
from model.config.data import DocumentsConfig
from model.config.recipes import find_recipe, load_recipe
from model.data.documents import load_documents
from model.export.graphs import eager, write_graph
from model.nn.classifier import ByteClassifier
from model.tasks import task_of
from model.tasks.bytes import ByteTask
from model.tasks.two_views import HAS_VECTOR_VIEW

LENGTHS = (256, 512, 1_024, 2_048, 4_096)
SHIPPED = ("imdb-s3", "imdb-bytes")
UNTRAINED = (SERVED, "convolution", "softmax" + ONE_EPOCH, "no block", SERVED + BYTES)
"""Cases with random weights."""
KNOWN_BYTES = 400_000
"""Bytes of reviews whose n-grams the linear views know."""

Inputs = dict[str, Any]


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    add_data_dir(parser)
    parser.add_argument("--rounds", type=int, default=100, help="measured rounds (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """CPU seconds of each round of each model and length."""
    torch.set_num_threads(1)
    config = load_recipe(find_recipe("imdb-bytes")).data
    assert isinstance(config, DocumentsConfig)
    text = b" ".join(load_documents(config, args.data_dir).train.texts)
    turns, versions = dict[tuple[str, int], Callable[[], float]](), dict[str, int]()
    with tempfile.TemporaryDirectory() as folder:
        for name in SHIPPED:
            manifest = read_manifest(version := version_folder(Path("exports") / name))
            backend, versions[name] = create_backend(manifest, version, device="cpu"), manifest.version
            turns |= {(name, n): functools.partial(cpu_seconds, backend, text, n) for n in LENGTHS}
        for case in (case for case in CASES if case.name in UNTRAINED):
            backend = exported(case, text, Path(folder) / case.folder)
            name = case.name.removesuffix(ONE_EPOCH)
            turns |= {(name, n): functools.partial(cpu_seconds, backend, text, n) for n in LENGTHS}
        seconds = interleave(turns, args.rounds, warm_up=3)
    rows = [{"model": name, "bytes": n, "seconds": float(np.median(of))} for (name, n), of in seconds.items()]
    yield {"versions": versions, "rows": rows}


def cpu_seconds(backend: InferenceBackend, text: bytes, length: int) -> float:
    """CPU seconds of the last document of a length in a text, after the one before it was computed."""
    backend.run(inputs(text[-2 * length : -length], length))
    document = inputs(text, length)
    return timed(lambda: backend.run(document), time.process_time)


def inputs(text: bytes, length: int) -> Inputs:
    """A document of a length, from the end of a text."""
    return dict(zip(("bytes", "lengths"), pad_rows([text[-length:]], length), strict=True))


def exported(case: Case, text: bytes, folder: Path) -> InferenceBackend:
    """The export of a case with random weights to a new folder."""
    task = task_of(load_recipe(find_recipe(case.recipe), list(case.overrides)))
    assert isinstance(task, ByteTask)
    task = task.knowing(labels=["negative", "positive"], **{HAS_VECTOR_VIEW: True})
    model = task.seeded().eval()
    assert isinstance(model, ByteClassifier)
    known = Counter[int]()
    for start in range(0, KNOWN_BYTES, task.length):
        row = inputs(text[: start + task.length], task.length)
        hashes, *_ = model.hasher(*map(torch.from_numpy, row.values()))
        known.update(hashes[hashes >= 0].tolist())
    frequent = np.array([value for value, _ in known.most_common(task.view.num_ngrams)], dtype=np.int64)
    weights = np.random.default_rng(0).standard_normal((len(frequent), 2))
    model.ngram_view.fill(frequent, np.ones(len(frequent)), weights, np.zeros(2), prior=1.0)
    model.quantise()
    source = task.graphs(model)[0]
    folder.mkdir()
    return create_backend(write_graph(source, eager(source), folder), folder, device="cpu")


def report(record: Record) -> str:
    """Report with a row for each model."""
    ms = {(row["model"], row["bytes"]): 1000 * row["seconds"] for row in record.data["rows"]}
    names = dict.fromkeys(name for name, _ in ms)
    versions = " and ".join(f"`{name}` {version}" for name, version in record.data["versions"].items())
    return "\n".join(
        [
            f"CPU time in milliseconds of one document on one thread, median of {record.settings['rounds']} rounds in "
            f"turns, each after another document of the length. {versions} as shipped; below, classifiers of bytes "
            "with random weights, with both views.",
            "",
            table(
                ["model", *(f"{n:,} bytes" for n in LENGTHS)],
                [[name, *(three_digits(ms.get((name, n))) for n in LENGTHS)] for name in names],
            ),
        ]
    )


BENCHMARK = Benchmark.of(
    "Cost of classifiers of bytes", measure, report, None, options, ("torch", "onnxruntime", "numpy")
)

if __name__ == "__main__":
    BENCHMARK.main()
