"""Compare the simulation with real servers under the same loads. Used by `benchmarks.serving.sizing`."""

import contextlib
import os
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.lib.load import Outcome, closed_loop, open_loop, poisson, post, run
from benchmarks.lib.record import Data
from benchmarks.lib.servers import TEXT, Server, document, service
from benchmarks.serving import service_times
from benchmarks.serving.simulation import ANSWERED, Costs, Pool, Result, Simulation

CONNECTIONS = 32
CLOSED_S = 4.0
OPEN_S = {0.5: 8.0, 0.8: 8.0, 1.5: 5.0, 3.0: 5.0}
"""Durations in seconds of the open loops, by their rate as a multiple of the simulated capacity."""
WARM_UP_S = 1.0
"""Requests of this time do not count."""
DEADLINE_S = 1.0
ROUNDS = 3
SMALL, LARGE = 5, 16
"""Rows of the batches with one connection, at most, and with CONNECTIONS."""
CALIBRATED_S = 1.5
"""Duration of the loads with which the batches of a process are timed."""


def compare(costs: Data, lengths: list[int], server_core: int, load_core: int) -> Iterator[Data]:
    """Yield one row per load and round: real and simulated figures.

    One process: the server has a core of its own, and so has the load. Two processes: each has a core of its own and
    shares it with a load of its own; the simulated core also does the work of the client.

    The cores of a shared machine change their speed within minutes, and large batches take longer in some processes
    than in others, because memory is allocated differently. The batches of each process are therefore timed before its
    loads, and the times in `costs` are multiplied by the ratio.
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
                servers = [stack.enter_context(service("--reload-s", "0", cores={core})) for core in server_cores]
                pool = stack.enter_context(ProcessPoolExecutor(processes, get_context("spawn")))
                simulated = partial(_simulated, length=length, processes=processes, transport_ms=transport_ms)
                rate = simulated([costs] * processes, rate=None, seconds=CLOSED_S, seed=0)["answers_per_s"] / processes
                factors = [
                    calibrate(server, length, core, costs) for server, core in zip(servers, load_cores, strict=True)
                ]
                own = [slowed(costs, *factor) for factor in factors]
                for times in (None, *OPEN_S):
                    seconds = CLOSED_S if times is None else OPEN_S[times]
                    each = None if times is None else times * rate
                    seed = processes * number
                    works = [
                        pool.submit(_load, server.url, length, each, seconds, seed + index, core)
                        for index, (server, core) in enumerate(zip(servers, load_cores, strict=True))
                    ]
                    real = _figures([_as_result(work.result()) for work in works], seconds)
                    yield {
                        "processes": processes,
                        "bytes": length,
                        "times": times,
                        "factors": factors,
                        "real": real,
                        "simulated": simulated(own, rate=each, seconds=seconds, seed=seed),
                    }


def calibrate(server: Server, length: int, load_core: int, costs: Data) -> tuple[float, float]:
    """Processor time of a process's small batches, and of its large ones, relative to `costs`."""
    os.sched_setaffinity(0, {load_core})
    measured, found = Costs.from_data(costs), list[float]()
    for connections in (1, CONNECTIONS):
        _closed(server.url, length, connections, WARM_UP_S)
        before = _batches(server)
        _closed(server.url, length, connections, CALIBRATED_S)
        seconds, count, rows = _batches(server) - before
        found.append(float(seconds / count / measured.batch_s(max(measured.buckets), round(rows / count))))
    return round(found[0], 4), round(found[1], 4)


def _batches(server: Server) -> NDArray[np.float64]:
    """Processor time in seconds of the threads that compute batches, number of batches, and of their rows."""
    seconds = 0.0
    for stat in Path(f"/proc/{server.process.pid}/task").glob("*/stat"):
        if stat.parent.name != str(server.process.pid):  # the main thread is the event loop
            seconds += service_times.processor_s_of(stat)
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    count, rows = (
        sum(float(line.split()[-1]) for line in lines if line.startswith(f"longdoc_batch_size_{part}"))
        for part in ("count", "sum")
    )
    return np.array([seconds, count, rows])


def slowed(costs: Data, small: float, large: float) -> Data:
    """Costs whose processor times are multiplied by a factor: that of large batches from LARGE rows on."""

    def factor(rows: int) -> float:
        return small + (large - small) * min(1.0, max(0.0, (rows - SMALL) / (LARGE - SMALL)))

    return {
        **costs,
        "batch_ms": {b: {n: factor(int(n)) * ms for n, ms in of.items()} for b, of in costs["batch_ms"].items()},
        "front_end_ms": {length: small * ms for length, ms in costs["front_end_ms"].items()},
        **{key: small * costs[key] for key in ("client_ms", "refusal_ms")},
    }


def _closed(url: str, length: int, connections: int, seconds: float) -> Outcome:
    return run(closed_loop(url, _requests(url, length), connections=connections, seconds=seconds))


def _requests(url: str, length: int) -> list[bytes]:
    return [post(f"{url}/v1/classify", document(length), TEXT, {"x-request-timeout-ms": f"{1e3 * DEADLINE_S:.0f}"})]


def _load(url: str, length: int, rate: float | None, seconds: float, seed: int, core: int) -> Outcome:
    """Run a load on a core: a closed loop without a rate, otherwise an open loop."""
    os.sched_setaffinity(0, {core})
    if rate is None:
        return _closed(url, length, CONNECTIONS, seconds)
    return run(open_loop(url, _requests(url, length), rate=rate, seconds=seconds, seed=seed))


def _simulated(
    costs: Sequence[Data],
    *,
    length: int,
    processes: int,
    transport_ms: float,
    rate: float | None,
    seconds: float,
    seed: int,
) -> dict[str, float]:
    """Simulate the same load, with the same arrival times and the costs of each process."""
    results = []
    for index, of_process in enumerate(costs):
        client_s = of_process["client_ms"] / 1e3 if processes == 2 else 0.0
        pool = Pool(1, "random", DEADLINE_S, client_s, transport_ms / 1e3)
        simulation = Simulation(Costs.from_data(of_process), pool, seed + index)
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
