"""`python -m benchmarks.models.document_length [MODEL...]`: accuracy by document length, windows or head alone.

MODEL is an export or a run of a classifier (default: `exports/imdb-s3`). A result replaces the recorded one of the same
data set; others are kept. Runs on 20 Newsgroups are in `runs/classification/` after
`benchmarks.models.classification`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifact.provenance import git_revision
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from benchmarks.models.ready import load
from model.data.documents import load_test
from model.tasks.classification import Classification

NAME = "document_length"
EDGES = (0, 512, 1024, 2048, 4096, 8192)
"""Lower bounds in bytes of the table's length ranges."""


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
    return {
        "documents": task.config.data.name,
        "model": str(folder),
        "revision": git_revision(),
        "lengths": by_length(
            np.array([len(text) for text in documents.texts]),
            windows=np.array([part.mean(0).argmax() for part in logits]) == labels,
            head=np.array([part[0].argmax() for part in logits]) == labels,
        ),
    }


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
    models = ", ".join(f"`{found['model']}` at {found['revision']}" for found in record.data["sets"])
    return (
        "Accuracy on the test split in %; up to 4,096 bytes the head is the whole document.\n\n"
        f"{table(['documents', 'bytes', 'number', 'windows', 'head alone'], rows, left=2)}\nMeasured: {models}.\n"
    )


def draw(record: Record, path: Path) -> None:
    """Chart of the accuracy with windows against document length."""
    figure, (axes,) = chart.figure((7, 4))
    for found in record.data["sets"]:
        shares = [100 * row["windows"] / row["documents"] if row["documents"] else np.nan for row in found["lengths"]]
        axes.plot(range(len(shares)), shares, marker="o", label=found["documents"])
    axes.set(xlabel="bytes, more than", ylabel="accuracy, %", xticks=range(len(EDGES)))
    axes.set_xticklabels([f"{edge:,}" for edge in EDGES])
    axes.grid(alpha=0.3)
    axes.legend()
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
