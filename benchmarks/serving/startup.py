"""`python -m benchmarks.serving.startup`: time until the service is ready with all exports, and its memory.

Modules are compiled, as after the first start or in an image; or every start compiles them, as on a file system that is
read-only. Memory is also measured after each classifier has read one document of 60 KiB.
"""

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.interleave import interleave
from benchmarks.lib.processes import fields
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, ROOT, Server, document, environment, server
from benchmarks.lib.table import mean_and_deviation, table

GOAL_S = 2.0
"""Maximum seconds until the service is ready."""
GOAL_MIB = 350
"""Maximum resident memory in MiB."""
LENGTH = 60 * 1024
TITLES = {"compiled": "compiled before", "compiling": "compiled at each start"}
TICKS = os.sysconf("SC_CLK_TCK")
"""Units of processor time per second in /proc."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--rounds", type=int, default=10, help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure starts in turns: with compiled modules, and without."""
    with tempfile.TemporaryDirectory() as folder:
        compiled, empty = Path(folder) / "compiled", Path(folder) / "empty"
        command = [sys.executable, *_cache(compiled), "-m", "service", "check", "--device", "cpu"]
        writing = {**environment(), "PYTHONDONTWRITEBYTECODE": ""}
        checked = subprocess.run(command, cwd=ROOT, env=writing, check=True, capture_output=True, text=True)
        turns = {
            "compiled": functools.partial(start, *_cache(compiled)),
            "compiling": functools.partial(start, "-B", *_cache(empty)),
        }
        starts = interleave(turns, args.rounds, warm_up=1, label="starts")
        yield {"models": [line.split()[0] for line in checked.stdout.splitlines()], "starts": starts}


def _cache(folder: Path) -> tuple[str, str]:
    """Options of Python that set the folder of compiled modules."""
    return "-X", f"pycache_prefix={folder}"


def start(*flags: str) -> Data:
    """Start a server, classify a document with each classifier, and stop it.

    Returns: seconds until it is ready and processor seconds by then, and resident memory in MiB before and after the
    documents.

    """
    started = time.perf_counter()
    with server([*flags, "-m", "service", "--port", "0", "--device", "cpu"]) as running:
        httpx.get(f"{running.url}/v2/health/ready").raise_for_status()
        seconds, core_seconds, mib = time.perf_counter() - started, _core_seconds(running), [running.rss_mib()]
        for model in httpx.get(f"{running.url}/v1/models").json()["models"]:
            if model["task"] == "text-classification":
                body = {"model": model["name"], "inputs": [document(LENGTH).decode()]}
                httpx.post(f"{running.url}/v1/classify", json=body, timeout=60).raise_for_status()
        mib.append(running.rss_mib())
    return {"seconds": seconds, "core_seconds": core_seconds, "mib": mib}


def _core_seconds(running: Server) -> float:
    """Processor time of a server so far, of the user and of the system."""
    return sum(map(int, fields(Path(f"/proc/{running.process.pid}/stat"))[11:13])) / TICKS


def report(record: Record) -> str:
    """Report with one row for compiled modules, and one without."""
    models, starts = record.data["models"], record.data["starts"]
    rows = [
        [
            TITLES[name],
            mean_and_deviation([one["seconds"] for one in found], ".2f"),
            mean_and_deviation([one["core_seconds"] for one in found], ".2f"),
            *(mean_and_deviation([one["mib"][i] for one in found], ".0f") for i in (0, 1)),
        ]
        for name, found in starts.items()
    ]
    columns = ["modules", "s until ready", "core seconds", "MiB when ready", "MiB after documents"]
    every = [one for found in starts.values() for one in found]
    slowest, largest = max(one["seconds"] for one in every), max(max(one["mib"]) for one in every)
    return (
        f"Starts with {len(models)} models ({', '.join(models)}), mean ± standard deviation of "
        f"{record.settings['rounds']} starts in turns. Resident memory before and after one document of {LENGTH:,} "
        f"bytes for each classifier.\n\n{table(columns, rows)}\n"
        f"Goals: ready within {GOAL_S:g} s: {'reached' if slowest <= GOAL_S else 'missed'}, slowest {slowest:.2f} s; "
        f"at most {GOAL_MIB} MiB: {'reached' if largest <= GOAL_MIB else 'missed'}, largest {largest:.0f} MiB.\n"
    )


BENCHMARK = Benchmark(
    program="benchmarks.serving.startup",
    title="Start of the service",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=PACKAGES,
)

if __name__ == "__main__":
    BENCHMARK.main()
