"""Compare the simulation with real servers under the same loads. Used by `benchmarks.serving.sizing`."""

import os
from collections.abc import Iterator

import numpy as np

from benchmarks.lib.load import closed_loop, open_loop, poisson, post, run
from benchmarks.lib.record import Data
from benchmarks.lib.servers import TEXT, Server, document, service
from benchmarks.serving.service_times import MODEL
from benchmarks.serving.simulation import ANSWERED, Costs, Pool, Result, Simulation, row_lengths

LENGTHS = (4096, 16384)
SHARES = (0.5, 0.8, 1.5)
"""Rates as shares of the simulated capacity."""
ROUNDS = 5
SECONDS, WARM_UP_S = 8.0, 1.0
DEADLINE_S = 1.0


def compare(costs: Data, server_core: int, load_core: int) -> Iterator[Data]:
    """Yield real and simulated figures of each load, round by round; the server has a core, and so has the load.

    The cores of a shared machine change their speed within minutes. Before its loads, each server is therefore timed
    with a single connection, which is not among the loads, and all times in `costs` are multiplied by the ratio.
    """
    os.sched_setaffinity(0, {load_core})
    for number in range(ROUNDS):
        for length in LENGTHS:
            with service("--reload-s", "0", "--models", MODEL, cores={server_core}) as target:
                factor = speed(target, length, costs)
                own, transport_s = scaled(costs, factor), factor * costs["transport_ms"] / 1e3
                for share in SHARES:
                    rate = share * own.capacity([length])
                    times = poisson(rate, SECONDS, number)
                    outcome = run(
                        open_loop(target.url, _requests(target, length), rate=rate, seconds=SECONDS, seed=number)
                    )
                    order = np.argsort(outcome.due, kind="stable")
                    real = Result(outcome.due[order], outcome.ended[order], outcome.status[order])
                    found = Simulation(own, Pool(1, "random", DEADLINE_S), number).run(times, [length] * len(times))
                    yield {
                        "bytes": length,
                        "share": share,
                        "factor": round(factor, 4),
                        "real": figures(real),
                        "simulated": figures(found, transport_s),
                    }


def speed(target: Server, length: int, costs: Data) -> float:
    """Time of a request with a single connection, relative to what `costs` says."""
    requests = _requests(target, length)
    run(closed_loop(target.url, requests, connections=1, seconds=WARM_UP_S))
    outcome = run(closed_loop(target.url, requests, connections=1, seconds=2 * WARM_UP_S))
    known = Costs.from_data(costs)
    batch_s = known.batch_s(known.bucket(max(row_lengths(length))), len(row_lengths(length)))
    transport_s: float = costs["transport_ms"] / 1e3
    return 1 / outcome.throughput / (transport_s + known.front_end_s(length) + batch_s)


def scaled(costs: Data, factor: float) -> Costs:
    """Costs whose times are multiplied by a factor."""
    times = {key: {name: factor * ms for name, ms in costs[key].items()} for key in ("front_end_ms", "wake_ms")}
    batches = {size: {n: factor * ms for n, ms in of.items()} for size, of in costs["batch_ms"].items()}
    return Costs.from_data({**costs, **times, "batch_ms": batches, "refusal_ms": factor * costs["refusal_ms"]})


def figures(result: Result, transport_s: float = 0.0) -> Data:
    """Answers per second, latencies of answers in ms, and the share of other requests."""
    kept = result.after(WARM_UP_S)
    answers = int((kept.status == ANSWERED).sum())
    p50, p99 = (1e3 * (kept.quantile(q) + transport_s) for q in (0.5, 0.99))
    return {
        "answers_per_s": round(answers / (SECONDS - WARM_UP_S), 1),
        "p50_ms": round(p50, 2),
        "p99_ms": round(p99, 2),
        "refused": round(kept.refused, 4),
    }


def _requests(target: Server, length: int) -> list[bytes]:
    timeout = {"x-request-timeout-ms": f"{1e3 * DEADLINE_S:.0f}"}
    return [post(f"{target.url}/v1/classify", document(length), TEXT, timeout)]
