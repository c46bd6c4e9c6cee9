"""`python -m benchmarks.models.long_speed`: cost of one document against its length, in one pass and in windows.

The export of a classifier of long documents (default: `exports/scotus`) in ONNX Runtime, one thread, on documents cut
from Supreme Court arguments: each length as one row, and in windows of 4,096 bytes as the service cuts them, one row
each, in batches of four. All turns are interleaved.
"""

import argparse
import itertools
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from artifact.backends import create_backend
from artifact.backends.base import InferenceBackend
from artifact.documents import cut, pad_rows, take
from artifact.manifest import read_manifest, version_folder
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.interleave import interleave
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from model.config.data import DocumentsConfig
from model.data.documents import load_test, load_training

NAME = "long_speed"
LENGTHS = tuple(256 << i for i in range(9))
WINDOW, OVERLAP = 4096, 512
BATCH = 4
"""Windows of a batch, as in the service on a CPU."""
PASS, WINDOWS = "one pass", "windows"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    add_data_dir(parser)
    parser.add_argument("--model", type=Path, default=Path("exports/scotus"), help="export (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=20, help="measured rounds (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Seconds of each round for each length."""
    folder = version_folder(args.model)
    backend, config = create_backend(read_manifest(folder), folder, device="cpu"), DocumentsConfig(name="scotus")
    texts = load_test(config, args.data_dir, load_training(config, args.data_dir).labels).texts
    chosen = [text for text in texts if len(text) == LENGTHS[-1]]
    turns: dict[tuple[str, int], Turn] = {}
    for length in LENGTHS:
        turns[PASS, length] = Turn(backend, [[text[:length]] for text in chosen], length)
        if length > WINDOW:
            turns[WINDOWS, length] = Turn(backend, [windows(text[:length]) for text in chosen], WINDOW)
    seconds = interleave(turns, args.rounds, warm_up=3)
    yield {
        "model": f"{args.model}@{folder.name}",
        "seconds": [{"reads": reads, "bytes": length, "rounds": found} for (reads, length), found in seconds.items()],
    }


def windows(text: bytes) -> list[bytes]:
    """Windows of a document, as the service cuts them."""
    return [take(text, spans) for spans in cut(len(text), WINDOW, OVERLAP, "windows")]


class Turn:
    """Classifies a document per call, each time the next one; returns the seconds."""

    def __init__(self, backend: InferenceBackend, documents: Sequence[Sequence[bytes]], bucket: int) -> None:
        self.backend = backend
        self.batches = itertools.cycle(
            [pad_rows(rows[i : i + BATCH], bucket) for i in range(0, len(rows), BATCH)] for rows in documents
        )

    def __call__(self) -> float:
        """Compute the rows of the next document."""
        batches = next(self.batches)
        started = time.perf_counter()
        for rows, lengths in batches:
            self.backend.run({"bytes": rows, "lengths": lengths})
        return time.perf_counter() - started


def medians(record: Record) -> dict[tuple[str, int], float]:
    """Milliseconds per document: the median of the rounds."""
    return {(row["reads"], row["bytes"]): 1000 * statistics.median(row["rounds"]) for row in record.data["seconds"]}


def report(record: Record) -> str:
    """Report with one row per length."""
    ms = medians(record)
    rows = []
    for length in LENGTHS:
        in_windows = ms.get((WINDOWS, length))
        cost = ms[PASS, length]
        rows.append(
            [
                f"{length:,}",
                f"{cost:.2f}",
                f"{1024 * cost / length:.3f}",
                f"{in_windows:.2f}" if in_windows else "",
                f"{cost / in_windows:.2f} x" if in_windows else "",
            ]
        )
    slope = math.log(ms[PASS, LENGTHS[-1]] / ms[PASS, WINDOW]) / math.log(LENGTHS[-1] / WINDOW)
    return (
        f"`{record.data['model']}`, milliseconds per document alone, medians, one thread.\n\n"
        f"{table(['bytes', 'one pass', 'per KiB', 'windows', 'one pass / windows'], rows, left=0)}\n"
        f"From {WINDOW:,} to {LENGTHS[-1]:,} bytes, the cost grows with the power {slope:.2f} of the length.\n"
    )


def draw(record: Record, path: Path) -> None:
    """Chart of the cost against the length."""
    ms = medians(record)
    figure, (axes,) = chart.figure((7, 4))
    for reads in (PASS, WINDOWS):
        lengths = [length for length in LENGTHS if (reads, length) in ms]
        axes.plot(lengths, [ms[reads, length] for length in lengths], marker="o", label=reads)
    axes.set(xlabel="bytes", ylabel="milliseconds per document", xscale="log", yscale="log")
    axes.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS], fontsize=8)
    axes.grid(alpha=0.3)
    axes.legend()
    chart.save(figure, path)


BENCHMARK = Benchmark(
    program="benchmarks.models.long_speed",
    title="Cost of long documents",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    chart=draw,
    packages=("onnxruntime", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
