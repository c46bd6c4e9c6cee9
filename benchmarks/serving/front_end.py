"""`python -m benchmarks.serving.front_end`: overhead of the server without and with a model, over real sockets.

First with a backend that computes nothing, server and load on separate cores: requests per second, compared with a
FastAPI application of the same shape and bare uvicorn. Then with the real model: throughput relative to a bare ONNX
Runtime loop on the same cores in the same run. All measurements are interleaved.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import orjson

from artifact.exports import version_folder
from artifact.loading import load_export
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.interleave import interleave
from benchmarks.lib.load import closed_loop, post, run
from benchmarks.lib.memory import in_own_process
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, TEXT, Server, document, server, service
from benchmarks.lib.table import median_and_range, ratio, table


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--seconds", type=float, default=5, help="duration of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--connections", type=int, default=32, help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Requests or documents per second of every round, by part and name."""
    cores = sorted(os.sched_getaffinity(0))
    server_core, load_cores = {cores[0]}, set(cores[1:]) or {cores[0]}
    text = document(4096)
    json = orjson.dumps({"inputs": text.decode()})

    def load(target: Server, body: bytes, kind: str, on: set[int]) -> Callable[[], float]:
        requests = [post(f"{target.url}/v1/classify", body, kind)]

        def turn() -> float:
            os.sched_setaffinity(0, on)
            done = run(closed_loop(target.url, requests, connections=args.connections, seconds=args.seconds))
            assert set(done.statuses()) == {200}, done.statuses()
            return done.throughput

        return turn

    def bare(threads: int, batch: int, on: set[int]) -> Callable[[], float]:
        def turn() -> float:
            os.sched_setaffinity(0, on)  # inherited by the new process
            return in_own_process(documents_a_second, threads, batch, args.seconds)

        return turn

    with contextlib.ExitStack() as stack:
        makes = {
            make: stack.enter_context(server(["-m", "benchmarks.serving.null_service", "--make", make], server_core))
            for make in ("asgi", "fastapi", "ours")
        }
        one = stack.enter_context(service(cores=server_core))
        every = stack.enter_context(service())
        parts = {
            "no model, one core": {
                "uvicorn alone (floor)": load(makes["asgi"], json, "application/json", load_cores),
                "FastAPI application of the same shape": load(makes["fastapi"], json, "application/json", load_cores),
                "ours, JSON": load(makes["ours"], json, "application/json", load_cores),
                "ours, text/plain": load(makes["ours"], text, TEXT, load_cores),
            },
            "model, one core": {
                "bare loop, 1 core, batch 4": bare(1, 4, server_core),
                "bare loop, 1 core, batch 1": bare(1, 1, server_core),
                "served, 1 core": load(one, text, TEXT, load_cores),
            },
            "model, all cores": {
                f"bare loop, {len(cores)} cores, batch 4": bare(len(cores), 4, set(cores)),
                f"served, {len(cores)} cores, the load on them too": load(every, text, TEXT, set(cores)),
            },
        }
        turns = {(part, name): turn for part, of in parts.items() for name, turn in of.items()}
        measured = interleave(turns, args.rounds)
    yield {
        "cores": len(cores),
        "rates": {part: {name: measured[part, name] for name in of} for part, of in parts.items()},
    }


def documents_a_second(threads: int, batch: int, seconds: float) -> float:
    """Documents per second of ONNX Runtime alone, with batches of full-length documents on every thread."""
    backend = load_export(version_folder(Path("exports/imdb-s3")), device="cpu").backend
    rows = np.frombuffer(document(4096) * batch, np.uint8).reshape(batch, 4096)
    lengths = np.full(batch, 4096, np.int32)
    done = [0] * threads
    until = time.perf_counter() + seconds

    def loop(thread: int) -> None:
        while time.perf_counter() < until:
            backend.run({"bytes": rows, "lengths": lengths})
            done[thread] += batch

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(loop, range(threads)))
    return sum(done) / (time.perf_counter() - started)


def report(record: Record) -> str:
    """Report with one table per part; ratios are relative to its first row."""
    settings, rates = record.settings, record.data["rates"]

    def part(name: str, unit: str, share: str) -> str:
        first, *_ = rates[name].values()
        rows = [[what, median_and_range(found), ratio(found, first)] for what, found in rates[name].items()]
        return table(["", unit, share], rows)

    return "\n".join(
        [
            f"4,096-byte documents, {settings['connections']} connections kept alive, median of {settings['rounds']} "
            f"rounds of {settings['seconds']:g} s in turns (lowest to highest). The load has a core of its own, except "
            "in the last part.",
            "",
            "## Without a model, one core",
            "",
            part("no model, one core", "requests/s", "ratio to the floor"),
            "## With the model, one core for everything but the load",
            "",
            part("model, one core", "documents/s", "share of the bare loop"),
            f"## With the model, {record.data['cores']} cores for everything",
            "",
            part("model, all cores", "documents/s", "share of the bare loop"),
        ]
    )


BENCHMARK = Benchmark.of("Overhead of the server", measure, report, None, options, PACKAGES)

if __name__ == "__main__":
    BENCHMARK.main()
