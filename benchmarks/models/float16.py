"""`python -m benchmarks.models.float16`: what float16 changes in the exports that have it, computed on a CPU.

Measures every metric on the whole test split in both precisions, the difference of the golden outputs, and the time for
the golden rows on one thread, with the precisions in turn.
"""

import argparse
import functools
import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from artifact.backends import create_backend
from artifact.backends.base import Array, output_error
from artifact.loading import find_exports
from artifact.manifest import Manifest, Precision, read_manifest
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.interleave import interleave, timed
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from model.cli.evaluate import evaluate_export

PRECISIONS: tuple[Precision, ...] = ("float32", "float16")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    add_data_dir(parser)
    parser.add_argument("--exports", type=Path, default=Path("exports"), help="folder (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=200, help="of the golden rows (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Results after each export."""
    data: Data = {"exports": []}
    for folder in find_exports(args.exports):
        manifest = read_manifest(folder)
        if manifest.float16 is not None:
            golden = measure_golden(manifest, folder, args.rounds)
            data["exports"].append({**golden, "results": measure_results(manifest, folder, args.data_dir)})
            yield data


def measure_golden(manifest: Manifest, folder: Path, rounds: int) -> Data:
    """Seconds for the golden rows in each round, and the largest difference of the outputs."""
    with np.load(folder / manifest.golden.path) as golden:
        inputs: dict[str, Array] = {spec.name: golden[spec.name] for spec in manifest.inputs}
    runs = {
        precision: create_backend(manifest.in_precision(precision), folder, device="cpu").run
        for precision in PRECISIONS
    }
    single, half = (runs[precision](inputs) for precision in PRECISIONS)
    turns = {precision: functools.partial(timed, functools.partial(run, inputs)) for precision, run in runs.items()}
    return {
        "export": f"{manifest.name}@{manifest.version}",
        "difference": max(output_error(half[name], single[name]) for name in single),
        "seconds": dict(interleave(turns, rounds, warm_up=3, label=manifest.name)),
    }


def measure_results(manifest: Manifest, folder: Path, data_dir: Path) -> list[Data]:
    """Every metric of the manifest in both precisions."""
    single, half = (
        evaluate_export(manifest.in_precision(precision), folder, data_dir, None, "cpu").results
        for precision in PRECISIONS
    )
    return [
        {
            "metric": one.metric,
            "condition": one.condition,
            "examples": one.examples,
            "float32": one.value,
            "float16": other.value,
        }
        for one, other in zip(single, half, strict=True)
    ]


def report(record: Record) -> str:
    """Report with one row for each metric, and one for each export."""
    rows, costs = [], []
    for export in record.data["exports"]:
        single, half = (statistics.median(export["seconds"][precision]) for precision in PRECISIONS)
        costs.append([export["export"], f"{export['difference']:.1e}", f"{half / single:.2f} x"])
        for one in export["results"]:
            values = [f"{one[precision]:.6f}" for precision in PRECISIONS]
            rows.append([export["export"], one["metric"], one["condition"], f"{one['examples']:,}", *values])
    return (
        "Whole test splits, on a CPU, whose kernels compute in float32 between roundings to float16.\n\n"
        f"{table(['export', 'metric', 'condition', 'n', *PRECISIONS], rows, left=3)}\n"
        "The largest difference of the golden outputs, in units of the largest output or 1, and the time for the "
        "golden rows on one thread, float16 / float32:\n\n"
        f"{table(['export', 'difference', 'time'], costs)}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.models.float16",
    title="float16",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=("numpy", "onnxruntime"),
)

if __name__ == "__main__":
    BENCHMARK.main()
