"""`python -m benchmarks.models.own_length`: long documents of your own, with two values of `--max-bytes`.

Writes a data set of long documents as a file of own data, with its splits and groups, and trains on it as `python -m
model train --task text-classification --data FILE --group-column group --max-bytes BYTES` does: documents whole, or in
windows. Each result is recorded when its run ends; a restarted benchmark continues.
"""

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from benchmarks.models.long_documents import correct, digits, points, right_answers
from benchmarks.models.runs import options_of, run_command
from model.data import long_documents
from model.data.lines import TRAIN_VALIDATION_TEST
from model.data.own import DataFiles
from model.runs.load import load_trained

NAME = "own_length"
SETS = {
    "scotus": long_documents.SCOTUS,
    "un-debate": long_documents.UN_DEBATE,
    "un-debate-country": long_documents.UN_DEBATE_COUNTRY,
}
LENGTHS = (4096, 65536)
"""Values of --max-bytes."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train and evaluate the lengths that the record lacks."""
    runs: list[Data] = earlier(NAME, args.out).get("runs", [])
    done = {(run["documents"], run["bytes"]) for run in runs}
    for name in args.sets:
        for length in LENGTHS:
            if (name, length) not in done:
                runs.append(measure_length(name, length, args.runs, args.data_dir))
                yield {"runs": runs}


def measure_length(name: str, length: int, runs: Path, data_dir: Path) -> Data:
    """Train on one core and classify the test documents."""
    folder = runs / f"{name}-{length}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file, source = folder / "documents.jsonl", SETS[name]
    with file.open("w") as stream:
        for split in TRAIN_VALIDATION_TEST.values():
            for text, label, group in source.read(data_dir, split):
                row = {"text": text.decode(), "label": source.labels[label], "split": split, "group": group}
                stream.write(json.dumps(row) + "\n")
    command = ("train", "--task", "text-classification", "--data", str(file), "--group-column", "group")
    started = time.perf_counter()
    run_command(*command, "--max-bytes", str(length), "--runs", str(folder), data_dir=data_dir, threads=1)
    seconds, run = time.perf_counter() - started, folder / "documents-seed0"
    best = load_trained(run, DataFiles(data=file))
    stages = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "documents": name,
        "bytes": length,
        "revision": git_revision(),
        "seconds": seconds,
        "peak_mib": max(stage["peak_memory_bytes"] for stage in stages) / 2**20,
        "correct": digits(right_answers(best, best.data.test)),
    }


def report(record: Record) -> str:
    """Report with one row per data set and length."""
    rows = []
    for name in SETS:
        found = [run for run in record.data["runs"] if run["documents"] == name]
        for run in found:
            answers = correct(run)
            rows.append(
                [
                    name,
                    f"{run['bytes']:,}",
                    f"{100 * answers.mean():.1f}",
                    "" if run is found[0] else points(answers - correct(found[0])),
                    f"{run['seconds']:.0f}",
                    f"{run['peak_mib']:,.0f}",
                ]
            )
    columns = ["documents", "--max-bytes", "test accuracy, %", "difference", "training, s", "peak MiB"]
    return (
        "Accuracy on the test documents, the difference to the first row of the data set in points, ± its standard "
        "error over the documents; time of the training command on one core, and its peak memory. Training has no "
        f"random part, so there is one run of each.\n\n{table(columns, rows)}\n"
        f"Revisions: {', '.join(sorted({run['revision'] for run in record.data['runs']}))}.\n"
    )


BENCHMARK = Benchmark.of(
    "Your own long documents",
    measure,
    report,
    None,
    options_of(NAME, SETS, "scotus"),
    ("torch", "numpy", "scikit-learn"),
)

if __name__ == "__main__":
    BENCHMARK.main()
