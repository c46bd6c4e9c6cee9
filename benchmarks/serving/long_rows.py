"""`python -m benchmarks.serving.long_rows`: documents of up to 64 KiB that are one row each, beside short ones.

Needs a classifier that reads 65,536 bytes at once. Measures

- the latency of documents of 1 KiB, in turns alone and beside documents of 64 KiB at half of the server's capacity for
  these;
- the outcome of each request at twice the capacity for a mix of lengths;
- the memory of the server with 64 concurrent documents of 64 KiB.
"""

import argparse
import asyncio
import statistics
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import numpy as np

from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.load import Outcome, closed_loop, open_loop, post, run
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, TEXT, Server, document, service
from benchmarks.lib.table import ratio, table

GOAL = 1.5
"""Maximum ratio of the p99 beside long documents to the p99 alone."""
PERCENTS = (50, 90, 99)
SHORT, LONG = 1024, 65536
LENGTHS = tuple(256 << i for i in range(9))
"""Lengths of the mix, 256 to 65,536 bytes."""
SHARE = 0.5
"""Rate of the long documents beside the short ones, as a share of the capacity."""
TIMES = 2
"""Rate of the mix, as a multiple of the capacity."""
CAPACITY_S = 8.0
"""Duration of each measurement of a capacity."""
CONNECTIONS = 32
CONCURRENT = 64
"""Concurrent long documents while memory is measured."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--exports", type=Path, default=Path("exports"), help="default: %(default)s")
    parser.add_argument("--model", help="name of a classifier that reads 65,536 bytes at once (default: the default)")
    parser.add_argument("--version", type=int, help="of the model (default: the latest)")
    parser.add_argument("--seconds", type=float, default=15, help="duration of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=50, help="short documents per second (default: %(default)s)")
    parser.add_argument("--deadline-ms", type=int, default=2000, help="deadline in the mix (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure latency, overload and memory, each on a server of its own; server and load share the cores."""
    with serve(args) as server:
        data: Data = {"model": model_of(server)}
    for name, part in (("beside", beside), ("overload", overload), ("memory", memory)):
        with serve(args) as server:
            data[name] = part(server, args)
            yield data


def serve(args: argparse.Namespace) -> AbstractContextManager[Server]:
    """Run the service with the model alone, or with all models if none is named."""
    flags = ["--reload-s", "0", "--exports", str(args.exports.absolute())]
    if args.model is not None:
        flags += ["--models", args.model]
        if args.version is not None:
            flags += ["--version-policy", f"{args.model}:{args.version}"]
    return service(*flags)


def model_of(server: Server) -> str:
    """Name and version of the model. Raises: SystemExit if it reads a long document as windows."""
    headers = {"content-type": TEXT}
    answer = httpx.post(f"{server.url}/v1/classify", content=document(LONG), headers=headers, timeout=60).json()
    name = f"{answer['model']}@{answer['version']}"
    if (windows := answer["results"][0]["coverage"]["windows"]) != 1:
        raise SystemExit(f"{name} reads {LONG:,} bytes as {windows} windows; --model names another one")
    return name


def requests(server: Server, lengths: Sequence[int], deadline_ms: int | None = None) -> list[bytes]:
    """A request for a document of each length."""
    headers = {} if deadline_ms is None else {"x-request-timeout-ms": str(deadline_ms)}
    return [post(f"{server.url}/v1/classify", document(length), TEXT, headers) for length in lengths]


def capacity(server: Server, lengths: Sequence[int]) -> float:
    """Responses per second in a closed loop of documents of these lengths in turns."""
    load = closed_loop(server.url, requests(server, lengths), connections=CONNECTIONS, seconds=CAPACITY_S)
    return run(load).throughput


def beside(server: Server, args: argparse.Namespace) -> Data:
    """Latency percentiles of each round: of short documents alone and beside long ones, and of the long ones."""
    short, long = requests(server, [SHORT]), requests(server, [LONG])
    full = capacity(server, [LONG])
    rounds: dict[str, list[list[float]]] = {"alone": [], "beside": [], "long": []}

    async def both() -> tuple[Outcome, Outcome]:
        return await asyncio.gather(
            open_loop(server.url, short, rate=args.rate, seconds=args.seconds),
            open_loop(server.url, long, rate=SHARE * full, seconds=args.seconds, seed=1),
        )

    for _ in range(args.rounds):
        alone = run(open_loop(server.url, short, rate=args.rate, seconds=args.seconds))
        others = run(both())
        for name, outcome in zip(rounds, (alone, *others), strict=True):
            assert set(outcome.statuses()) == {200}, (name, outcome.statuses())
            rounds[name].append(outcome.percentiles_ms())
    return {"capacity": full, "latency_ms": rounds}


def overload(server: Server, args: argparse.Namespace) -> Data:
    """Outcome of each request of the mix at TIMES the capacity, by length."""
    full = capacity(server, LENGTHS)
    rate = TIMES * full / len(LENGTHS)

    async def mix() -> list[Outcome]:
        loads = (
            open_loop(server.url, [request], rate=rate, seconds=args.seconds, seed=seed)
            for seed, request in enumerate(requests(server, LENGTHS, args.deadline_ms))
        )
        return await asyncio.gather(*loads)

    cases: list[Data] = []
    for length, outcome in zip(LENGTHS, run(mix()), strict=True):
        statuses = {str(status): count for status, count in outcome.statuses().items()}
        in_time = int((outcome.latencies <= args.deadline_ms / 1000).sum())
        cases.append(
            {
                "bytes": length,
                "in_time": in_time,
                "late": int(outcome.answered.sum()) - in_time,
                "statuses": statuses,
                "failures": outcome.failures.total(),
                "latency_ms": outcome.percentiles_ms(),
            }
        )
    return {"capacity": full, "cases": cases}


def memory(server: Server, args: argparse.Namespace) -> Data:
    """Peak resident memory in MiB before and with CONCURRENT long documents."""
    before = server.peak_rss_mib()
    load = closed_loop(server.url, requests(server, [LONG]), connections=CONCURRENT, seconds=args.seconds)
    return {"statuses": {str(k): v for k, v in run(load).statuses().items()}, "mib": [before, server.peak_rss_mib()]}


def report(record: Record) -> str:
    """Report: medians over the rounds, ratio of the p99, outcomes by length, memory."""
    settings, data = record.settings, record.data
    latency = data["beside"]["latency_ms"]
    p99 = {name: [one[99] for one in rounds] for name, rounds in latency.items()}
    found = ratio(p99["beside"], p99["alone"])
    names = {
        "alone": f"{SHORT:,} bytes, alone",
        "beside": f"{SHORT:,} bytes, beside",
        "long": f"{LONG:,} bytes",
    }
    rows = [
        [
            names[name],
            *(f"{statistics.median(one[q] for one in rounds):.1f}" for q in PERCENTS),
            found if name == "beside" else "",
        ]
        for name, rounds in latency.items()
    ]
    text = (
        f"Model {data['model']}. Server and load share the cores.\n\n"
        f"{settings['rate']:g} documents of {SHORT:,} bytes a second at random moments, {settings['seconds']:g} s "
        f"alone and beside documents of {LONG:,} bytes at half of the capacity of {data['beside']['capacity']:.0f}/s, "
        f"{settings['rounds']} rounds in turns; medians over the rounds, of the ratio too.\n\n"
        f"{table(['', *(f'p{q} ms' for q in PERCENTS), 'p99 / alone'], rows)}\n"
        f"Goal, p99 at most {GOAL:g} times: {'reached' if float(found) <= GOAL else 'missed'}.\n"
    )
    if "overload" in data:
        text += _overload_text(data["overload"], settings)
    if "memory" in data:
        before, peak = data["memory"]["mib"]
        text += (
            f"\nPeak resident memory of the server: {before:.0f} MiB after the start, {peak:.0f} MiB with {CONCURRENT} "
            f"concurrent documents of {LONG:,} bytes.\n"
        )
    return text


def _overload_text(data: Data, settings: Data) -> str:
    """Table of the mix, one row per length."""
    rows = [
        [
            f"{case['bytes']:,} bytes",
            str(case["in_time"]),
            str(case["late"]),
            *(str(case["statuses"].get(status, 0)) for status in ("429", "503", "504")),
            str(case["failures"]),
            *(f"{case['latency_ms'][q]:.0f}" if case["latency_ms"] else "" for q in (50, 99)),
        ]
        for case in data["cases"]
    ]
    return (
        f"\nA mix of lengths in equal numbers at {TIMES} times the capacity of {data['capacity']:.0f}/s, for "
        f"{settings['seconds']:g} s; each request has a deadline of {settings['deadline_ms']} ms.\n\n"
        f"{table(['', 'in time', 'late', '429', '503', '504', 'no answer', 'p50 ms', 'p99 ms'], rows)}"
    )


def draw(record: Record, path: Path) -> None:
    """Chart of the latency of short documents, one line per round."""
    figure, (axis,) = chart.figure((7, 3.6))
    for colour, name in enumerate(("alone", "beside")):
        for number, latency in enumerate(record.data["beside"]["latency_ms"][name]):
            label = None if number else name
            shares = np.linspace(0, 1, len(latency))
            axis.plot(latency, shares, color=f"C{colour}", alpha=0.7, linewidth=1, label=label)
    axis.set(xscale="log", xlabel="ms until the answer", ylabel="share of short documents")
    axis.legend()
    chart.save(figure, path)


BENCHMARK = Benchmark(
    program="benchmarks.serving.long_rows",
    title="Long rows beside short ones",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    chart=draw,
    packages=PACKAGES,
)

if __name__ == "__main__":
    BENCHMARK.main()
