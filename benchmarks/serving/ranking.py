"""`python -m benchmarks.serving.ranking`: time of a ranking over HTTP, with new documents and with cached ones.

Each server serves one export of a matcher on one core; the client has a core of its own, if there is one. With
`--other`, the exports of both folders are measured in turns.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import orjson

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.interleave import interleave
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, Server, service
from benchmarks.lib.table import median_and_range, ratio, table

LENGTHS = 256, 4096
"""Bytes of the query and of each document."""
LETTERS = np.array(list("etaoinshrdlucmfwypvb"))


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--exports", default="exports", type=Path, help="folder of exports (default: %(default)s)")
    parser.add_argument("--model", default="aan", help="name of the matcher (default: %(default)s)")
    parser.add_argument("--other", type=Path, help="folder of exports with another version of the matcher")
    parser.add_argument("--documents", type=int, default=100, help="documents of a ranking (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Milliseconds of a ranking in every round, by version, length of the documents, and whether these are cached."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[1:]) or {cores[0]})
    generator = np.random.default_rng(0)

    def turn(target: Server, length: int, known: bytes | None) -> Callable[[], float]:
        return lambda: _milliseconds(target, known or ranking(generator, args.documents, length))

    with contextlib.ExitStack() as stack:
        turns = dict[tuple[str, int, str], Callable[[], float]]()
        for folder in (args.exports, *([args.other] if args.other else [])):
            flags = ("--exports", str(folder), "--models", args.model, f"--default-matcher={args.model}")
            target = stack.enter_context(service(*flags, cores={cores[0]}))
            version = f"{args.model} {_version(target, args.model)}"
            for length in LENGTHS:
                known = ranking(generator, args.documents, length)
                _milliseconds(target, known)
                turns[version, length, "new"] = turn(target, length, None)
                turns[version, length, "cached"] = turn(target, length, known)
        measured = interleave(turns, args.rounds, warm_up=2)
    yield {
        "milliseconds": [
            {"version": version, "bytes": length, "documents": kind, "ms": ms}
            for (version, length, kind), ms in measured.items()
        ]
    }


def ranking(generator: np.random.Generator, number: int, length: int) -> bytes:
    """A request with a query and documents of `length` bytes, of random words that are as long as English ones."""
    words = ["".join(generator.choice(LETTERS, size)) for size in generator.integers(2, 10, 5000)]
    texts = [" ".join(generator.choice(words, length))[:length] for _ in range(1 + number)]
    return orjson.dumps({"query": texts[0], "documents": texts[1:], "top_n": 10})


def _milliseconds(target: Server, body: bytes) -> float:
    """Time of one request."""
    connection = HTTPConnection(urlsplit(target.url).netloc, timeout=60)
    connection.connect()
    started = time.perf_counter()
    connection.request("POST", "/v1/rank", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    seconds = time.perf_counter() - started
    connection.close()
    assert response.status == 200, answer
    return 1000 * seconds


def _version(target: Server, model: str) -> int:
    """Version that a server serves."""
    connection = HTTPConnection(urlsplit(target.url).netloc, timeout=60)
    connection.request("GET", f"/v1/models/{model}")
    version: int = orjson.loads(connection.getresponse().read())["version"]
    return version


def report(record: Record) -> str:
    """Report: time by length, version and kind of documents; ratios are to the last version, with new documents."""
    settings, rows = record.settings, list[list[str]]()
    for length in LENGTHS:
        found = [row for row in record.data["milliseconds"] if row["bytes"] == length]
        base = next(row["ms"] for row in reversed(found) if row["documents"] == "new")
        for row in found:
            ms = median_and_range(row["ms"], ".1f")
            rows.append([f"{length:,}", row["version"], row["documents"], ms, ratio(row["ms"], base)])
    return (
        f"A query and {settings['documents']} documents of as many bytes over HTTP; one core for the server, which "
        f"serves one version; median of {settings['rounds']} rounds in turns (lowest to highest). Ratios are to the "
        f"last version with new documents.\n\n{table(['bytes', 'version', 'documents', 'ms', 'ratio'], rows, left=3)}\n"
    )


BENCHMARK = Benchmark.of("Time of a ranking", measure, report, None, options, PACKAGES)

if __name__ == "__main__":
    BENCHMARK.main()
