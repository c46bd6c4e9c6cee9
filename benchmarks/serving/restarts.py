"""`python -m benchmarks.serving.restarts`: number of requests lost in a rolling restart.

Two servers behind a simulated load balancer, which polls the readiness of each every second and sends requests to the
ready ones. The servers are stopped with SIGTERM and restarted in turns, under load. Every response other than 200 and
every broken connection counts as a lost request.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator

import httpx
from tqdm import tqdm

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, ROOT, TEXT, document, free_port
from benchmarks.lib.table import table

POLL_S = 1.0
"""Interval at which the balancer polls the readiness of each server."""
START_S = 60.0
"""Time limit for a server to become ready."""


class Replica:
    """One server on a fixed port, restarted repeatedly; `poll_readiness` must be running."""

    def __init__(self, flags: list[str]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.is_ready = False
        self._flags = flags
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process and wait until it is seen to be ready."""
        command = ["-m", "service", "--port", str(self.port), "--device", "cpu", *self._flags]
        quiet = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *command, cwd=ROOT, stdout=quiet, stderr=quiet
        )
        until = time.monotonic() + START_S
        while not self.is_ready:
            if time.monotonic() > until:
                raise RuntimeError("the server did not become ready")
            await asyncio.sleep(0.1)

    async def stop(self) -> int:
        """Send SIGTERM; returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = await self._process.wait()
        self.is_ready = False
        return code

    async def kill(self) -> None:
        """Kill the process if it is still running."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self.is_ready = False


async def poll_readiness(replicas: list[Replica]) -> None:
    """Poll the readiness every second."""
    async with httpx.AsyncClient(timeout=1) as client:
        while True:
            for replica in replicas:
                try:
                    replica.is_ready = (await client.get(f"{replica.url}/v2/health/ready")).status_code == 200
                except httpx.HTTPError:
                    replica.is_ready = False
            await asyncio.sleep(POLL_S)


async def _ask(replicas: list[Replica], ended: Counter[str], pause_s: float) -> None:
    """One client that sends requests repeatedly."""
    async with httpx.AsyncClient(timeout=30) as client:
        for turn in itertools.count():
            ready = [replica for replica in replicas if replica.is_ready]
            if ready:
                try:
                    url = f"{ready[turn % len(ready)].url}/v1/classify"
                    answer = await client.post(url, content=document(4096), headers={"content-type": TEXT})
                    ended[str(answer.status_code)] += 1
                except httpx.HTTPError as error:
                    ended[type(error).__name__] += 1
            await asyncio.sleep(pause_s)


async def _roll(restarts: int, clients: int, flags: list[str]) -> tuple[Counter[str], Counter[int]]:
    """Restart the servers in turns under load; returns the outcomes of requests and the exit codes."""
    replicas = [Replica(flags), Replica(flags)]
    ended, codes = Counter[str](), Counter[int]()
    tasks = [asyncio.create_task(poll_readiness(replicas))]
    try:
        for replica in replicas:
            await replica.start()
        tasks += [asyncio.create_task(_ask(replicas, ended, 0.05)) for _ in range(clients)]
        for turn in tqdm(range(restarts), desc="restarts"):
            codes[await replicas[turn % 2].stop()] += 1
            await replicas[turn % 2].start()
        return ended, codes
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)
        for replica in replicas:
            await replica.kill()


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--restarts", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--clients", type=int, default=8, help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Outcomes with one process per replica and with two workers."""
    os.environ.pop("LONGDOC_API_KEYS", None)
    cases: list[Data] = []
    for name, flags in (("one process", []), ("two workers", ["--workers", "2"])):
        ended, codes = asyncio.run(_roll(args.restarts, args.clients, flags))
        exits = {str(code): count for code, count in codes.items()}
        cases.append({"case": name, "requests": dict(ended), "exit_codes": exits})
        yield {"cases": cases}


def report(record: Record) -> str:
    """Report with one row per case."""
    settings, rows = record.settings, []
    for case in record.data["cases"]:
        ended = Counter(case["requests"])
        others = ", ".join(f"{what} {count}" for what, count in ended.items() if what != "200")
        exits = ", ".join(f"{count} x {code}" for code, count in case["exit_codes"].items())
        rows.append([case["case"], str(ended.total()), str(ended.total() - ended["200"]), others or "none", exits])
    return (
        f"{settings['restarts']} restarts (SIGTERM) of two replicas in turns, {settings['clients']} clients that keep "
        f"their connections, a balancer that looks every {POLL_S:g} s; default settings (`drain_delay_s` 5).\n\n"
        f"{table(['', 'requests', 'lost', 'how', 'exit codes'], rows)}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.serving.restarts",
    title="Rolling restarts under load",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=(*PACKAGES, "httpx"),
)

if __name__ == "__main__":
    BENCHMARK.main()
