"""`python -m benchmarks.models.document_length [MODEL...]`: accuracy by document length and by the bytes that are read.

For each range of lengths, the accuracy of the whole document and of its head, the bytes that the model reads at once;
then the accuracy on the first bytes of every document.

MODEL is an export or a run of a classifier (default: `exports/imdb-s3`). A result replaces the recorded one of the same
data set; others are kept. Runs on 20 Newsgroups are in `runs/classification/` after
`benchmarks.models.classification`.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifact.provenance import git_revision
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from benchmarks.models.ready import load
from model.data.documents import Documents, load_test
from model.tasks.base import Run
from model.tasks.classification import Classification

NAME = "document_length"
EDGES = (0, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Lower bounds in bytes of the table's length ranges."""
PREFIXES = (1024, 4096, 16384, 65536)
"""Numbers of first bytes to which documents are cut."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", default=[Path("exports/imdb-s3")])
    add_data_dir(parser)


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure each model."""
    sets: dict[str, Data] = {found["documents"]: found for found in earlier(NAME, args.out).get("sets", [])}
    for folder in args.models:
        found = measure_model(folder, args.data_dir)
        sets[found["documents"]] = found
        yield {"sets": list(sets.values())}


def measure_model(folder: Path, data_dir: Path) -> Data:
    """Number of correctly classified test documents by length."""
    task, runs = load(folder, data_dir)
    assert isinstance(task, Classification)
    documents = load_test(task.config.data, data_dir, task.facts["labels"])
    logits = task.logits(runs[0], documents)
    labels = np.array(documents.labels)
    sizes = np.array([len(text) for text in documents.texts])
    shorter = [prefix for prefix in PREFIXES[:-1] if prefix < sizes.max()]
    return {
        "documents": task.config.data.name,
        "model": str(folder),
        "revision": git_revision(),
        "lengths": by_length(
            sizes,
            windows=np.array([part.mean(0).argmax() for part in logits]) == labels,
            head=np.array([part[0].argmax() for part in logits]) == labels,
        ),
        "prefixes": [{"bytes": prefix, "correct": correct(task, runs[0], documents, prefix)} for prefix in shorter],
    }


def correct(task: Classification, run: Run, documents: Documents, prefix: int) -> int:
    """Number of documents that are classified correctly by their first bytes."""
    heads = replace(documents, texts=[text[:prefix] for text in documents.texts])
    answers = [windows.mean(0).argmax() for windows in task.logits(run, heads)]
    return int((np.array(answers) == np.array(documents.labels)).sum())


def by_length(sizes: NDArray[np.int64], windows: NDArray[np.bool_], head: NDArray[np.bool_]) -> list[Data]:
    """Correct answers per length range of EDGES, with windows and with the head alone."""
    rows: list[Data] = []
    for low, high in zip(EDGES, (*EDGES[1:], None), strict=True):
        chosen = (sizes > low) & (sizes <= (high or np.inf))
        counts = {"documents": chosen, "windows": chosen & windows, "head": chosen & head}
        rows.append({"above": low, "to": high, **{key: int(found.sum()) for key, found in counts.items()}})
    return rows


def report(record: Record) -> str:
    """Report with one row per data set and length range."""
    rows = [
        [
            found["documents"],
            f"{row['above'] + 1:,} to {row['to']:,}" if row["to"] else f"over {row['above']:,}",
            str(row["documents"]),
            *(f"{100 * row[key] / row['documents']:.2f}" for key in ("windows", "head")),
        ]
        for found in record.data["sets"]
        for row in found["lengths"]
        if row["documents"]
    ]
    first = [
        [found["documents"], *(f"{100 * share:.2f}" for _, share in prefixes(found)), f"{100 * whole(found):.2f}"]
        for found in record.data["sets"]
        if "prefixes" in found
    ]
    for row in first:  # the longest document is shorter than the other numbers of bytes
        row[-1:-1] = [""] * (len(PREFIXES) + 1 - len(row))
    models = ", ".join(f"`{found['model']}` at {found['revision']}" for found in record.data["sets"])
    return (
        "Accuracy on the test split in %. The head is what the model reads at once.\n\n"
        f"{table(['documents', 'bytes', 'number', 'whole', 'head alone'], rows, left=2)}\n"
        "If only the first bytes of each document are read:\n\n"
        f"{table(['documents', *(f'{prefix:,}' for prefix in PREFIXES[:-1]), 'all'], first)}\n"
        f"Measured: {models}.\n"
    )


def prefixes(found: Data) -> list[tuple[int, float]]:
    """Numbers of first bytes, and the accuracy with each."""
    number = sum(row["documents"] for row in found["lengths"])
    return [(row["bytes"], row["correct"] / number) for row in found["prefixes"]]


def whole(found: Data) -> float:
    """Accuracy on whole documents."""
    right, number = (sum(row[key] for row in found["lengths"]) for key in ("windows", "documents"))
    return float(right / number)


def draw(record: Record, path: Path) -> None:
    """Charts of the accuracy against document length, and against the number of first bytes that are read."""
    figure, (by_size, by_prefix) = chart.figure((11, 4), 2)
    for found in record.data["sets"]:
        shares = [100 * row["windows"] / row["documents"] if row["documents"] else np.nan for row in found["lengths"]]
        by_size.plot(range(len(shares)), shares, marker="o", label=found["documents"])
        if "prefixes" in found:
            accuracies = [100 * accuracy for _, accuracy in prefixes(found)]
            accuracies.append(100 * whole(found))
            by_prefix.plot(PREFIXES[: len(accuracies)], accuracies, marker="o", label=found["documents"])
    by_size.set(xlabel="bytes of the document, more than", ylabel="accuracy, %", xticks=range(len(EDGES)))
    by_size.set_xticklabels([f"{edge:,}" for edge in EDGES], fontsize=8)
    by_prefix.set(xlabel="first bytes that are read", ylabel="accuracy, %", xscale="log")
    by_prefix.set_xticks(PREFIXES, [f"{prefix:,}" for prefix in PREFIXES])
    for axes in (by_size, by_prefix):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    chart.save(figure, path)


BENCHMARK = Benchmark(
    program="benchmarks.models.document_length",
    title="Accuracy against length",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    chart=draw,
    packages=("onnxruntime", "torch", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
