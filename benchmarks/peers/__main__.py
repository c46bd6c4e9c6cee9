"""`python -m benchmarks.peers`: our server beside others, with the same model, load and cores, in turns.

Each server is set up as its documentation advises, in an environment of its own below `.venv/peers/`, and must give
our answers before it is measured. In every round, in random order, each one is started, saturated by a closed loop,
asked at a rate that all can bear, left alone, asked twice as much as it can answer, and stopped by SIGTERM while it
answers. Writes `peers.md`, `.png` and `.json` into `benchmarks/results/`.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import matplotlib
from tqdm import tqdm

from benchmarks.peers.catalogue import PEERS, Peer
from benchmarks.peers.classifier import MAX_BATCH
from benchmarks.peers.measure import AFTER_S, CALM_S, CONNECTIONS, DEADLINE_S, STOP_S, Bench, Measured
from benchmarks.peers.processes import PeerFailed, adopt_orphans, install
from benchmarks.served import RESULTS, document, header, table

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

NAME = "peers"


@dataclass
class Entry:
    """A server and what has become known of it."""

    peer: Peer
    folder: Path = Path(sys.executable).parent
    """Of its programs."""
    capacity: float = 0.0
    """Answers a second, before the rounds."""
    rounds: list[Measured] = field(default_factory=list)
    failure: str = ""

    def median(self, get: Callable[[Measured], float | None]) -> float | None:
        """Over the rounds; None if it is in one of them."""
        values = [get(measured) for measured in self.rounds]
        known = [value for value in values if value is not None]
        return statistics.median(known) if len(known) == len(values) else None

    def share(self, name: str) -> float:
        """Of the requests that were too many, over the rounds."""
        return statistics.mean(float(getattr(measured.overload, name)) for measured in self.rounds)


def main() -> None:
    """Measure, print the tables, write them, the chart and the raw figures."""
    args = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the servers are ended
    adopt_orphans()
    head = facts(args)  # before the run, whose own load is not of interest
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
    text = f"{head}\n{report(entries, rate)}"
    print(text)
    write(entries, rate, text, args.out)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=10, help="of each load (default: %(default)s)")
    parser.add_argument("--document-bytes", type=int, default=4096, help="default: %(default)s")
    parser.add_argument("--rate", type=float, help="common moderate rate; default: half of what the slowest can")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="of the servers (default: all)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    args = parser.parse_args()
    args.peers = args.peers.split(",")
    if unknown := set(args.peers) - set(PEERS):
        parser.error(f"--peers: no {', '.join(sorted(unknown))}; there are: {', '.join(PEERS)}")
    return args


@contextlib.contextmanager
def noted(entry: Entry) -> Iterator[None]:
    """Note the failure of one server; the others go on."""
    try:
        yield
    except PeerFailed as failure:
        entry.failure = str(failure)
    except Exception as error:  # an answer of another form, for instance
        entry.failure = repr(error)[:200]


def common_rate(capacities: Sequence[float]) -> float:
    """Half of the lowest, rounded down to tens, or to ones below 20."""
    half = min(capacities, default=0.0) / 2
    return max(1.0, half // 10 * 10 if half >= 20 else half // 1)


def facts(args: argparse.Namespace) -> str:
    """What a reader needs to judge or repeat the figures."""
    all_cores = len(os.sched_getaffinity(0))
    where = "which the load shares" if args.cores >= all_cores else f"the load has the other {all_cores - args.cores}"
    return header(
        "Our server beside others",
        [
            f"`exports/imdb-s3` in all, computed alike by ONNX Runtime, one thread a core; cores: {args.cores}, "
            f"{where}; at most {MAX_BATCH} documents in a batch, where there are batches. Documents of "
            f"{args.document_bytes:,} bytes in JSON, in each server's own format; connections kept alive. Rounds, in "
            f"random order: {args.rounds}, each load {args.seconds:g} s; medians, but shares over all rounds.",
        ],
        f"python -m benchmarks.peers --peers {','.join(args.peers)} --rounds {args.rounds} --seconds {args.seconds:g} "
        f"--document-bytes {args.document_bytes}{f' --rate {args.rate:g}' if args.rate else ''} --cores {args.cores}",
    )


def report(entries: Sequence[Entry], rate: float) -> str:
    """The figures as tables, and what has to be known of them."""
    measured = [entry for entry in entries if entry.rounds]
    speed = [
        [
            entry.peer.name,
            entry.peer.version,
            figure(entry.median(lambda m: m.throughput), ".0f"),
            figure(entry.median(lambda m: m.saturated_p99_ms), ".0f"),
            figure(entry.median(lambda m: m.moderate_p50_ms), ".1f"),
            figure(entry.median(lambda m: m.moderate_p99_ms), ".1f") + unanswered(entry),
            figure(entry.median(lambda m: m.idle_cpu), ".1%"),
            figure(entry.median(lambda m: m.start_s), ".1f"),
            figure(entry.median(lambda m: m.memory_mib), ".0f"),
        ]
        for entry in measured
    ]
    trouble = [
        [
            entry.peer.name,
            figure(entry.median(lambda m: m.overload.offered), ".0f"),
            *(f"{entry.share(name):.0%}" for name in ("in_time", "late", "refused")),
            figure(entry.median(lambda m: m.overload.told_when), ".0%"),
            f"{entry.share('failed'):.0%}",
            figure(entry.median(lambda m: m.overload.calm_after_s), ".1f"),
            f"{sum(m.stop.lost for m in entry.rounds)} of {sum(m.stop.under_way for m in entry.rounds)}",
            figure(entry.median(lambda m: m.stop.served_on_s), ".1f"),
            figure(entry.median(lambda m: m.stop.ended_after_s), ".1f", "killed"),
        ]
        for entry in measured
    ]
    moderate = f"at {rate:g}/s, ms"
    columns = ["server", "version", "answers/s", "p99, ms", f"p50 {moderate}", "p99", "idle, of a core", "start, s"]
    parts = [
        table([*columns, "memory, MiB"], speed),
        f"Answers/s and the first p99: {CONNECTIONS} connections that ask as fast as they are answered. {rate:g}/s: at "
        "random moments. Start: to the first answer. Memory: proportional set size of all processes, after load.\n",
        table(
            [
                *("server", "offered/s", "in time", "late", "refused", "told when", "failed", "calm after, s"),
                *("lost", "served on, s", "ended after, s"),
            ],
            trouble,
        ),
        f"Offered: twice what it can answer, at random moments; clients give up after {DEADLINE_S:g} s, which counts "
        "as late, as do 408 and 504. Refused: 429 or 503; told when: the share of these with `Retry-After`. Calm: it "
        f"answers a request within {CALM_S:g} s again. Lost: requests under way at SIGTERM that got no answer; the "
        "signal goes to the process that was started, whose end ends the others, as in a container with an init. "
        f"Served on: how long new requests were answered after it, of {AFTER_S:g} s. Killed: after {STOP_S:g} s.\n",
        "Set up:\n\n" + "".join(f"- {entry.peer.name}: {entry.peer.settings}.\n" for entry in entries),
    ]
    if failures := [f"- {entry.peer.name}: {entry.failure}\n" for entry in entries if entry.failure]:
        parts.append("Not measured, or not in every round:\n\n" + "".join(failures))
    return "\n".join(parts)


def figure(value: float | None, form: str, otherwise: str = "") -> str:
    """A cell of a table."""
    return otherwise if value is None else format(value, form)


def unanswered(entry: Entry) -> str:
    """A mark at latencies that are not those of all requests."""
    share = min(measured.moderate_answered for measured in entry.rounds)
    return f" ({share:.0%} answered)" if share < 1 else ""


def write(entries: Sequence[Entry], rate: float, text: str, folder: Path) -> None:
    """The tables, the raw figures and the chart."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.md").write_text(text)
    servers = [
        {
            "server": entry.peer.name,
            "version": entry.peer.version,
            "capacity_before": entry.capacity,
            "failure": entry.failure,
            "rounds": [asdict(measured) for measured in entry.rounds],
        }
        for entry in entries
    ]
    (folder / f"{NAME}.json").write_text(json.dumps({"moderate_rate": rate, "servers": servers}, indent=1) + "\n")
    if measured := [entry for entry in entries if entry.rounds]:
        chart(measured[::-1], folder / f"{NAME}.png")


def chart(entries: Sequence[Entry], path: Path) -> None:
    """Throughput, with a line from the lowest to the highest round, and what became of twice as much."""
    names = [entry.peer.name for entry in entries]
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(10, 0.9 + 0.42 * len(names)), layout="constrained", sharey=True
    )
    values = [[m.throughput for m in entry.rounds] for entry in entries]
    middle = [statistics.median(each) for each in values]
    spread = [
        [m - min(v) for m, v in zip(middle, values, strict=True)],
        [max(v) - m for m, v in zip(middle, values, strict=True)],
    ]
    bars = left.barh(names, middle, xerr=spread, capsize=3)
    left.bar_label(bars, fmt="%.0f", padding=6)
    left.set(xlabel="answers/s (median; lowest to highest)", xlim=(0, 1.2 * max(map(max, values))))
    start = [0.0] * len(entries)
    for name, colour in {"in_time": "C2", "late": "C1", "refused": "C7", "failed": "C3"}.items():
        share = [100 * entry.share(name) for entry in entries]
        right.barh(names, share, left=start, color=colour, label=name.replace("_", " "))
        start = [a + b for a, b in zip(start, share, strict=True)]
    right.set(xlabel="% of twice as many requests as it can answer", xlim=(0, 100))
    figure.legend(loc="outside upper right", ncols=4)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
