"""`python -m benchmarks.front_end`: what the server costs beside the model, over real sockets.

First with a backend that computes nothing, the server on one core and the load on another: requests a second, beside a
plain FastAPI route and bare uvicorn. Then with the real model: the share of what a bare ONNX Runtime loop computes on
the same cores in the same run. All take turns. Writes `front_end.md` and `.png` into `benchmarks/results/`.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Callable

import matplotlib
import orjson

from benchmarks.load import closed_loop, post, run
from benchmarks.served import RESULTS, TEXT, Server, document, header, server, service, table

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

NAME = "front_end"
GOAL = 2500
SHARE = 0.95

BARE = """
import sys, threading, time
from pathlib import Path
import numpy as np
from artifact.loading import load_export
from artifact.manifest import newest_version
from benchmarks.served import document
threads, batch, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
backend = load_export(newest_version(Path("exports/imdb-s3")), device="cpu").backend
rows = np.frombuffer(document(4096) * batch, np.uint8).reshape(batch, 4096)
lengths = np.full(batch, 4096, np.int32)
done = [0] * threads
until = time.perf_counter() + seconds
def loop(i):
    while time.perf_counter() < until:
        backend.run({"bytes": rows, "lengths": lengths})
        done[i] += batch
workers = [threading.Thread(target=loop, args=(i,)) for i in range(threads)]
started = time.perf_counter()
[w.start() for w in workers]; [w.join() for w in workers]
print(sum(done) / (time.perf_counter() - started))
"""
"""A loop over ONNX Runtime and nothing else, with as many threads as the server has slots; on a core or on all."""


def main() -> None:
    """Measure, print the tables, write them and the chart."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.front_end", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--connections", type=int, default=32, help="default: %(default)s")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    own, rest = {cores[0]}, set(cores[1:]) or {cores[0]}
    flags = f"--seconds {args.seconds:g} --rounds {args.rounds} --connections {args.connections}"
    head = header(
        "What the server costs beside the model",
        [
            f"4,096-byte documents, {args.connections} connections kept alive, median of {args.rounds} rounds of "
            f"{args.seconds:g} s in turns (lowest to highest). The load has a core of its own, except in the last part."
        ],
        f"python -m benchmarks.front_end {flags}",
    )
    text = document(4096)

    def load(target: Server, body: bytes, kind: str) -> float:
        requests = [post(f"{target.url}/v1/classify", body, kind)]
        done = run(closed_loop(target.url, requests, connections=args.connections, seconds=args.seconds))
        assert set(done.statuses()) == {200}, done.statuses()
        return done.throughput

    def bare(threads: int, batch: int, on: set[int]) -> float:
        command = [sys.executable, "-c", BARE, str(threads), str(batch), str(args.seconds)]
        pin: Callable[[], None] = lambda: os.sched_setaffinity(0, on)  # noqa: E731
        return float(subprocess.run(command, capture_output=True, check=True, text=True, preexec_fn=pin).stdout)

    json = orjson.dumps({"inputs": text.decode()})
    with contextlib.ExitStack() as stack:
        makes = {
            make: stack.enter_context(server(["-m", "benchmarks.null_service", "--make", make], own))
            for make in ("asgi", "fastapi", "ours")
        }
        one = stack.enter_context(service(cores=own))
        both = stack.enter_context(service())
        measured: dict[str, list[float]] = {}
        for _ in range(args.rounds):
            os.sched_setaffinity(0, rest)
            turns: tuple[tuple[str, Callable[[], float]], ...] = (
                ("uvicorn alone (floor)", lambda: load(makes["asgi"], json, "application/json")),
                ("FastAPI route with pydantic", lambda: load(makes["fastapi"], json, "application/json")),
                ("ours, JSON", lambda: load(makes["ours"], json, "application/json")),
                ("ours, text/plain", lambda: load(makes["ours"], text, TEXT)),
                ("bare loop, 1 core, batch 1", lambda: bare(1, 1, own)),
                ("bare loop, 1 core, batch 4", lambda: bare(1, 4, own)),
                ("served, 1 core", lambda: load(one, text, TEXT)),
            )
            for name, value in turns:
                measured.setdefault(name, []).append(value())
            os.sched_setaffinity(0, cores)
            measured.setdefault(f"bare loop, {len(cores)} cores, batch 4", []).append(bare(len(cores), 4, set(cores)))
            measured.setdefault(f"served, {len(cores)} cores, the load on them too", []).append(load(both, text, TEXT))

    report = head + "\n" + _tables(measured, len(cores))
    print(report)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{NAME}.md").write_text(report)
    _draw(measured)


def _median(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def _share(a: list[float], b: list[float]) -> str:
    """Ratio of two series that were measured in turns."""
    return f"{statistics.median(x / y for x, y in zip(a, b, strict=True)):.2f}"


def _tables(measured: dict[str, list[float]], cores: int) -> str:
    names = list(measured)
    floor, best = measured[names[0]], measured["bare loop, 1 core, batch 4"]
    null = [[name, _median(measured[name]), _share(measured[name], floor)] for name in names[:4]]
    real = [[name, _median(measured[name]), _share(measured[name], best)] for name in names[4:7]]
    every = [[name, _median(measured[name]), _share(measured[name], measured[names[7]])] for name in names[7:]]
    reached = statistics.median(measured["ours, JSON"])
    return "\n".join(
        [
            "## Without a model, one core",
            "",
            table(["", "requests/s", "ratio to the floor"], null),
            f"Goal {GOAL}: {'reached' if reached >= GOAL else 'not reached'}.",
            "",
            "## With the model, one core for everything but the load",
            "",
            table(["", "documents/s", "share of the bare loop"], real),
            f"## With the model, {cores} cores for everything",
            "",
            table(["", "documents/s", "share of the bare loop"], every),
        ]
    )


def _draw(measured: dict[str, list[float]]) -> None:
    """Bars of the medians, on a chart."""
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 3.6))
    names = list(measured)
    for axis, chosen, unit in ((axes[0], names[:4], "requests/s, no model"), (axes[1], names[4:], "documents/s")):
        axis.barh(chosen, [statistics.median(measured[name]) for name in chosen], color="#4477aa")
        axis.invert_yaxis()
        axis.set_xlabel(unit)
    axes[0].axvline(GOAL, color="#cc6677", linestyle="--", label="goal")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(RESULTS / f"{NAME}.png", dpi=120)


if __name__ == "__main__":
    main()
