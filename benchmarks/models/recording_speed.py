"""`python -m benchmarks.models.recording_speed`: the cost of a classifier of recordings, by their length.

For each length, a classifier of two channels is trained for a few steps on generated waves, since the cost does not
depend on what it has learned, and exported. A recording is then classified in-process on one core, alone and in
batches, and over HTTP by a server on one core, by one client that waits for each answer. Times are medians.
"""

import argparse
import http.client
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from artifact.arrays import Doubles
from artifact.exports import version_folder
from artifact.loading import load_export
from artifact.local import Model
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, service
from benchmarks.lib.table import table
from benchmarks.models.runs import run_command

LENGTHS = (32, 128, 512, 1_250, 4_096)
BATCH = 16
CORES = {0}
OPTIONS = ("training.epochs=1", "training.examples_per_epoch=32", "training.batch_size=8")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure one length after the other."""
    rows = list[Data]()
    for length in args.lengths:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            waves = [_wave(number, length) for number in range(24)]
            _write(folder / "waves.ts", waves)
            sets = [word for option in OPTIONS for word in ("--set", option)]
            files = ("--data", str(folder / "waves.ts"), "--runs", str(folder / "runs"), *sets)
            run_command("train", "--task", "series-classification", *files, data_dir=folder, threads=1)
            run_command("export", str(folder / "runs" / "waves"), "--out", str(folder / "exports"), data_dir=folder)
            row = {"length": length, **_in_process(folder / "exports" / "waves", waves, args.repeats)}
            row["http"] = _over_http(folder / "exports", waves, args.repeats)
        rows.append(row)
        yield {"rows": rows}


def _wave(number: int, length: int) -> Doubles:
    """A recording (length, 2): waves of one of two speeds, and noise."""
    generator = np.random.default_rng(number)
    curve = np.sin(np.arange(length) / (5 if number % 2 else 3) + generator.uniform(0, 6))
    return np.column_stack([curve, -curve]) + 0.2 * generator.standard_normal((length, 2))


def _write(path: Path, waves: list[Doubles]) -> None:
    lines = ["@dimensions 2", "@classLabel true slow fast", "@data"]
    for number, wave in enumerate(waves):
        channels = [",".join(f"{value:.4f}" for value in column) for column in wave.T]
        lines.append(":".join([*channels, "slow" if number % 2 else "fast"]))
    path.write_text("\n".join(lines) + "\n")


def _in_process(export: Path, waves: list[Doubles], repeats: int) -> Data:
    """Milliseconds of a recording, alone and in a batch, on one thread."""
    model = Model(load_export(version_folder(export), device="cpu"), threads=1)
    named = [{"c1": wave[:, 0], "c2": wave[:, 1]} for wave in waves[:BATCH]]
    return {
        "alone": _median(lambda: model.classify(named[:1]), repeats),
        "batch": _median(lambda: model.classify(named), repeats) / len(named),
    }


def _over_http(exports: Path, waves: list[Doubles], repeats: int) -> float:
    """Milliseconds of a request with one recording."""
    body = json.dumps({"series": {"c1": waves[0][:, 0].round(4).tolist(), "c2": waves[0][:, 1].round(4).tolist()}})
    with service("--exports", str(exports), cores=CORES) as started:
        client = http.client.HTTPConnection(urlsplit(started.url).netloc)

        def ask() -> None:
            client.request("POST", "/v1/classify", body, {"content-type": "application/json"})
            answer = client.getresponse()
            found = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"status {answer.status}: {found[:500]!r}")

        return _median(ask, repeats)


def _median(call: Callable[[], object], repeats: int) -> float:
    """Median milliseconds of a call, after one that is not counted."""
    call()
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        found.append(1e3 * (time.perf_counter() - started))
    return statistics.median(found)


def report(record: Record) -> str:
    """Report with one row for each length."""
    rows = [
        [f"{row['length']:,}", *(f"{row[key]:.1f}" for key in ("alone", "batch", "http"))]
        for row in record.data["rows"]
    ]
    columns = ["steps", "alone, ms", f"in batches of {BATCH}, ms", "over HTTP, ms"]
    return (
        "Milliseconds of a recording of two channels on one core, medians: in-process, alone and each in a batch; and "
        f"over HTTP, one request after the other.\n\n{table(columns, rows)}\n"
    )


def options(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS, help="steps (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=50, help="default: %(default)s")


BENCHMARK = Benchmark.of("Speed of classifiers of recordings", measure, report, None, options, PACKAGES)

if __name__ == "__main__":
    BENCHMARK.main()
