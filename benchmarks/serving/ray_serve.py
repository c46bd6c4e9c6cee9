"""`python -m benchmarks.serving.ray_serve`: throughput per core and latency behind Ray Serve and of the plain service.

Both servers run in the environment of `make test-ray`, with all their processes on one core; the load has the others.
In each round, each server is started alone and loaded with one connection, then with many.
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.interleave import interleave
from benchmarks.lib.load import Outcome, closed_loop, post, run
from benchmarks.lib.processes import descendants
from benchmarks.lib.ray_cluster import (
    ENVIRONMENT,
    PYTHON,
    STOPPED_S,
    versions_of_servers,
    wait_until_ready,
)
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import ROOT, TEXT, document, environment, free_port
from benchmarks.lib.table import median_and_range, ratio, table

PLAIN = "plain service"


@dataclass(frozen=True)
class Candidate:
    """A way to run the service."""

    command: tuple[str, ...] = ()
    """Command of `python -m service`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of Ray."""


CANDIDATES = {
    PLAIN: Candidate(),
    "Ray Serve": Candidate(("ray",)),
    "Ray Serve with HAProxy": Candidate(("ray",), {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}),
}
"""The last one is Ray's high-throughput mode: HAProxy takes the place of Ray's own proxy."""
BYTES = 4096
"""Length of the document."""
WARM_UP_S = 2.0
"""Duration of the load before the measured ones."""
SETTLE_S = 3.0
"""Time after the first answer, in which Ray's processes finish their start."""


@contextlib.contextmanager
def running(candidate: Candidate, cores: set[int]) -> Iterator[tuple[int, str]]:
    """Run a server with all its processes on some cores; yields the process id and the URL.

    Raises: RuntimeError if one of its processes may use another core.
    """
    url = f"http://127.0.0.1:{free_port()}"
    flags = ("--port", url.rpartition(":")[2], "--device", "cpu", "--reload-s", "0", "--drain-delay-s", "0")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [str(PYTHON), "-m", "service", *candidate.command, *flags],
            cwd=ROOT, env={**environment(), **ENVIRONMENT, "RAY_ADDRESS": "local", **candidate.variables},
            stdout=log, stderr=log,
            start_new_session=True,  # Ctrl-C only reaches the benchmark, which stops the server
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )  # fmt: skip
        try:
            wait_until_ready(url)
            for pid in processes_of(process.pid):
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    if not os.sched_getaffinity(pid) <= cores:
                        raise RuntimeError(f"process {pid} of the server may use other cores than {cores}")
            yield process.pid, url
        finally:
            started = processes_of(process.pid)
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOPPED_S)
            for pid in started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def processes_of(pid: int) -> list[int]:
    """A process and its descendants."""
    return [pid, *descendants(pid)]


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--seconds", type=float, default=4, help="duration of each load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--connections", type=int, default=32, help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Start, load and stop the servers in turns."""
    cores = sorted(os.sched_getaffinity(0))
    server_cores, load_cores = {cores[0]}, set(cores[1:]) or {cores[0]}
    os.sched_setaffinity(0, load_cores)

    def turn_of(candidate: Candidate) -> Callable[[], Data]:
        def turn() -> Data:
            with running(candidate, server_cores) as (pid, url):
                time.sleep(SETTLE_S)
                loaded(url, args.connections, WARM_UP_S)
                one = loaded(url, 1, args.seconds)
                many = loaded(url, args.connections, args.seconds)
                return {
                    "processes": len(processes_of(pid)),
                    "throughput": many.throughput,
                    "latency_ms": many.percentiles_ms(),
                    "latency_of_one_ms": one.percentiles_ms(),
                }

        return turn

    rounds = interleave({name: turn_of(candidate) for name, candidate in CANDIDATES.items()}, args.rounds)
    yield {
        "rounds": rounds,
        "server_cores": sorted(server_cores),
        "load_cores": sorted(load_cores),
        "servers": versions_of_servers(),
    }


def loaded(url: str, connections: int, seconds: float) -> Outcome:
    """Outcome of a closed loop. Raises: RuntimeError if a request is not answered with 200."""
    request = post(f"{url}/v1/classify", document(BYTES), TEXT)
    outcome = run(closed_loop(url, [request], connections=connections, seconds=seconds))
    if set(outcome.statuses()) != {200} or outcome.failures:
        raise RuntimeError(f"statuses {outcome.statuses()}, without a response {dict(outcome.failures)}")
    return outcome


def report(record: Record) -> str:
    """Report: throughput, latency and cost of the ingress."""
    settings, data = record.settings, record.data

    def latency(rounds: list[Data], key: str, q: int) -> list[float]:
        return [turn[key][q] for turn in rounds]

    rates = {name: [turn["throughput"] for turn in rounds] for name, rounds in data["rounds"].items()}
    rows = [
        [
            name,
            median_and_range(rates[name]),
            ratio(rates[name], rates[PLAIN]),
            *(
                median_and_range(latency(rounds, key, q), ".1f")
                for key in ("latency_of_one_ms", "latency_ms")
                for q in (50, 99)
            ),
            str(max(turn["processes"] for turn in rounds)),
        ]
        for name, rounds in data["rounds"].items()
    ]
    many = settings["connections"]
    columns = ["", "documents/s", "ratio", "p50 ms, 1", "p99 ms, 1", f"p50 ms, {many}", f"p99 ms, {many}", "processes"]
    costs = []
    for name, rounds in data["rounds"].items():
        added = []
        for q in (50, 99):
            pairs = zip(*(latency(of, "latency_of_one_ms", q) for of in (rounds, data["rounds"][PLAIN])), strict=True)
            added.append(f"{statistics.median(there - here for there, here in pairs):.1f}")
        if name != PLAIN:
            costs.append([name, *added])
    names = ["core " + ", ".join(map(str, data[key])) for key in ("server_cores", "load_cores")]
    servers = ", ".join(f"{name} {version}" for name, version in data["servers"].items())
    return (
        f"Documents of {BYTES:,} bytes; closed loops with 1 connection and with {many}. Median of {settings['rounds']} "
        f"rounds of {settings['seconds']:g} s (lowest to highest); in each round, the servers are started in turn and "
        f"run alone. All processes of a server are on {names[0]}, the load is on {names[1]}. The plain service is one "
        "process; those of Ray include the proxy, one replica, the controller, the scheduler and the dashboard. "
        f"Servers: {servers}.\n\n"
        f"{table(columns, rows)}\n"
        "## Cost of the ingress\n\n"
        "How much longer a request with one connection takes than in the plain service (median of the differences of "
        f"the rounds):\n\n{table(['', 'p50 ms', 'p99 ms'], costs)}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.serving.ray_serve",
    title="Ray Serve and the plain service on one core",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=("numpy", "uvloop"),
)

if __name__ == "__main__":
    BENCHMARK.main()
