"""`python -m benchmarks.serving.fairness`: latency of single requests beside other clients.

Single requests arrive at random times, in turns alone and beside clients that send without pause:

- short documents beside an endless NDJSON upload, a client that forecasts series of 8 MB, eight clients that send 8 MB
  of JSON with unknown keys, eight clients that ask for metrics;
- series of 300 KB, which another process parses, beside a client whose body is an unfinished string of 7 MB, 24 clients
  that forecast series of 5.9 MB.
"""

import argparse
import asyncio
import contextlib
import gzip
import multiprocessing
import statistics
from collections.abc import Callable, Container, Coroutine, Iterator
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
LARGE_ALONE = "300 KB alone"
BODY_BYTES = 8 * 2**20
JSON = "application/json"
Ask = Callable[[str, Any], Coroutine[Any, Any, None]]
"""Sends requests to a URL without pause, and counts the responses."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--seconds", type=float, default=15, help="duration of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=20, help="single requests per second (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Latency percentiles of each round, alone and beside others, and the responses to the other clients."""
    latency = {name: list[list[float]]() for alone, others in OTHERS.items() for name in (alone, *others)}
    answers = {name: list[float]() for others in OTHERS.values() for name in others}
    with service("--reload-s", "0") as server:
        requests = {
            ALONE: post(f"{server.url}/v1/classify", document(4096), TEXT),
            LARGE_ALONE: post(f"{server.url}/v1/forecast", series(300_000), JSON),
        }

        def single(alone: str) -> list[float]:
            outcome = run(open_loop(server.url, [requests[alone]], rate=args.rate, seconds=args.seconds))
            assert set(outcome.statuses()) == {200}, outcome.statuses()
            return outcome.percentiles_ms()

        for alone in OTHERS:
            single(alone)
        for _ in range(args.rounds):
            for alone, others in OTHERS.items():
                latency[alone].append(single(alone))
                for name, ask in others.items():
                    with beside(ask, server.url) as answered:
                        before = answered.value
                        latency[name].append(single(alone))
                        answers[name].append((answered.value - before) / args.seconds)
    yield {"latency_ms": latency, "answers_per_second": answers}


def report(record: Record) -> str:
    """Report: medians over the rounds, and ratios of the p99."""
    settings, latency, answers = record.settings, record.data["latency_ms"], record.data["answers_per_second"]
    found = {name: [[one[q] for one in rounds] for q in PERCENTS] for name, rounds in latency.items()}
    alone_of = {name: alone for alone, others in OTHERS.items() for name in others}
    rows, ratios = [], {}
    for name, values in found.items():
        cells = [f"{statistics.median(each):.1f}" for each in values]
        if name not in alone_of:
            rows.append([name, *cells, "", ""])
            continue
        ratios[name] = ratio(values[-1], found[alone_of[name]][-1])
        rows.append([name, *cells, ratios[name], f"{statistics.median(answers[name]):.1f}"])
    missed = [name for name, value in ratios.items() if float(value) > GOAL]
    heads = [*(f"p{q} ms" for q in PERCENTS), f"p{PERCENTS[-1]} / {ALONE}", "their answers/s"]
    return (
        f"Documents of 4,096 bytes and series of 300 KB; {settings['rate']:g} single requests a second at random "
        f"moments, {settings['seconds']:g} s alone and beside each of the others, {settings['rounds']} rounds in "
        "turns; medians over the rounds, of the ratio too. Server and all clients share the cores.\n\n"
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
def beside(ask: Ask, url: str) -> Iterator[Any]:
    """Send load from another process until the end of the block; yields the counter of its responses."""
    answered = multiprocessing.Value("q", 0)
    process = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(ask(url, answered)), daemon=True)
    process.start()
    try:
        yield answered
    finally:
        process.terminate()
        process.join()


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


def clients(
    count: int,
    method: str,
    path: str,
    body: Callable[[], bytes] = bytes,
    coding: str = "identity",
    expected: Container[int] = (200,),
) -> Ask:
    """Some clients that send a request without pause, each one at a time."""

    async def ask(url: str, answered: Any) -> None:
        content, headers = body(), {"content-type": JSON, "content-encoding": coding}
        assert len(content) <= BODY_BYTES
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            while True:
                response = await client.request(method, path, content=content, headers=headers)
                assert response.status_code in expected, response.text
                with answered.get_lock():
                    answered.value += 1

    async def all_ask(url: str, answered: Any) -> None:
        await asyncio.gather(*(ask(url, answered) for _ in range(count)))

    return all_ask


def unknown_keys() -> bytes:
    """An object with unknown keys."""
    return b"{" + b",".join(b'"%050x":0' % number for number in range(99_000)) + b"}"


def unfinished() -> bytes:
    """Too many commas and a string of escaped quotes without an end, compressed to 8 KB."""
    return gzip.compress(b"," * 1_000_001 + b'"' + b'\\"' * 3_500_000)


def series(size: int) -> bytes:
    """A body of about `size` bytes with a series of seven channels."""
    channel = b"[" + b"0.123456," * (size // 64) + b"1]"
    return b'{"series":[' + b",".join([channel] * 7) + b"]}"


OTHERS: dict[str, dict[str, Ask]] = {
    ALONE: {
        "beside an upload of documents": upload,
        "beside series of 8 MB": clients(1, "POST", "/v1/forecast", lambda: series(BODY_BYTES)),
        "beside eight senders of unknown keys": clients(8, "POST", "/v1/forecast", unknown_keys, expected=[422]),
        "beside eight scrapers of metrics": clients(8, "GET", "/metrics"),
    },
    LARGE_ALONE: {
        "300 KB beside an unfinished string": clients(
            1, "POST", "/v1/classify", unfinished, "gzip", expected=range(400, 500)
        ),
        "300 KB beside 24 senders of 5.9 MB": clients(24, "POST", "/v1/forecast", lambda: series(5_900_000)),
    },
}
"""Single requests alone -> the same beside clients that send without pause."""

BENCHMARK = Benchmark.of("Single requests beside other clients", measure, report, draw, options, PACKAGES)

if __name__ == "__main__":
    BENCHMARK.main()
