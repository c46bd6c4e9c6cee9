"""`python -m benchmarks.serving.batch_rows`: throughput by maximum batch size on this CPU.

Servers with different limits are saturated, interleaved.
"""

import argparse
import contextlib
from collections.abc import Callable, Iterator

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.interleave import interleave
from benchmarks.lib.load import closed_loop, post, run
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, TEXT, Server, document, service
from benchmarks.lib.table import median_and_range, ratio, table

CONNECTIONS = 32


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8, 16, 32], help="limits to compare")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=4, help="duration of each measurement (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Documents per second of every round, by batch size."""

    def load(target: Server) -> Callable[[], float]:
        requests = [post(f"{target.url}/v1/classify", document(4096), TEXT)]
        return lambda: run(closed_loop(target.url, requests, connections=CONNECTIONS, seconds=args.seconds)).throughput

    with contextlib.ExitStack() as stack:
        turns = {
            str(rows): load(stack.enter_context(service("--reload-s", "0", "--max-batch-rows", str(rows))))
            for rows in args.rows
        }
        yield {"documents_per_second": interleave(turns, args.rounds)}


def report(record: Record) -> str:
    """Report with one row per limit."""
    settings, measured = record.settings, record.data["documents_per_second"]
    first = str(settings["rows"][0])
    rows = [[limit, median_and_range(found), ratio(found, measured[first])] for limit, found in measured.items()]
    return (
        f"Documents of 4,096 bytes, {CONNECTIONS} connections that ask as fast as they are answered, "
        f"{settings['rounds']} rounds of {settings['seconds']:g} s in turns; server and load share the cores.\n\n"
        f"{table(['rows at most', 'documents/s', f'ratio to {first}'], rows)}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.serving.batch_rows",
    title="Rows in a batch",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=PACKAGES,
)

if __name__ == "__main__":
    BENCHMARK.main()
