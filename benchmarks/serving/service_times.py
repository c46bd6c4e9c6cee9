"""Measure what the simulation needs: times of batches, of the work around them, of refusals, of the client.

None of it is measured on the loads that the simulation is compared with. Used by `benchmarks.serving.sizing`.
"""

import asyncio
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from artifact.exports import version_folder
from artifact.loading import LoadedModel, load_export
from benchmarks.lib.load import closed_loop, open_loop, post, run
from benchmarks.lib.memory import in_own_process
from benchmarks.lib.processes import cpu_s, main_thread_s
from benchmarks.lib.record import Data
from benchmarks.lib.servers import TEXT, document, server, service

MODEL = "imdb-s3"
ROWS = (1, 2, 4, 8, 16, 32)
"""Rows of the measured batches; of the longest bucket at most 16."""
BATCH_ROUNDS, IN_A_ROW = 5, 4
SAME_SIZE = 3
"""Batches of the same size before the measured ones: the first ones after another size take longer."""
LENGTHS = (256, 4096, 16384, 65536)
"""Document bytes of the measured front-end times."""
QUIET = 0.25
"""Rate at which most requests find the core idle, as a share of the answers to a single connection."""
SECONDS = 6.0
"""Duration of each of these measurements."""
REFUSALS_PER_S = 800.0
BUSY_BATCH_S = 0.05
QUANTILES = 21


def measure(server_core: int, load_core: int) -> Data:
    """Measure all costs; times in ms."""
    os.sched_setaffinity(0, {server_core})
    batches = in_own_process(batch_ms)
    os.sched_setaffinity(0, {load_core})
    front_end = front_end_ms(server_core)
    return {
        **batches,
        **front_end,
        "refusal_ms": refusal_ms(server_core, front_end["front_end_ms"]["256"]),
    }


def batch_ms() -> Data:
    """Mean times of batches by bucket and rows, and the quantiles of all times divided by their mean."""
    model = load_export(version_folder(Path("exports") / MODEL), device="cpu")
    sizes = [(bucket, rows) for bucket in model.row_lengths for rows in ROWS if rows * bucket <= 16 * 4096]
    times: dict[tuple[int, int], list[float]] = {size: [] for size in sizes}
    # As in the service, a thread computes the batches: memory is allocated differently than in the main thread.
    with ThreadPoolExecutor(1) as executor:
        for number in range(-1, BATCH_ROUNDS):
            for bucket, rows in sizes:
                batch = [document(bucket)] * rows
                running = [executor.submit(_batch_s, model, batch, bucket) for _ in range(SAME_SIZE + IN_A_ROW)]
                if number >= 0:
                    times[bucket, rows] += [future.result() for future in running[SAME_SIZE:]]
    relative = np.concatenate([np.array(of) / statistics.mean(of) for of in times.values()])
    means: dict[str, dict[str, float]] = {}
    for (bucket, rows), of in times.items():
        means.setdefault(str(bucket), {})[str(rows)] = round(1e3 * statistics.mean(of), 4)
    spread = np.quantile(relative, np.linspace(0, 1, QUANTILES))
    return {"batch_ms": means, "spread": [round(float(q), 4) for q in spread]}


def _batch_s(model: LoadedModel, batch: list[bytes], bucket: int) -> float:
    """Processor time of a batch, which other processes on the core hardly change; a batch is computed by one thread."""
    started = time.thread_time()
    model.run(batch, bucket)
    return time.thread_time() - started


def front_end_ms(core: int) -> Data:
    """Processor time of the event loop for a request by document bytes, and the extra time if the core was idle.

    With the model and one connection, so that requests follow on each other and caches are as warm as under load. What
    is left of such a request is the time of the client and of the sockets. The work of threads around a batch is left
    out: it is less than the times of batches differ.
    """
    busy, wake, transport = dict[str, float](), dict[str, float](), list[float]()
    with service("--reload-s", "0", "--models", MODEL, cores={core}) as target:
        pid = target.process.pid
        for length in LENGTHS:
            requests = [post(f"{target.url}/v1/classify", document(length), TEXT)]
            run(closed_loop(target.url, requests, connections=1, seconds=1))
            main, before = main_thread_s(pid), cpu_s(pid)
            outcome = run(closed_loop(target.url, requests, connections=1, seconds=SECONDS))
            between, count = cpu_s(pid), len(outcome.status)
            busy[str(length)] = round(1e3 * (main_thread_s(pid) - main) / count, 4)
            warm = (between - before) / count
            transport.append(1 / outcome.throughput - warm)
            quiet = run(open_loop(target.url, requests, rate=QUIET * outcome.throughput, seconds=SECONDS))
            cold = (cpu_s(pid) - between) / len(quiet.status)
            wake[str(length)] = round(max(0.0, 1e3 * (cold - warm)), 4)
    return {"front_end_ms": busy, "wake_ms": wake, "transport_ms": round(1e3 * statistics.median(transport), 4)}


def refusal_ms(core: int, front_end: float) -> float:
    """Processor time of a request that is refused, while others wait for a model that sleeps."""
    with server(["-m", "benchmarks.serving.null_service", "--batch-s", str(BUSY_BATCH_S)], {core}) as target:
        waiting = [post(f"{target.url}/v1/classify", document(256), TEXT)]
        refused = [post(f"{target.url}/v1/classify", document(256), TEXT, {"x-request-timeout-ms": "10"})]

        async def both() -> tuple[int, int]:
            answered, others = await asyncio.gather(
                closed_loop(target.url, waiting, connections=6, seconds=SECONDS),
                open_loop(target.url, refused, rate=REFUSALS_PER_S, seconds=SECONDS),
            )
            return len(answered.status), int((others.status == 429).sum())

        run(closed_loop(target.url, waiting, connections=6, seconds=1))
        before = cpu_s(target.process.pid)
        answers, refusals = run(both())
        return round((1e3 * (cpu_s(target.process.pid) - before) - answers * front_end) / refusals, 4)
