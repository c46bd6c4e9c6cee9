"""Compare the simulation with real servers under the same loads. Used by `benchmarks.serving.sizing`."""

import contextlib
import os
import statistics
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
CLOSED_S = 5.0
OPEN_S = {0.5: 10.0, 0.8: 10.0, 1.5: 6.0, 3.0: 6.0}
"""Durations in seconds of the open loops, by their rate as a multiple of the simulated capacity."""
WARM_UP_S = 1.0
"""Requests of this time do not count."""
DEADLINE_S = 1.0
ROUNDS = 3
REFERENCE = ("4096", "4")
"""Bucket and rows of the batch that is timed before and after each load."""


def compare(costs: Data, lengths: list[int], server_core: int, load_core: int) -> Iterator[Data]:
    """Yield one row per load and round: real and simulated figures.

    One process: the server has a core of its own, and so has the load. Two processes: each has a core of its own and
    shares it with a load of its own; the simulated core also does the work of the client.

    The cores of a shared machine change their speed within minutes. The same batch is therefore timed before and after
    each load, on its idle server cores, and all simulated times are multiplied by its time relative to `costs`.
    """
    transport_ms = service_times.transport_ms(server_core)
    for number in range(ROUNDS):
        for row in _compare_once(costs, lengths, server_core, load_core, transport_ms, number):
            yield {"round": number, "transport_ms": transport_ms, **row}


def _compare_once(
    costs: Data, lengths: list[int], server_core: int, load_core: int, transport_ms: float, number: int
) -> Iterator[Data]:
    """Yield one row per load of a round."""
    for processes in (1, 2):
        server_cores = [server_core, load_core][:processes]
        load_cores = [load_core] if processes == 1 else server_cores
        for length in lengths:
            with contextlib.ExitStack() as stack:
                urls = [stack.enter_context(service("--reload-s", "0", cores={core})).url for core in server_cores]
                pool = stack.enter_context(ProcessPoolExecutor(processes, get_context("spawn")))
                pool_of_cores = stack.enter_context(ProcessPoolExecutor(processes, get_context("spawn")))
                simulated = partial(_simulated, length=length, processes=processes, transport_ms=transport_ms)
                rate = simulated(costs, rate=None, seconds=CLOSED_S, seed=0)["answers_per_s"] / processes
                before = _speed(pool_of_cores, server_cores, costs)
                for times in (None, *OPEN_S):
                    seconds = CLOSED_S if times is None else OPEN_S[times]
                    each = None if times is None else times * rate
                    seed = processes * number
                    works = [
                        pool.submit(_load, url, length, each, seconds, seed + index, core)
                        for index, (url, core) in enumerate(zip(urls, load_cores, strict=True))
                    ]
                    real = _figures([_as_result(work.result()) for work in works], seconds)
                    after = _speed(pool_of_cores, server_cores, costs)
                    slower, before = (before + after) / 2, after
                    yield {
                        "processes": processes,
                        "bytes": length,
                        "times": times,
                        "slower": round(slower, 4),
                        "real": real,
                        "simulated": simulated(slowed(costs, slower), rate=each, seconds=seconds, seed=seed),
                    }


def _speed(pool: ProcessPoolExecutor, cores: list[int], costs: Data) -> float:
    """Time of the reference batch relative to `costs`, mean of the cores."""
    bucket, rows = REFERENCE
    works = [pool.submit(service_times.reference_ms, core, int(bucket), int(rows)) for core in cores]
    return statistics.mean(work.result() for work in works) / float(costs["batch_ms"][bucket][rows])


def slowed(costs: Data, factor: float) -> Data:
    """Costs whose processor times are multiplied by a factor."""
    return {
        **costs,
        "batch_ms": {b: {n: factor * ms for n, ms in of.items()} for b, of in costs["batch_ms"].items()},
        "front_end_ms": {length: factor * ms for length, ms in costs["front_end_ms"].items()},
        **{key: factor * costs[key] for key in ("client_ms", "refusal_ms")},
    }


def _load(url: str, length: int, rate: float | None, seconds: float, seed: int, core: int) -> Outcome:
    """Run a load on a core: a closed loop without a rate, otherwise an open loop."""
    os.sched_setaffinity(0, {core})
    requests = [post(f"{url}/v1/classify", document(length), TEXT, {"x-request-timeout-ms": f"{1e3 * DEADLINE_S:.0f}"})]
    if rate is None:
        return run(closed_loop(url, requests, connections=CONNECTIONS, seconds=seconds))
    return run(open_loop(url, requests, rate=rate, seconds=seconds, seed=seed))


def _simulated(
    costs: Data, *, length: int, processes: int, transport_ms: float, rate: float | None, seconds: float, seed: int
) -> dict[str, float]:
    """Simulate the same load, with the same arrival times."""
    results = []
    client_s = costs["client_ms"] / 1e3 if processes == 2 else 0.0
    for index in range(processes):
        pool = Pool(1, "random", DEADLINE_S, client_s, transport_ms / 1e3)
        simulation = Simulation(Costs.from_data(costs), pool, seed + index)
        if rate is None:
            results.append(simulation.run_closed(CONNECTIONS, length, seconds))
        else:
            times = poisson(rate, seconds, seed + index)
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
