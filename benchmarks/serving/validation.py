"""Compare the simulation with real servers under the same loads. Used by `benchmarks.serving.sizing`."""

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np

from benchmarks.lib.load import Outcome, closed_loop, open_loop, poisson, post, run
from benchmarks.lib.record import Data
from benchmarks.lib.servers import TEXT, document, service
from benchmarks.serving import service_times
from benchmarks.serving.simulation import ANSWERED, Costs, Pool, Result, Simulation

CONNECTIONS = 32
CLOSED_S = 6.0
OPEN_S = {0.5: 15.0, 0.8: 15.0, 1.5: 8.0, 3.0: 8.0}
"""Durations in seconds of the open loops, by their rate as a multiple of the simulated capacity."""
WARM_UP_S = 1.0
"""Requests of this time do not count."""
DEADLINE_S = 1.0


def compare(costs: Data, lengths: list[int], server_core: int, load_core: int) -> Iterator[Data]:
    """Yield one row per load: real and simulated figures.

    One process: the server has a core of its own, and so has the load. Two processes: each has a core of its own and
    shares it with a load of its own; the simulated core also does the work of the client.
    """
    transport_ms = service_times.transport_ms(server_core)
    for processes in (1, 2):
        server_cores = [server_core, load_core][:processes]
        load_cores = [load_core] if processes == 1 else server_cores
        for length in lengths:
            with contextlib.ExitStack() as stack:
                urls = [stack.enter_context(service("--reload-s", "0", cores={core})).url for core in server_cores]
                pool = stack.enter_context(ProcessPoolExecutor(processes, get_context("spawn")))
                client_s = costs["client_ms"] / 1e3 if processes == 2 else 0.0
                simulated = partial(_simulated, costs, transport_ms / 1e3, length, processes, client_s)
                capacity = simulated(None, CLOSED_S)
                rate = capacity["answers_per_s"] / processes
                for times in (None, *OPEN_S):
                    seconds = CLOSED_S if times is None else OPEN_S[times]
                    each = None if times is None else times * rate
                    works = [
                        pool.submit(_load, url, length, each, seconds, seed, core)
                        for seed, (url, core) in enumerate(zip(urls, load_cores, strict=True))
                    ]
                    real = _figures([_as_result(work.result()) for work in works], seconds)
                    found = capacity if each is None else simulated(each, seconds)
                    yield {
                        "processes": processes,
                        "bytes": length,
                        "times": times,
                        "transport_ms": transport_ms,
                        "real": real,
                        "simulated": found,
                    }


def _load(url: str, length: int, rate: float | None, seconds: float, seed: int, core: int) -> Outcome:
    """Run a load on a core: a closed loop without a rate, otherwise an open loop."""
    os.sched_setaffinity(0, {core})
    requests = [post(f"{url}/v1/classify", document(length), TEXT, {"x-request-timeout-ms": f"{1e3 * DEADLINE_S:.0f}"})]
    if rate is None:
        return run(closed_loop(url, requests, connections=CONNECTIONS, seconds=seconds))
    return run(open_loop(url, requests, rate=rate, seconds=seconds, seed=seed))


def _simulated(
    costs: Data, transport_s: float, length: int, processes: int, client_s: float, rate: float | None, seconds: float
) -> dict[str, float]:
    """Simulate the same load, with the same arrival times."""
    results = []
    for seed in range(processes):
        pool = Pool(1, "random", DEADLINE_S, client_s, transport_s)
        simulation = Simulation(Costs.from_data(costs), pool, seed)
        if rate is None:
            results.append(simulation.run_closed(CONNECTIONS, length, seconds))
        else:
            times = poisson(rate, seconds, seed)
            results.append(simulation.run(times, [length] * len(times)))
    return _figures(results, seconds)


def _as_result(outcome: Outcome) -> Result:
    order = np.argsort(outcome.due, kind="stable")
    return Result(outcome.due[order], outcome.ended[order], outcome.status[order], [], 0.0)


def _figures(results: list[Result], seconds: float) -> dict[str, float]:
    """Answers per second of all processes, latencies of answers, and shares of all requests."""
    kept = [result.after(WARM_UP_S) for result in results]
    latencies = np.concatenate([result.latencies for result in kept])
    status = np.concatenate([result.status for result in kept])
    p50, p99 = np.quantile(latencies, [0.5, 0.99])
    return {
        "requests": len(status),
        "answers_per_s": round(sum(result.throughput(WARM_UP_S, seconds) for result in results), 2),
        "p50_ms": round(1e3 * float(p50), 2),
        "p99_ms": round(1e3 * float(p99), 2),
        "refused": round(float((status != ANSWERED).mean()), 4),
    }
