"""`python -m benchmarks.serving.sizing`: how many replicas a load needs, by simulation.

Measures the times that the simulation needs on one core (part `costs`), compares the simulation with real servers
(`validation`), and simulates pools of up to 1,000 replicas (`pools`). Parts that are not measured keep their results.
So does a study whose program is at revision bd3cb798771e: changes of the number of replicas (`autoscaling`).
`benchmarks.serving.replicas` answers for other loads.
"""

import argparse
import math
import os
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from artifact.cores import cpu_count
from benchmarks.lib import chart, record
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES
from benchmarks.lib.table import table
from benchmarks.serving import service_times, validation
from benchmarks.serving.arrivals import Bursts, Kind, bursty, mixed_lengths
from benchmarks.serving.simulation import Balancer, Costs, Pool, Result, Simulation

PARTS = ("costs", "validation", "pools")
LENGTHS: tuple[int | None, ...] = (1024, 4096, 16384, 65536, None)
"""Document bytes of the simulated loads; None is a mix like film reviews."""
SHARES = (0.4, 0.6, 0.8, 0.9)
"""Rates of the simulated loads, as shares of the replicas' capacity."""
OVERLOADS = (1.2,)
POOLS = (10, 100, 1000)
POOL_SHARES = (0.6, 0.8, 0.9)
POOL_LENGTH = 4096
TARGETS_MS = (50, 100, 200)
LOADS = (2_000, 20_000, 200_000)
"""Documents per second of the table."""
SEEDS = 3
DEADLINE_S = 1.0
"""Deadline of each request in `loads` and `pools`."""
WARM_UP = 0.2
"""Share of the requests, from the first, that does not count."""
FIGURES = {"answers_per_s": ".0f", "p50_ms": ".1f", "p99_ms": ".1f"}
"""Compared figures and their formats."""
SIDES = ("", "simulated ", "off, ")
"""How columns of a figure begin: measured, simulated, the difference."""
SMALL = 10
"""Below this number of replicas, the balancer is taken to choose at random: fewer replicas balance less."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    parser.add_argument("--requests", type=int, default=10_000, help="per seed and load (default: %(default)s)")
    parser.add_argument("--pool-requests", type=int, default=50_000, help="with 1,000 replicas (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure or simulate the chosen parts; the others are those of the existing record."""
    cores = sorted(os.sched_getaffinity(0))
    data = record.earlier("sizing", args.out)
    if "costs" in args.parts:
        data = {**data, "costs": service_times.measure(cores[0], cores[-1])}
        os.sched_setaffinity(0, cores)
        yield data
    if "validation" in args.parts:
        data = {**data, "validation": []}
        for case in validation.compare(data["costs"], cores[0], cores[-1]):
            data["validation"].append(case)
            yield data
        os.sched_setaffinity(0, cores)
    if "pools" in args.parts:
        with ProcessPoolExecutor(cpu_count(), get_context("spawn")) as executor:
            for pools in simulate_pools(executor, data["costs"], args.requests, args.pool_requests):
                data = {**data, **pools}
                yield data


def simulate_pools(executor: Executor, costs: Data, requests: int, pool_requests: int) -> Iterator[Data]:
    """Latency and refusals by load: of single replicas and of ten, by length; of up to 1,000, of one length."""
    loads = [
        {"bytes": length, "arrivals": arrivals, "balancer": balancer, "replicas": replicas, "share": share}
        for length in LENGTHS
        for arrivals, balancer, replicas in (
            ("poisson", "least", SMALL),
            ("poisson", "random", 1),
            ("bursty", "random", 1),
        )
        for share in (*SHARES, *OVERLOADS)
    ]
    yield {"loads": list(executor.map(partial(simulate_load, costs, requests), loads))}
    pools = [
        {"bytes": POOL_LENGTH, "arrivals": "poisson", "balancer": "least", "replicas": replicas, "share": share}
        for share in POOL_SHARES
        for replicas in POOLS
    ]
    yield {"pools": list(executor.map(partial(simulate_load, costs, requests, pool_requests=pool_requests), pools))}


def simulate_load(costs: Data, requests: int, load: Data, pool_requests: int = 0) -> Data:
    """Simulate a load with several seeds; p50 and p99 in ms, refused or late requests as a share."""
    count = max(requests, pool_requests * load["replicas"] // 1000)
    results = [
        simulate(
            Costs.from_data(costs), count, load["bytes"], load["arrivals"], load["balancer"], load["replicas"],
            load["share"], seed,
        )
        for seed in range(SEEDS)
    ]  # fmt: skip
    return {
        **load,
        "requests": SEEDS * count,
        "p50_ms": [round(1e3 * result.quantile(0.5), 2) for result in results],
        "p99_ms": [round(1e3 * result.quantile(0.99), 2) for result in results],
        "refused": [round(result.refused, 5) for result in results],
    }


def simulate(
    costs: Costs,
    requests: int,
    length: int | None,
    arrivals: Kind,
    balancer: Balancer,
    replicas: int,
    share: float,
    seed: int = 0,
    deadline_s: float = DEADLINE_S,
) -> Result:
    """Simulate a load at a share of the replicas' capacity, without its warm-up."""
    generator = np.random.default_rng([seed, 1])
    lengths = mixed_lengths(requests, generator) if length is None else np.full(requests, length)
    rate = share * replicas * capacity(costs, length)
    if arrivals == "poisson":
        times = np.cumsum(generator.exponential(1 / rate, requests))
    else:
        times = bursty(rate, requests / rate, Bursts(), generator)[:requests]
    simulation = Simulation(costs, Pool(replicas, balancer, deadline_s), seed)
    return simulation.run(times, lengths[: len(times)]).after(WARM_UP * float(times[-1]))


def capacity(costs: Costs, length: int | None) -> float:
    """Documents per second of one core."""
    return costs.capacity([length] if length else mixed_lengths(2000, np.random.default_rng(0)).tolist())


def sustained(loads: Sequence[Data], target_ms: float) -> float:
    """Highest share of the capacity at which the mean p99 is within a target, and at most 0.1 % are refused.

    Linear in the logarithm of the p99 between the simulated shares; 0 if the lowest one is too high.
    """
    best = 0.0
    earlier: tuple[float, float] | None = None
    for load in sorted(loads, key=lambda load: float(load["share"])):
        share, p99 = load["share"], statistics.mean(load["p99_ms"])
        if p99 <= target_ms and statistics.mean(load["refused"]) <= 0.001:
            best, earlier = share, (share, p99)
            continue
        if earlier is not None and p99 > target_ms:
            before, low = earlier
            best = before + (share - before) * math.log(target_ms / low) / math.log(p99 / low)
        break
    return min(best, SHARES[-1])


def replicas_for(data: Data, rate: float, length: int | None, arrivals: Kind, target_ms: float) -> int | None:
    """Replicas for a load, from a record; None if no number reaches the target."""
    per_core = capacity(Costs.from_data(data["costs"]), length)
    balancers: list[Balancer] = ["random", "least"] if arrivals == "poisson" else ["random"]
    found: int | None = None
    for balancer in balancers:
        share = sustained(select(data, length, arrivals, balancer), target_ms)
        replicas = math.ceil(rate / (share * per_core)) if share else None
        if replicas is not None and (balancer == "random" or replicas >= SMALL):
            found = replicas
    return found


def select(data: Data, length: int | None, arrivals: Kind, balancer: Balancer) -> list[Data]:
    """The loads of a record with these properties."""
    wanted = (length, arrivals, balancer)
    return [load for load in data["loads"] if (load["bytes"], load["arrivals"], load["balancer"]) == wanted]


def size(length: int | None) -> str:
    """Name of a length in tables."""
    return "mix" if length is None else f"{length / 1024:g} KB"


def report(record_: Record) -> str:
    """Report: replicas, pools, autoscaling, validation, costs."""
    data = record_.data
    parts = [
        *(_answers(data) if "loads" in data else []),
        *(_pools(data) if "pools" in data else []),
        *(_autoscaling(data) if "autoscaling" in data else []),
        *(_validation(data) if "validation" in data else []),
        *_costs(data),
    ]
    return "\n".join(parts)


def _answers(data: Data) -> list[str]:
    rows = []
    for length in LENGTHS:
        for arrivals in ("poisson", "bursty"):
            for target in TARGETS_MS:
                found = [replicas_for(data, rate, length, arrivals, target) for rate in LOADS]
                cells = ["not reached" if replicas is None else f"{replicas:,}" for replicas in found]
                rows.append([size(length), arrivals, str(target), *cells])
    columns = ["documents", "arrivals", "p99 at most, ms", *(f"{rate:,}/s" for rate in LOADS)]
    bursts = Bursts()
    return [
        "A replica is one process on one core. KB: 1,024 bytes.",
        "",
        "## Replicas",
        "",
        f"Bursty: the rate is {bursts.factor:g} times the mean for {bursts.burst_s:g} s on average, "
        f"{bursts.share:.0%} of the time. The balancer chooses the replica with the fewest open requests, or at random "
        "if the arrivals are bursty or if "
        f"fewer than {SMALL} replicas are enough. Requests have a deadline of "
        f"{DEADLINE_S:g} s, and at most 0.1 % of them are refused.",
        "",
        table(columns, rows, left=2),
        "## Load of one replica",
        "",
        "Rate: share of the capacity, which is the inverse of the work of one document at a time. Poisson arrivals: "
        f"the replica with the fewest requests of {SMALL}; bursty: random choice. Mean ± standard error of {SEEDS} "
        "seeds.",
        "",
        table(
            ["documents", "documents/s", "rate", "p99, ms", "p99 if bursty, ms", "refused", "refused if bursty"],
            _load_rows(data),
        ),
    ]


def _load_rows(data: Data) -> list[list[str]]:
    costs, rows = Costs.from_data(data["costs"]), []
    for length in LENGTHS:
        poisson, burst = select(data, length, "poisson", "least"), select(data, length, "bursty", "random")
        for one, other in zip(poisson, burst, strict=True):
            if one["share"] in (0.4, 0.8, 0.9, 1.2):
                rate = one["share"] * capacity(costs, length)
                cells = [_mean(one["p99_ms"]), _mean(other["p99_ms"]), _share(one["refused"]), _share(other["refused"])]
                rows.append([size(length), f"{rate:.0f}", f"{one['share']:g}", *cells])
    return rows


def _pools(data: Data) -> list[str]:
    found = {(load["share"], load["replicas"]): load for load in data["pools"]}
    alone = {load["share"]: load for load in select(data, POOL_LENGTH, "poisson", "random")}
    rows = [
        [f"{share:g}", _mean(alone[share]["p99_ms"]), *(_mean(found[share, n]["p99_ms"]) for n in POOLS),
         _share(alone[share]["refused"]), *(_share(found[share, n]["refused"]) for n in POOLS)]
        for share in POOL_SHARES
    ]  # fmt: skip
    columns = ["rate", "p99 at random, ms", *(f"p99 of {n:,}, ms" for n in POOLS)]
    columns += ["refused at random", *(f"refused of {n:,}" for n in POOLS)]
    counts = ", ".join(f"{found[POOL_SHARES[0], n]['requests']:,}" for n in POOLS)
    return [
        "## Number of replicas",
        "",
        f"{size(POOL_LENGTH)}, Poisson arrivals, fewest open requests; all replicas are simulated together, with "
        f"{counts} requests in each load. At random, replicas are independent and the number does not matter.",
        "",
        table(columns, rows),
    ]


def _autoscaling(data: Data) -> list[str]:
    rows = [
        [f"{case['delay_s']:g}", *(_mean(case[key], form) for key, form in
         (("p99_ms", ".0f"), ("settled_s", ".0f"), ("replicas", ".0f"))), _share(case["refused"])]
        for case in data["autoscaling"]
    ]  # fmt: skip
    return [
        "## Autoscaling",
        "",
        "64 KB. 2 replicas at 50% of their capacity; then the rate is 4 times as high, for 240 s. Rules of the Helm "
        "chart with KEDA: 70% CPU, 1 s in the queue, a decision every 15 s. Delay: from a decision until new replicas "
        "answer. Settled: time from the step until every request is answered within 1 s.",
        "",
        table(["delay, s", "p99 after the step, ms", "settled, s", "replicas at the end", "refused"], rows),
    ]


def _validation(data: Data) -> list[str]:
    cases: dict[tuple[int, float], list[Data]] = {}
    for case in data["validation"]:
        cases.setdefault((case["bytes"], case["share"]), []).append(case)
    rows = []
    for (length, share), rounds in cases.items():
        cells = [text for key, form in FIGURES.items() for text in _compared(rounds, key, form)]
        cells += [f"{_median(rounds, side, 'refused'):.1%}" for side in ("real", "simulated")]
        rows.append([size(length), f"{share:g}", *cells])
    columns = ["documents", "rate", *(f"{side}{name}" for name in ("answers/s", "p50 ms", "p99 ms") for side in SIDES)]
    columns += ["refused", "simulated refused"]
    factors = [case["factor"] for case in data["validation"]]
    return [
        "## Validation",
        "",
        "The same loads on a real server and simulated, with the same arrival times and a deadline of 1 s. The server "
        "has a core, the load another. Rate: share of the simulated capacity. Medians of "
        f"{validation.ROUNDS} rounds with other arrival times; off is the median of the rounds' deviations. Each "
        "server is timed with one connection before its loads, and the times below are multiplied by the ratio, "
        f"{min(factors):.2f} to {max(factors):.2f}. Goal: 15%.",
        "",
        table(columns, rows, left=1),
    ]


def _compared(rounds: Sequence[Data], key: str, form: str) -> list[str]:
    """Real and simulated medians of a figure, and the median of its deviations."""
    off = statistics.median(case["simulated"][key] / case["real"][key] - 1 for case in rounds)
    return [*(format(_median(rounds, side, key), form) for side in ("real", "simulated")), f"{off:+.0%}"]


def _median(rounds: Sequence[Data], side: str, key: str) -> float:
    return float(statistics.median(case[side][key] for case in rounds))


def _costs(data: Data) -> list[str]:
    costs = data["costs"]
    sizes = sorted({int(rows) for of in costs["batch_ms"].values() for rows in of})
    rows = [
        [bucket, *(f"{of[str(n)]:.2f}" if str(n) in of else "" for n in sizes)]
        for bucket, of in costs["batch_ms"].items()
    ]
    front_end, wake = (
        ", ".join(f"{ms:.2f} ms for {int(length):,} bytes" for length, ms in costs[key].items())
        for key in ("front_end_ms", "wake_ms")
    )
    return [
        "## Costs",
        "",
        "Mean ms of processor time of a batch on one core, by bucket and rows, of "
        f"{service_times.BATCH_ROUNDS * service_times.IN_A_ROW} batches:",
        "",
        table(["bucket", *map(str, sizes)], rows),
        f"Processor time of a request besides: {front_end}; if the core was idle, in addition {wake}; of a refusal: "
        f"{costs['refusal_ms']:.2f} ms. Client and sockets take {costs['transport_ms']:.2f} ms.",
    ]


def _mean(values: Sequence[float], form: str = ".1f") -> str:
    """Mean ± standard error."""
    return f"{statistics.mean(values):{form}} ± {_error(values):{form}}"


def _share(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.1%} ± {_error(values):.1%}"


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def draw(record_: Record, path: Path) -> None:
    """Chart: p99 and refusals by documents per second of one replica."""
    figure, (latency, refusals) = chart.figure((7.5, 2.8), 2)
    data = record_.data
    costs = Costs.from_data(data["costs"])
    cases: tuple[tuple[Kind, Balancer, str], ...] = (("poisson", "least", "-"), ("bursty", "random", "--"))
    for color, length in zip(("C0", "C1", "C2", "C3", "C4"), LENGTHS, strict=True):
        for arrivals, balancer, line in cases:
            loads = select(data, length, arrivals, balancer) if "loads" in data else []
            shares = [load["share"] for load in loads]
            style: dict[str, Any] = {"color": color, "linestyle": line, "marker": "."}
            label = f"{size(length)}, {capacity(costs, length):.0f}/s" if line == "-" else None
            latency.plot(shares, [statistics.mean(load["p99_ms"]) for load in loads], label=label, **style)
            refusals.plot(shares, [100 * statistics.mean(load["refused"]) for load in loads], **style)
    latency.set(yscale="log", xlabel="rate / capacity of the replicas", ylabel="p99, ms")
    refusals.set(xlabel="rate / capacity of the replicas", ylabel="refused, %")
    figure.legend(
        *latency.get_legend_handles_labels(), title="dashed: bursty", loc="outside right upper", fontsize="small"
    )
    chart.save(figure, path)


BENCHMARK = Benchmark.of("Number of replicas", measure, report, draw, options, (*PACKAGES, "simpy"))

if __name__ == "__main__":
    BENCHMARK.main()
