"""Compare the simulation with a real server under the same loads. Used by `benchmarks.serving.sizing`."""

import os
from collections.abc import Iterator

import numpy as np

from benchmarks.lib.load import Outcome, closed_loop, open_loop, poisson, post, run
from benchmarks.lib.record import Data
from benchmarks.lib.servers import TEXT, document, service
from benchmarks.serving.simulation import Costs, Pool, Result, Simulation

CONNECTIONS = 32
LENGTHS = (256, 4096, 16384)
"""Document bytes of the loads."""
SHARES = (0.5, 0.8, 1.5, 3.0)
"""Rates of the loads, as multiples of the server's capacity: the answers per second of a closed loop."""
CLOSED_S, OPEN_S, WARM_UP_S = 4.0, 9.0, 1.0
"""Durations in seconds. Requests of the warm-up do not count."""
DEADLINE_S = 1.0
ROUNDS = 3


def compare(costs: Data, server_core: int, load_core: int) -> Iterator[Data]:
    """Yield one row per load and round: real and simulated figures. The server has a core, and so has the load."""
    os.sched_setaffinity(0, {load_core})
    with service("--reload-s", "0", cores={server_core}) as server:
        for number in range(ROUNDS):
            for length in LENGTHS:
                headers = {"x-request-timeout-ms": f"{1e3 * DEADLINE_S:.0f}"}
                requests = [post(f"{server.url}/v1/classify", document(length), TEXT, headers)]
                closed = run(closed_loop(server.url, requests, connections=CONNECTIONS, seconds=CLOSED_S))
                capacity = closed.throughput
                for share in SHARES:
                    rate = share * capacity
                    real = run(open_loop(server.url, requests, rate=rate, seconds=OPEN_S, seed=number))
                    times = poisson(rate, OPEN_S, number)
                    simulation = Simulation(Costs.from_data(costs), Pool(1, "random", DEADLINE_S), number)
                    simulated = simulation.run(times, [length] * len(times))
                    yield {
                        "round": number,
                        "bytes": length,
                        "capacity": round(capacity, 1),
                        "share": share,
                        "real": figures(as_result(real)),
                        "simulated": figures(simulated),
                    }


def as_result(outcome: Outcome) -> Result:
    """The outcomes of a real load."""
    order = np.argsort(outcome.due, kind="stable")
    return Result(outcome.due[order], outcome.ended[order], outcome.status[order])


def figures(result: Result) -> dict[str, float]:
    """Answers per second, latencies of the answers, and the share of the other requests."""
    kept = result.after(WARM_UP_S)
    return {
        "answers_per_s": round(len(kept.latencies) / (OPEN_S - WARM_UP_S), 2),
        "p50_ms": round(1e3 * kept.quantile(0.5), 2),
        "p99_ms": round(1e3 * kept.quantile(0.99), 2),
        "refused": round(kept.refused, 4),
    }
