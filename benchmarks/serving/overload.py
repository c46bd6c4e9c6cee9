"""`python -m benchmarks.serving.overload`: outcome of each request under overload.

Measures the capacity with a closed loop, then sends 2 and 10 times as many requests at random times, each with a
deadline, and measures the capacity again. Reports requests answered in time, late, refused and failed; Retry-After;
memory. With `--haproxy`, measures the same again behind HAProxy with the configuration of the Compose profile `scaled`.
"""

import argparse
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.haproxy import haproxy, version_of
from benchmarks.lib.load import closed_loop, open_loop, post, run
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, TEXT, Server, document, service
from benchmarks.lib.table import table

EXPECTED = {200, 429, 503, 504}
"""Statuses allowed under overload."""
TIMES = (2, 10)
"""Offered rates, as multiples of the capacity."""
CAPACITY_S = 8.0
"""Duration of each measurement of the capacity."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--seconds", type=float, default=60, help="duration of each overload (default: %(default)s)")
    parser.add_argument("--deadline-ms", type=int, default=2000, help="deadline of each request (default: %(default)s)")
    parser.add_argument("--haproxy", metavar="PROGRAM", help="also measure behind HAProxy")
    parser.add_argument("--bytes", type=int, nargs="+", default=[4096, 16384, 65536], help="sizes of the documents")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure one case after the other; the server has one core, the load and HAProxy the others."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    cases: list[Data] = []
    found: Data = {"haproxy": version_of(args.haproxy) if args.haproxy else None, "cases": cases}
    for length in args.bytes:
        with service("--reload-s", "0", cores={cores[0]}) as server:
            fronts: list[AbstractContextManager[str]] = [nullcontext(server.url)]
            if args.haproxy:
                fronts.append(haproxy(args.haproxy, [server.url]))
            for front in fronts:
                with front as url:
                    for times in TIMES:
                        case = overload(server, url, document(length), times, args.seconds, args.deadline_ms)
                        cases.append({"bytes": length, "times": times, "haproxy": url != server.url, **case})
                        yield found
            server.stop()


def overload(server: Server, address: str, body: bytes, times: int, seconds: float, deadline_ms: int) -> Data:
    """Run one overload between two measurements of the capacity; the address is that of the server or of HAProxy."""
    url, deadline_s = f"{address}/v1/classify", deadline_ms / 1000
    before, memory_before = capacity(address, post(url, body, TEXT)), server.rss_mib()
    requests = [post(url, body, TEXT, {"x-request-timeout-ms": str(deadline_ms)})]
    outcome = run(open_loop(address, requests, rate=times * before, seconds=seconds))
    memory_after = server.rss_mib()
    statuses = outcome.statuses()
    is_in_time = outcome.answered & (outcome.ended - outcome.due <= deadline_s)
    in_time = int(is_in_time.sum())
    others = sum(count for status, count in statuses.items() if status not in EXPECTED)
    refused = np.isin(outcome.status, (429, 503))
    return {
        "capacity": [before, capacity(address, post(url, body, TEXT))],
        "offered": times * before,
        "in_time": in_time,
        "goodput": float((is_in_time & (outcome.ended <= seconds)).sum() / seconds),
        "late": int(outcome.answered.sum()) - in_time,
        "statuses": {str(status): count for status, count in statuses.items()},
        "other": others + sum(outcome.failures.values()),
        "refused_with_retry_after": float(outcome.has_retry_after[refused].mean()) if refused.any() else None,
        "memory_mb": [memory_before, memory_after],
        "latency_ms": outcome.percentiles_ms(),
    }


def capacity(address: str, request: bytes) -> float:
    """Responses per second in a closed loop, in which no request is refused.

    The requests set no deadline: with the deadline of the overload, 32 long documents would wait too long for it.
    """
    outcome = run(closed_loop(address, [request], connections=32, seconds=CAPACITY_S))
    assert set(outcome.statuses()) == {200}, outcome.statuses()
    return outcome.throughput


def report(record: Record) -> str:
    """Report with one row per case."""
    settings = record.settings
    columns = ["", "capacity/s", "offered/s", "goodput/s", "share", "late", "429", "503", "504", "other", "Retry-After"]
    columns += ["p50 ms", "p99 ms", "memory MiB before, after"]
    version = record.data.get("haproxy")
    proxy = f" and, where it is named, HAProxy {version} with `docker/haproxy.cfg`" if version else ""
    return (
        f"The server has one core, the load{proxy} another. Each request has a deadline of "
        f"{settings['deadline_ms']} ms (`X-Request-Timeout-Ms`) and comes at a random moment, for "
        f"{settings['seconds']:g} s. Capacity: mean throughput of two closed loops of 32 connections, one before and "
        "one after, without a deadline. Goodput: answers a second within the deadline, as the client sees it, while "
        "requests are sent; share: of the capacity.\n\n"
        f"{table(columns, [cells(case) for case in record.data['cases']])}"
    )


def cells(case: Data) -> list[str]:
    """Row of the table."""
    capacity, goodput = sum(case["capacity"]) / 2, case["goodput"]
    retry_after, latency = case["refused_with_retry_after"], case["latency_ms"]
    return [
        f"{case['bytes']:,} bytes, {case['times']} x{', HAProxy' if case.get('haproxy') else ''}",
        f"{capacity:.0f}",
        f"{case['offered']:.0f}",
        f"{goodput:.0f}",
        f"{goodput / capacity:.2f}",
        str(case["late"]),
        *(str(case["statuses"].get(status, 0)) for status in ("429", "503", "504")),
        str(case["other"]),
        "" if retry_after is None else f"{retry_after:.0%}",
        f"{latency[50]:.0f}" if latency else "",
        f"{latency[99]:.0f}" if latency else "",
        ", ".join(f"{memory:.0f}" for memory in case["memory_mb"]),
    ]


BENCHMARK = Benchmark.of("Overload", measure, report, None, options, PACKAGES)

if __name__ == "__main__":
    BENCHMARK.main()
