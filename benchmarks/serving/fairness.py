"""`python -m benchmarks.serving.fairness`: latency of single requests beside other clients.

Single documents arrive at random times, in turns alone and beside clients that send without pause: an endless NDJSON
upload, a client that forecasts series of 8 MB, eight clients that send 8 MB of JSON with unknown keys.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import statistics
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import orjson

from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.load import open_loop, post, run
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, TEXT, document, service
from benchmarks.lib.table import ratio, table

GOAL = 2.0
"""Maximum ratio of the p99 beside others to the p99 alone."""
PERCENTS = (50, 90, 99)
ALONE = "alone"
BODY_BYTES = 8 * 2**20
SENSELESS_CLIENTS = 8


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--seconds", type=float, default=15, help="duration of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=20, help="single requests per second (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Latency percentiles of each round, alone and beside others, and the responses to the other clients."""
    latency = {name: list[list[float]]() for name in (ALONE, *OTHERS)}
    answers = {name: list[float]() for name in OTHERS}
    with service("--reload-s", "0") as server:
        requests = [post(f"{server.url}/v1/classify", document(4096), TEXT)]

        def single() -> list[float]:
            outcome = run(open_loop(server.url, requests, rate=args.rate, seconds=args.seconds))
            assert set(outcome.statuses()) == {200}, outcome.statuses()
            return outcome.percentiles_ms()

        single()
        for _ in range(args.rounds):
            latency[ALONE].append(single())
            for name, ask in OTHERS.items():
                with beside(ask, server.url) as answered:
                    before = answered.value
                    latency[name].append(single())
                    answers[name].append((answered.value - before) / args.seconds)
    yield {"latency_ms": latency, "answers_per_second": answers}


def report(record: Record) -> str:
    """Report: medians over the rounds, and ratios of the p99."""
    settings, latency, answers = record.settings, record.data["latency_ms"], record.data["answers_per_second"]
    series = {name: [[one[q] for one in rounds] for q in PERCENTS] for name, rounds in latency.items()}
    rows, ratios = [], {}
    for name, found in series.items():
        cells = [f"{statistics.median(values):.1f}" for values in found]
        if name == ALONE:
            rows.append([name, *cells, "", ""])
            continue
        ratios[name] = ratio(found[-1], series[ALONE][-1])
        rows.append([name, *cells, ratios[name], f"{statistics.median(answers[name]):.1f}"])
    missed = [name for name, value in ratios.items() if float(value) > GOAL]
    heads = [*(f"p{q} ms" for q in PERCENTS), f"p{PERCENTS[-1]} / {ALONE}", "their answers/s"]
    return (
        f"Documents of 4,096 bytes; {settings['rate']:g} single requests a second at random moments, "
        f"{settings['seconds']:g} s alone and beside each of the others, {settings['rounds']} rounds in turns; medians "
        "over the rounds, of the ratio too. Server and all clients share the cores.\n\n"
        f"{table(['', *heads], rows)}\n"
        f"Goal, p99 at most {GOAL:g} times: {'missed ' + ', '.join(missed) if missed else 'reached'}.\n"
    )


def draw(record: Record, path: Path) -> None:
    """Chart of the latency of single requests, one line per round."""
    figure, (axis,) = chart.figure((7, 3.6))
    for colour, (name, rounds) in enumerate(record.data["latency_ms"].items()):
        for number, latency in enumerate(rounds):
            label = None if number else name
            shares = np.linspace(0, 1, len(latency))
            axis.plot(latency, shares, color=f"C{colour}", alpha=0.7, linewidth=1, label=label)
    axis.set(xscale="log", xlabel="ms until the answer", ylabel="share of single requests")
    axis.legend()
    chart.save(figure, path)


@contextlib.contextmanager
def beside(ask: Callable[[str, Any], Coroutine[Any, Any, None]], url: str) -> Iterator[Any]:
    """Send load from another process until the end of the block; yields the counter of its responses."""
    answered = multiprocessing.Value("q", 0)
    process = multiprocessing.get_context("fork").Process(target=_run, args=(ask, url, answered), daemon=True)
    process.start()
    try:
        yield answered
    finally:
        process.terminate()
        process.join()


def _run(ask: Callable[[str, Any], Coroutine[Any, Any, None]], url: str, answered: Any) -> None:
    asyncio.run(ask(url, answered))


async def upload(url: str, answered: Any) -> None:
    """Upload lines as fast as the server reads them, and read the answers concurrently."""
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


async def large_series(url: str, answered: Any) -> None:
    """One client that sends series of seven channels with the maximum body size."""
    channel = b"[" + b"0.123456," * (BODY_BYTES // 64) + b"1]"
    await _post(url, b'{"series":[' + b",".join([channel] * 7) + b"]}", answered, expected=200)


async def senseless(url: str, answered: Any) -> None:
    """Eight clients that send objects with unknown keys, with the maximum body size."""
    keys = b",".join(b'"%050x":0' % number for number in range(99_000))
    await asyncio.gather(*(_post(url, b"{" + keys + b"}", answered, expected=422) for _ in range(SENSELESS_CLIENTS)))


async def _post(url: str, body: bytes, answered: Any, *, expected: int) -> None:
    """Post a body repeatedly, one request at a time."""
    assert len(body) <= BODY_BYTES
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        while True:
            response = await client.post("/v1/forecast", content=body, headers={"content-type": "application/json"})
            assert response.status_code == expected, response.text
            with answered.get_lock():
                answered.value += 1


OTHERS: dict[str, Callable[[str, Any], Coroutine[Any, Any, None]]] = {
    "beside an upload of documents": upload,
    "beside series of 8 MB": large_series,
    "beside eight senders of unknown keys": senseless,
}
"""Clients that send without pause."""

BENCHMARK = Benchmark(
    program="benchmarks.serving.fairness",
    title="Single requests beside other clients",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    chart=draw,
    packages=PACKAGES,
)

if __name__ == "__main__":
    BENCHMARK.main()
