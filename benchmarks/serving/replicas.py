"""`python -m benchmarks.serving.replicas`: how many replicas a load needs.

    python -m benchmarks.serving.replicas --documents-per-s 2000 --bytes 16384 --p99-ms 200

Simulates the load with the times in the record of `benchmarks.serving.sizing`; a refused or late request counts as
slower than any p99. Takes some seconds. At most ten replicas are simulated, each with its share of the load: more
balance a little better.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.lib import record
from benchmarks.serving.arrivals import Kind
from benchmarks.serving.simulation import Balancer, Costs
from benchmarks.serving.sizing import SMALL, capacity, simulate

STEPS = 7
"""Halvings of the interval in which the highest share of the capacity is searched."""


class Load(NamedTuple):
    """A load and the latency that it is to have."""

    documents_per_s: float
    length: int | None
    """Bytes of each document; None for a mix like film reviews."""
    p99_ms: float
    arrivals: Kind = "poisson"
    balancer: Balancer = "least"
    deadline_s: float = 30.0


class Answer(NamedTuple):
    """Replicas for a load."""

    replicas: int
    share: float
    """Share of their capacity that they use."""
    p99_ms: float
    """Simulated p99."""


def answer(costs: Costs, load: Load, requests: int, seed: int = 0) -> Answer | None:
    """Find the lowest number of replicas with the wanted p99; None if a tenth of the capacity is too much already.

    Args:
        costs: measured times.
        load: the load.
        requests: simulated for each number of replicas.
        seed: the seed of the random numbers.

    """
    most = load.documents_per_s / capacity(costs, load.length)
    simulated = 1 if load.balancer == "random" else max(1, min(SMALL, math.ceil(most)))

    def p99_ms(share: float) -> float:
        result = simulate(
            costs, requests, load.length, load.arrivals, load.balancer, simulated, share, seed, load.deadline_s
        )
        return 1e3 * result.quantile_of_all(0.99)

    low, high = 0.1, 1.0
    best = p99_ms(low)
    if best > load.p99_ms:
        return None
    for _ in range(STEPS):
        middle = (low + high) / 2
        if (found := p99_ms(middle)) <= load.p99_ms:
            low, best = middle, found
        else:
            high = middle
    replicas = math.ceil(most / low)
    return Answer(replicas, most / replicas, best)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving.replicas",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--documents-per-s", type=_positive, required=True, help="mean rate of all replicas")
    parser.add_argument("--bytes", type=int, help="length of the documents; default: a mix like film reviews")
    parser.add_argument("--p99-ms", type=_positive, required=True, help="highest p99 of the latency")
    parser.add_argument("--arrivals", choices=["poisson", "bursty"], default="poisson", help="default: %(default)s")
    parser.add_argument("--balancer", choices=["least", "random"], default="least", help="default: %(default)s")
    parser.add_argument("--deadline-s", type=_positive, default=30.0, help="of each request (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=20_000, help="simulated at a time (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=record.RESULTS, help="folder of the record (default: %(default)s)")
    args = parser.parse_args(arguments)
    if args.bytes is not None and args.bytes < 1:
        parser.error(f"argument --bytes: {args.bytes} is too short; at least 1 byte is needed")
    costs = Costs.from_data(record.read("sizing", args.out).data["costs"])
    load = Load(args.documents_per_s, args.bytes, args.p99_ms, args.arrivals, args.balancer, args.deadline_s)
    found = answer(costs, load, args.requests)
    if found is None:
        parser.exit(
            1, f"no number of replicas has a p99 of {args.p99_ms:g} ms: that is too short for these documents\n"
        )
    replicas = f"{found.replicas:,} replica{'' if found.replicas == 1 else 's'}"
    print(f"{replicas}, used to {found.share:.0%} of their capacity; simulated p99 {found.p99_ms:.0f} ms")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} must be above 0")
    return value


if __name__ == "__main__":
    main()
