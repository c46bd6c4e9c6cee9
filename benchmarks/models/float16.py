"""`python -m benchmarks.models.float16`: what float16 changes in the exports that have it, computed on a CPU.

Measures every metric on the whole test split in both precisions, and the difference of the golden outputs.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from artifact.backends import create_backend
from artifact.backends.base import Array, output_error
from artifact.loading import find_exports
from artifact.manifest import Manifest, Precision, read_manifest
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from model.cli.evaluate import evaluate_export

PRECISIONS: tuple[Precision, ...] = ("float32", "float16")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    add_data_dir(parser)
    parser.add_argument("--exports", type=Path, default=Path("exports"), help="folder (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Results after each export."""
    data: Data = {"exports": []}
    for folder in find_exports(args.exports):
        manifest = read_manifest(folder)
        if manifest.float16 is not None:
            data["exports"].append(
                {
                    "export": f"{manifest.name}@{manifest.version}",
                    "difference": golden_difference(manifest, folder),
                    "results": measure_results(manifest, folder, args.data_dir),
                }
            )
            yield data


def golden_difference(manifest: Manifest, folder: Path) -> float:
    """Largest difference of the outputs for the golden rows, as `output_error`."""
    with np.load(folder / manifest.golden.path) as golden:
        inputs: dict[str, Array] = {spec.name: golden[spec.name] for spec in manifest.inputs}
    single, half = (
        create_backend(manifest.in_precision(precision), folder, device="cpu").run(inputs) for precision in PRECISIONS
    )
    return max(output_error(half[name], single[name]) for name in single)


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
    rows, differences = [], []
    for export in record.data["exports"]:
        differences.append([export["export"], f"{export['difference']:.1e}"])
        for one in export["results"]:
            values = [f"{one[precision]:.6f}" for precision in PRECISIONS]
            rows.append([export["export"], one["metric"], one["condition"], f"{one['examples']:,}", *values])
    return (
        "Whole test splits, on a CPU, whose kernels compute in float32 between roundings to float16.\n\n"
        f"{table(['export', 'metric', 'condition', 'n', *PRECISIONS], rows, left=3)}\n"
        "The largest difference of the golden outputs, in units of the largest output or 1:\n\n"
        f"{table(['export', 'difference'], differences)}"
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
