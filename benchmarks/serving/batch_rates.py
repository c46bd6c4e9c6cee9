"""`python -m benchmarks.serving.batch_rates`: processor time of `longdoc-serve batch` per document, by length.

A process reads a file in parts, computes them and writes the results, as the tasks of a batch do; without Ray.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from artifact.loading import load_export
from artifact.local import Model
from artifact.manifest import version_folder
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.interleave import interleave
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, document
from benchmarks.lib.table import median_and_range, table
from service.offline.compute import FIELDS, Options, prepare
from service.offline.inputs import read_parts
from service.offline.outputs import Output, compute_part

EXPORT = Path("exports/imdb-s3")
BYTES = 2 * 2**20
"""Size of the documents of one measurement; at most DOCUMENTS of them."""
DOCUMENTS = 2000


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024, 4096, 16384], help="bytes of a document")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Seconds of one core per document of every round, by length."""
    model = Model(load_export(version_folder(EXPORT), format="onnx", device="cpu"), threads=1)
    compute = prepare(model, "classify", FIELDS["classify"], Options())
    with tempfile.TemporaryDirectory() as folder:

        def batch(length: int) -> Callable[[], float]:
            count = min(DOCUMENTS, BYTES // length)
            path = Path(folder) / f"{length}.jsonl"
            path.write_text(f"{json.dumps({'text': document(length).decode()})}\n" * count)

            def run() -> float:
                with tempfile.TemporaryDirectory() as out:
                    started = time.process_time()
                    for part in read_parts(str(path), FIELDS["classify"]):
                        compute_part(compute, Output(out, "classify", "jsonl"), path.name, part)
                    return (time.process_time() - started) / count

            return run

        yield {"core_seconds": interleave({str(length): batch(length) for length in args.lengths}, args.rounds)}


def report(record: Record) -> str:
    """Report with one row per length."""
    rows = []
    for length, found in record.data["core_seconds"].items():
        hours = [seconds * 1e6 / 3600 for seconds in found]
        milliseconds = [1000 * seconds for seconds in found]
        rows.append([f"{int(length):,}", median_and_range(milliseconds, ".2f"), median_and_range(hours, ".2f")])
    columns = ["bytes of a document", "core milliseconds", "core hours per million documents"]
    return (
        "Processor time of reading, computing and writing JSON Lines in one process, median (minimum to maximum) of "
        f"{record.settings['rounds']} rounds in turns. Ray is not included.\n\n{table(columns, rows)}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.serving.batch_rates",
    title="Cost of a batch",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=(*PACKAGES, "pyarrow"),
)

if __name__ == "__main__":
    BENCHMARK.main()
