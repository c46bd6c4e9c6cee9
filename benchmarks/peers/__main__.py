"""`python -m benchmarks.peers`: compares the server with others; same model, load and cores, interleaved.

Each server is configured as its documentation recommends, in its own environment below `.venv/peers/`, and must return
the expected answers before it is measured. In every round, in random order, each server is started, saturated by a
closed loop, loaded at a rate that all can sustain, left idle, loaded with twice its capacity, and stopped by SIGTERM
under load.
"""

import argparse
import contextlib
import os
import random
import signal
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tqdm import tqdm

from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, document
from benchmarks.lib.table import table
from benchmarks.peers.catalogue import PEERS, Peer
from benchmarks.peers.classifier import MAX_BATCH
from benchmarks.peers.measure import AFTER_S, CONNECTIONS, DEADLINE_S, FAST_S, STOP_S, Bench, Measured
from benchmarks.peers.processes import PeerFailed, adopt_orphans, install


@dataclass
class Entry:
    """A server and its results."""

    peer: Peer
    folder: Path = Path(sys.executable).parent
    """Folder of its executables."""
    capacity: float = 0.0
    """Responses per second, measured before the rounds."""
    rounds: list[Measured] = field(default_factory=list)
    failure: str = ""

    def data(self) -> Data:
        """Results as JSON."""
        return {
            "server": self.peer.name,
            "version": self.peer.version,
            "setup": self.peer.settings,
            "capacity_before": self.capacity,
            "failure": self.failure,
            "rounds": [asdict(measured) for measured in self.rounds],
        }


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS), help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=10, help="duration of each load (default: %(default)s)")
    parser.add_argument("--document-bytes", type=int, default=4096, help="default: %(default)s")
    parser.add_argument("--rate", type=float, help="common moderate rate; default: half the capacity of the slowest")
    parser.add_argument(
        "--cores", type=int, default=len(os.sched_getaffinity(0)), help="cores of the servers (default: all)"
    )


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure all servers, interleaved."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the servers are stopped
    adopt_orphans()
    cores = sorted(os.sched_getaffinity(0))
    bench = Bench(set(cores[: args.cores]), args.seconds, document(args.document_bytes).decode())
    os.sched_setaffinity(0, set(cores[args.cores :]) or set(cores))
    entries = [Entry(PEERS[name]) for name in args.peers]
    for entry in tqdm(entries, desc="installing and checking", disable=None):
        with noted(entry):
            if entry.peer.venv:
                entry.folder = install(entry.peer.venv)
            entry.capacity = bench.capacity(entry.peer, entry.folder)
    working = [entry for entry in entries if not entry.failure]
    rate = args.rate or common_rate([entry.capacity for entry in working])
    shuffled = random.Random(0)
    turns = [entry for _ in range(args.rounds) for entry in shuffled.sample(working, len(working))]
    for entry in tqdm(turns, desc="measuring", disable=None):
        if not entry.failure:
            with noted(entry):
                entry.rounds.append(bench.measure(entry.peer, entry.folder, rate, entry.capacity))
    yield {"cores": len(cores), "moderate_rate": rate, "servers": [entry.data() for entry in entries]}


@contextlib.contextmanager
def noted(entry: Entry) -> Iterator[None]:
    """Record the failure of one server and continue with the others."""
    try:
        yield
    except PeerFailed as failure:
        entry.failure = str(failure)
    except Exception as error:  # such as a response in another format
        entry.failure = repr(error)[:200]


def common_rate(capacities: Sequence[float]) -> float:
    """Half of the lowest capacity, rounded down to tens, or to ones below 20."""
    half = min(capacities, default=0.0) / 2
    return max(1.0, half // 10 * 10 if half >= 20 else half // 1)


def report(record: Record) -> str:
    """Report: tables and conditions."""
    settings, servers = record.settings, record.data["servers"]
    measured = [server for server in servers if server["rounds"]]
    rest = record.data["cores"] - settings["cores"]
    where = f"the load generator has the other {rest}" if rest > 0 else "the load generator shares them"
    moderate = f"at {record.data['moderate_rate']:g}/s, ms"
    parts = [
        "Every server computes `exports/imdb-s3` with ONNX Runtime, one thread per core, on "
        f"{settings['cores']} cores; {where}. Batches, where a server has them, hold at most {MAX_BATCH} documents. "
        f"Requests: a document of {settings['document_bytes']:,} bytes in JSON, in the server's own format; "
        f"connections are kept alive. Rounds: {settings['rounds']}, each with all servers in random order, "
        f"{settings['seconds']:g} s per load. Values are medians over the rounds; in time, late, rejected and failed "
        "are means.\n",
        table(
            [
                *("server", "version", "answers/s", "p99, ms", f"p50 {moderate}", "p99", "idle, of a core"),
                *("start, s", "memory, MiB"),
            ],
            [speed(server) for server in measured],
        ),
        f"Answers/s and the first p99: {CONNECTIONS} connections, each of which sends its next request when it has a "
        f"response. {record.data['moderate_rate']:g}/s: random arrivals. Start: time to the first answer. Memory: "
        "proportional set size of all processes, after the load.\n",
        table(
            [
                *("server", "offered/s", "goodput/s", "in time", "late", "rejected", "Retry-After", "failed"),
                *("recovered, s", "lost", "answered for, s", "exited, s"),
            ],
            [trouble(server) for server in measured],
        ),
        "Offered: random arrivals at twice the answers/s of the same round, or of a measurement before the rounds if "
        f"that is higher. More than {CONNECTIONS} requests can then be in flight, and goodput can be higher than "
        f"answers/s. Late: clients give up after {DEADLINE_S:g} s; 408 and 504 count too. Rejected: 429 or 503. "
        "Retry-After: share of the rejections with this header. Recovered: time until a request is answered within "
        f"{FAST_S:g} s again. Lost: requests in flight at SIGTERM without a response. The signal is sent to the "
        "process that was started; when it exits, the others are ended, as in a container with an init. Answered for: "
        f"how long new requests were answered after SIGTERM, of {AFTER_S:g} s. Killed: after {STOP_S:g} s.\n",
        "Setup:\n\n" + "".join(f"- {server['server']}: {server['setup']}.\n" for server in servers),
    ]
    if failures := [f"- {server['server']}: {server['failure']}\n" for server in servers if server["failure"]]:
        parts.append("Not measured, or not in every round:\n\n" + "".join(failures))
    return "\n".join(parts)


def speed(server: Data) -> list[str]:
    """Row of the first table."""
    answered = min(found["moderate_answered"] for found in server["rounds"])
    return [
        server["server"],
        server["version"],
        cell(server, lambda found: found["throughput"], ".0f"),
        cell(server, lambda found: found["saturated_p99_ms"], ".0f"),
        cell(server, lambda found: found["moderate_p50_ms"], ".1f"),
        cell(server, lambda found: found["moderate_p99_ms"], ".1f")
        + (f" ({answered:.0%} answered)" if answered < 1 else ""),
        cell(server, lambda found: found["idle_cpu"], ".1%"),
        cell(server, lambda found: found["start_s"], ".1f"),
        cell(server, lambda found: found["memory_mib"], ".0f"),
    ]


def trouble(server: Data) -> list[str]:
    """Row of the second table."""
    stops = [found["stop"] for found in server["rounds"]]
    return [
        server["server"],
        cell(server, lambda found: found["overload"]["offered"], ".0f"),
        cell(server, lambda found: found["overload"]["offered"] * found["overload"]["in_time"], ".0f"),
        *(f"{share(server, name):.0%}" for name in ("in_time", "late", "rejected")),
        cell(server, lambda found: found["overload"]["with_retry_after"], ".0%"),
        f"{share(server, 'failed'):.0%}",
        cell(server, lambda found: found["overload"]["recovered_after_s"], ".1f"),
        f"{sum(stop['lost'] for stop in stops)} of {sum(stop['in_flight'] for stop in stops)}",
        cell(server, lambda found: found["stop"]["answered_for_s"], ".1f"),
        cell(server, lambda found: found["stop"]["ended_after_s"], ".1f", "killed"),
    ]


def cell(server: Data, get: Callable[[Data], float | None], form: str, otherwise: str = "") -> str:
    """Median over the rounds; `otherwise` if a round has no value."""
    values = [get(found) for found in server["rounds"]]
    known = [value for value in values if value is not None]
    return format(statistics.median(known), form) if len(known) == len(values) else otherwise


def share(server: Data, name: str) -> float:
    """Share of the overload's requests, averaged over the rounds."""
    return statistics.mean(float(found["overload"][name]) for found in server["rounds"])


def draw(record: Record, path: Path) -> None:
    """Chart of throughput (line: minimum to maximum), and of the overload's outcomes."""
    servers = [server for server in record.data["servers"] if server["rounds"]][::-1]
    names = [server["server"] for server in servers]
    figure, (left, right) = chart.figure((10, 0.9 + 0.42 * len(names)), 2, share_y=True)
    values = [[found["throughput"] for found in server["rounds"]] for server in servers]
    middle = [statistics.median(each) for each in values]
    spread = [
        [m - min(v) for m, v in zip(middle, values, strict=True)],
        [max(v) - m for m, v in zip(middle, values, strict=True)],
    ]
    bars = left.barh(names, middle, xerr=spread, capsize=3)
    left.bar_label(bars, fmt="%.0f", padding=6)
    left.set(xlabel="answers/s (median; lowest to highest)", xlim=(0, 1.2 * max(map(max, values), default=1)))
    start = [0.0] * len(servers)
    for name, colour in {"in_time": "C2", "late": "C1", "rejected": "C7", "failed": "C3"}.items():
        shares = [100 * share(server, name) for server in servers]
        right.barh(names, shares, left=start, color=colour, label=name.replace("_", " "))
        start = [a + b for a, b in zip(start, shares, strict=True)]
    right.set(xlabel="% of twice as many requests as it can answer", xlim=(0, 100))
    figure.legend(loc="outside upper right", ncols=4)
    chart.save(figure, path)


BENCHMARK = Benchmark.of("Our server beside others", measure, report, draw, options, PACKAGES)

if __name__ == "__main__":
    BENCHMARK.main()
