"""`python -m benchmarks.serving.fairness`: what single requests notice of a bulk job beside them.

Single documents come at random moments, with and without an endless NDJSON upload, in turns.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import statistics
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import orjson

from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.load import open_loop, post, run
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, TEXT, document, service
from benchmarks.lib.table import ratio, table

GOAL = 2.0
"""Of the p99 beside a bulk job, over the p99 alone."""
PERCENTS = (50, 90, 99)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=20, help="single requests a second (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Percentiles of the latency in each round, alone and beside the bulk job."""
    alone, beside, bulk = list[list[float]](), list[list[float]](), list[float]()
    with service("--reload-s", "0") as server:
        requests = [post(f"{server.url}/v1/classify", document(4096), TEXT)]

        def single() -> list[float]:
            outcome = run(open_loop(server.url, requests, rate=args.rate, seconds=args.seconds))
            assert set(outcome.statuses()) == {200}, outcome.statuses()
            return outcome.percentiles_ms()

        single()
        for _ in range(args.rounds):
            alone.append(single())
            with upload(server.url) as answered:
                before = answered.value
                beside.append(single())
                bulk.append((answered.value - before) / args.seconds)
    yield {
        "latency_ms": {"alone": alone, "beside the bulk job": beside},
        "bulk_documents_per_second": bulk,
    }


def report(record: Record) -> str:
    """Medians over the rounds, and their ratio."""
    settings, latency = record.settings, record.data["latency_ms"]
    bulk = {"alone": 0.0, "beside the bulk job": statistics.median(record.data["bulk_documents_per_second"])}
    series = {name: [[one[q] for one in rounds] for q in PERCENTS] for name, rounds in latency.items()}
    rows = [
        [name, *(f"{statistics.median(values):.1f}" for values in found), f"{bulk[name]:.0f}"]
        for name, found in series.items()
    ]
    ratios = [ratio(b, a) for a, b in zip(series["alone"], series["beside the bulk job"], strict=True)]
    rows.append(["ratio, median of the rounds", *ratios, ""])
    return (
        f"Documents of 4,096 bytes; {settings['rate']:g} single requests a second at random moments, "
        f"{settings['seconds']:g} s alone and beside an NDJSON upload that never ends, {settings['rounds']} rounds in "
        "turns. Server and both loads share the cores.\n\n"
        f"{table(['', *(f'p{q} ms' for q in PERCENTS), 'bulk documents/s'], rows)}\n"
        f"Goal, p99 at most {GOAL:g} times: {'reached' if float(ratios[-1]) <= GOAL else 'not reached'}.\n"
    )


def draw(record: Record, path: Path) -> None:
    """Latency of single requests; a line for each round."""
    figure, (axis,) = chart.figure((7, 3.6))
    for colour, (name, rounds) in zip(("C0", "C1"), record.data["latency_ms"].items(), strict=True):
        for number, latency in enumerate(rounds):
            label = None if number else name
            axis.plot(latency, np.linspace(0, 1, len(latency)), color=colour, alpha=0.7, linewidth=1, label=label)
    axis.set(xscale="log", xlabel="ms until the answer", ylabel="share of single requests")
    axis.legend()
    chart.save(figure, path)


@contextlib.contextmanager
def upload(url: str) -> "Iterator[multiprocessing.sharedctypes.Synchronized[int]]":
    """Upload documents in another process until the end of the block; counts those answered."""
    answered = multiprocessing.Value("q", 0)
    process = multiprocessing.get_context("fork").Process(target=_upload, args=(url, answered), daemon=True)
    process.start()
    try:
        yield answered
    finally:
        process.terminate()
        process.join()


def _upload(url: str, answered: "multiprocessing.sharedctypes.Synchronized[int]") -> None:
    asyncio.run(_stream(url, answered))


async def _stream(url: str, answered: "multiprocessing.sharedctypes.Synchronized[int]") -> None:
    """Send lines as fast as they are taken, and read the answers at the same time."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = f"POST /v1/classify HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/x-ndjson\r\n"
    writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
    line = orjson.dumps({"text": document(4096).decode()}) + b"\n"
    chunk = b"%x\r\n%s\r\n" % (len(line), line)

    async def send() -> None:
        while True:
            writer.write(chunk)
            await writer.drain()

    async def count() -> None:
        while data := await reader.read(65536):
            answered.value += data.count(b'"index":')

    await asyncio.gather(send(), count())


BENCHMARK = Benchmark(
    program="benchmarks.serving.fairness",
    title="Single requests beside a bulk job",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    chart=draw,
    packages=PACKAGES,
)

if __name__ == "__main__":
    BENCHMARK.main()
