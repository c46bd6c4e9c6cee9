"""`python -m benchmarks.serving.host_side`: what the service costs per document beside a GPU, measured without one.

The backend sleeps as long as the GPU of the record `gpu` takes for each batch. Documents are sent one by one as JSON
and as bytes, as lists in JSON, and as NDJSON. The server has one core, the load another. Needs Linux.
"""

import argparse
import functools
import os
import statistics
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.interleave import interleave
from benchmarks.lib.load import closed_loop, post, run
from benchmarks.lib.processes import cpu_s, descendants
from benchmarks.lib.record import Data, Record, read
from benchmarks.lib.servers import PACKAGES, Server, document, server
from benchmarks.lib.table import median_and_range, table
from benchmarks.serving.null_service import gpu_batches_ms

LENGTHS = (256, 4096)
"""Bytes of a document."""
WARM_UP_S = 1.0
"""Load before each measurement; at least a second, because a server answers one scrape of its metrics a second."""
BUSY = 0.9
"""Share of its core from which on the load may limit the throughput."""


class Way(NamedTuple):
    """A way to send documents; 256 are computed or queued at once."""

    name: str
    media_type: str
    documents: int
    """In each request."""
    connections: int


WAYS = (
    Way("1, JSON", "application/json", 1, 256),
    Way("1, bytes", "application/octet-stream", 1, 256),
    Way("32, JSON", "application/json", 32, 8),
    Way("256, NDJSON", "application/x-ndjson", 256, 4),  # of each upload, 64 lines are computed at once
)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--seconds", type=float, default=5, help="duration of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure all cases in turns."""
    gpu = read("gpu").data
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:2] or cores)
    with server(["-m", "benchmarks.serving.null_service", "--gpu"], {cores[0]}) as target:
        cases = [(length, way) for length in LENGTHS for way in WAYS]
        turns = {case: functools.partial(measure_case, target, *case, args.seconds) for case in cases}
        measured = interleave(turns, args.rounds)
    yield {
        "gpu": gpu["device"].partition(",")[0],
        "gpu_batches_ms": gpu_batches_ms(gpu),
        "cases": [{"bytes": length, **way._asdict(), "rounds": measured[length, way]} for length, way in cases],
    }


def body(way: Way, length: int) -> bytes:
    """Body of a request."""
    text = document(length)
    if way.media_type == "application/octet-stream":
        return text
    if way.media_type == "application/x-ndjson":
        return (orjson.dumps({"text": text.decode()}) + b"\n") * way.documents
    return orjson.dumps({"inputs": [text.decode()] * way.documents if way.documents > 1 else text.decode()})


def measure_case(target: Server, length: int, way: Way, seconds: float) -> Data:
    """One measurement: throughput, processor time, latency of a request, mean rows of a batch."""
    requests = [post(f"{target.url}/v1/classify", body(way, length), way.media_type)]
    run(closed_loop(target.url, requests, connections=way.connections, seconds=WARM_UP_S))
    batches, used_s, load_s = batches_of(target), server_s(target), own_s()
    outcome = run(closed_loop(target.url, requests, connections=way.connections, seconds=seconds))
    load_s, used_s = own_s() - load_s, server_s(target) - used_s
    number, rows = (after - before for after, before in zip(batches_of(target), batches, strict=True))
    assert set(outcome.statuses()) == {200}, outcome.statuses()
    documents, elapsed = way.documents * len(outcome.status), float(outcome.ended.max())
    return {
        "documents_per_s": documents / elapsed,
        "processor_us": 1e6 * used_s / documents,
        "p50_ms": 1e3 * outcome.quantile(0.5),
        "p99_ms": 1e3 * outcome.quantile(0.99),
        "batch_rows": rows / number,
        "server_share": used_s / elapsed,
        "load_share": load_s / elapsed,
    }


def batches_of(target: Server) -> tuple[float, float]:
    """Number of batches of a server so far, and of their rows."""
    with urllib.request.urlopen(f"{target.url}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    values = {sample.name: sample.value for family in families for sample in family.samples}
    return values["longdoc_batch_size_count"], values["longdoc_batch_size_sum"]


def server_s(target: Server) -> float:
    """Processor time of a server so far, in seconds, with its process that parses large bodies."""
    return sum(cpu_s(pid) for pid in (target.process.pid, *descendants(target.process.pid)))


def own_s() -> float:
    """Seconds in which this thread ran, or could have run but other processes had its core."""
    ran_ns, waited_ns, _ = map(int, Path("/proc/thread-self/schedstat").read_text().split())
    return (ran_ns + waited_ns) / 1e9


def report(record: Record) -> str:
    """Report with one row per case."""
    settings, rows, busy = record.settings, [], []
    for case in record.data["cases"]:
        found = {name: [one[name] for one in case["rounds"]] for name in case["rounds"][0]}
        median = {name: statistics.median(values) for name, values in found.items()}
        row = [f"{case['bytes']:,}", case["name"], median_and_range(found["documents_per_s"])]
        row += [f"{median['processor_us']:.0f}", f"{1e6 / median['processor_us']:.0f}"]
        row += [f"{median['p50_ms']:.1f}", f"{median['p99_ms']:.1f}", f"{median['batch_rows']:.1f}"]
        rows.append([*row, f"{median['server_share']:.2f}", f"{median['load_share']:.2f}"])
        if median["load_share"] > BUSY:
            busy.append(f"- {case['bytes']:,} bytes, {case['name']}\n")
    columns = ["documents/s", "processor time, µs", "documents/s of a core", "p50 ms", "p99 ms", "rows of a batch"]
    columns += ["server's share", "load's share"]
    text = (
        f"Instead of computing, the backend sleeps as long as the GPU, {record.data['gpu']}, takes for a batch of "
        "`imdb-s3` ([report](../gpu/report.md)). The server has one core, the load another. 256 documents are in "
        "flight: 256 connections with one document in each request, 8 with 32 documents, 4 with 256 lines, of which 64 "
        f"are computed at once. Medians of {settings['rounds']} rounds of {settings['seconds']:g} s in turns; of "
        "documents/s also lowest to highest.\n\n"
        "Processor time: of the server, for each document. Documents/s of a core: its inverse. Latency: of a request. "
        "Server's share: of its core. Load's share: of the time in which it ran or waited for its core.\n\n"
        f"{table(['bytes', 'documents of a request', *columns], rows, left=2)}"
    )
    batches_ms = record.data["gpu_batches_ms"]
    rates = [
        [f"{int(bucket):,}", *(f"{1e3 * int(count) / ms:.0f}" for count, ms in of.items())]
        for bucket, of in batches_ms.items()
    ]
    counts = [str(count) for count in next(iter(batches_ms.values()))]
    text += f"\nDocuments/s of the GPU alone, by rows of a batch:\n\n{table(['bytes', *counts], rates)}"
    if busy:
        text += f"\nIn these rows, the load had more than {BUSY:g} of its core, or other processes had it: the service "
        text += f"may answer more.\n\n{''.join(busy)}"
    return text


BENCHMARK = Benchmark.of("Host side of a GPU", measure, report, None, options, PACKAGES)

if __name__ == "__main__":
    BENCHMARK.main()
