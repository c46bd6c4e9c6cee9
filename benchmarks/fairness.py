"""`python -m benchmarks.fairness`: what single requests notice of a bulk job beside them.

Single documents come at random moments, with and without an endless NDJSON upload, in turns. Writes `fairness.md` and
`.png` into `benchmarks/results/`.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import statistics
from collections.abc import Iterator
from urllib.parse import urlsplit

import matplotlib
import numpy as np
import orjson

from benchmarks.load import open_loop, post, run
from benchmarks.served import RESULTS, TEXT, document, header, service, table

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

NAME = "fairness"
GOAL = 2.0


def main() -> None:
    """Measure, print the table, write it and the chart."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=20, help="single requests a second (default: %(default)s)")
    args = parser.parse_args()
    head = header(
        "Single requests beside a bulk job",
        [
            f"Documents of 4,096 bytes; {args.rate:g} single requests a second at random moments, {args.seconds:g} s "
            f"alone and beside an NDJSON upload that never ends, {args.rounds} rounds in turns. Server and both loads "
            "share the cores."
        ],
        f"python -m benchmarks.fairness --seconds {args.seconds:g} --rounds {args.rounds} --rate {args.rate:g}",
    )
    alone, beside, lines = list[np.ndarray](), list[np.ndarray](), list[float]()
    with service("--reload-s", "0") as server:
        requests = [post(f"{server.url}/v1/classify", document(4096), TEXT)]

        def measure() -> np.ndarray:
            outcome = run(open_loop(server.url, requests, rate=args.rate, seconds=args.seconds))
            assert set(outcome.statuses()) == {200}, outcome.statuses()
            return outcome.latencies

        measure()
        for _ in range(args.rounds):
            alone.append(measure())
            with _bulk(server.url) as answered:
                before = answered.value
                beside.append(measure())
                lines.append((answered.value - before) / args.seconds)
    rows = [
        [name, *(f"{1e3 * statistics.median(np.quantile(r, q) for r in rounds):.1f}" for q in (0.5, 0.9, 0.99)), bulk]
        for name, rounds, bulk in (
            ("alone", alone, "0"),
            ("beside the bulk job", beside, f"{statistics.median(lines):.0f}"),
        )
    ]
    ratios = [
        [np.quantile(b, q) / np.quantile(a, q) for a, b in zip(alone, beside, strict=True)] for q in (0.5, 0.9, 0.99)
    ]
    rows.append(["ratio, median of the rounds", *(f"{statistics.median(r):.2f}" for r in ratios), ""])
    reached = "reached" if statistics.median(ratios[2]) <= GOAL else "not reached"
    body = table(["", "p50 ms", "p90 ms", "p99 ms", "bulk documents/s"], rows)
    report = f"{head}\n{body}\nGoal, p99 at most {GOAL:g} times: {reached}.\n"
    print(report)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{NAME}.md").write_text(report)
    figure, axis = pyplot.subplots(figsize=(7, 3.6))
    for name, rounds in (("alone", alone), ("beside the bulk job", beside)):
        latencies = np.sort(np.concatenate(rounds))
        axis.plot(1e3 * latencies, np.linspace(0, 1, latencies.size), label=name)
    axis.set_xscale("log")
    axis.set_xlabel("ms until the answer")
    axis.set_ylabel("share of single requests")
    axis.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / f"{NAME}.png", dpi=120)


@contextlib.contextmanager
def _bulk(url: str) -> "Iterator[multiprocessing.sharedctypes.Synchronized[int]]":
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
    """Send lines as fast as they are taken, and read the answers beside."""
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


if __name__ == "__main__":
    main()
