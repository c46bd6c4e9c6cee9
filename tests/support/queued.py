"""A benchmark for tests of the queue, as a program: counts up to `--parts`, or waits or fails after the first part."""

import argparse
import signal
import time
from collections.abc import Iterator

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, earlier
from tests.support.waiting import PATIENCE_S


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default="queued")
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--then", choices=["go on", "wait", "wait on", "fail"], default="go on")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Yield the numbers that the record lacks; each call adds its number of calls."""
    data = earlier("queued", args.out) or {"calls": 0, "numbers": {}}
    data["calls"] += 1
    numbers = data["numbers"].setdefault(args.name, [])
    for number in range(len(numbers), args.parts):
        numbers.append(number)
        yield data
        if args.then == "fail":
            raise RuntimeError("no more")
        if args.then == "wait on":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (args.out / "deaf").touch()
        if args.then.startswith("wait"):
            time.sleep(PATIENCE_S)


def missing(args: argparse.Namespace) -> list[str]:
    done = len(earlier("queued", args.out).get("numbers", {}).get(args.name, []))
    return [str(number) for number in range(done, args.parts)]


BENCHMARK = Benchmark(
    program="tests.support.queued",
    title="Queued",
    description="",
    options=options,
    measure=measure,
    report=lambda measured: str(measured.data),
    missing=missing,
)

if __name__ == "__main__":
    BENCHMARK.main()
