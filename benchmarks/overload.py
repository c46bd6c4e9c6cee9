"""`python -m benchmarks.overload`: what becomes of each request when more come than can be computed.

Measures the capacity with a closed loop, then sends 2 and 10 times as many requests at random moments, each with a
deadline, and the capacity again. Counts what was answered in time, late, refused, failed; Retry-After; memory. Writes
`overload.md` and `.png` into `benchmarks/results/`.
"""

import argparse
import os

import matplotlib
import numpy as np

from benchmarks.load import Outcome, closed_loop, open_loop, post, run
from benchmarks.served import RESULTS, TEXT, Server, document, header, service, table

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

NAME = "overload"
HONEST = {200, 429, 503, 504}
"""How a request may end."""


def main() -> None:
    """Measure, print the table, write it and the chart."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of each overload (default: %(default)s)")
    parser.add_argument("--deadline-ms", type=int, default=2000, help="of each request (default: %(default)s)")
    parser.add_argument("--bytes", type=int, nargs="+", default=[4096, 16384, 65536], help="of a document")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    head = header(
        "More requests than can be computed",
        [
            f"The server has one core, the load another. Each request has a deadline of {args.deadline_ms} ms "
            f"(`X-Request-Timeout-Ms`) and comes at a random moment, for {args.seconds:g} s. Capacity: a closed loop "
            "of 32 connections, the mean of one before and one after. In time: answered within the deadline, as the "
            "client sees it."
        ],
        f"python -m benchmarks.overload --seconds {args.seconds:g} --deadline-ms {args.deadline_ms} "
        f"--bytes {' '.join(map(str, args.bytes))}",
    )
    os.sched_setaffinity(0, cores[1:] or cores)
    rows, curves = [], []
    for length in args.bytes:
        with service("--reload-s", "0", cores={cores[0]}) as server:
            requests = [post(f"{server.url}/v1/classify", document(length), TEXT, _headers(args.deadline_ms))]
            for times in (2, 10):
                row, outcome = _overload(server, requests, times, args.seconds, args.deadline_ms / 1000)
                rows.append([f"{length:,} bytes, {times} x", *row])
                curves.append((f"{length:,} bytes, {times} x", outcome))
                print(rows[-1], flush=True)
            server.stop()
    columns = ["", "capacity/s", "offered/s", "in time/s", "share", "late", "429", "503", "504", "other", "Retry-After"]
    columns += ["p50 ms", "p99 ms", "memory MB before, after"]
    report = f"{head}\n{table(columns, rows)}"
    print(report)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{NAME}.md").write_text(report)
    _draw(curves)


def _headers(deadline_ms: int) -> dict[str, str]:
    return {"x-request-timeout-ms": str(deadline_ms)}


def _overload(
    server: Server, requests: list[bytes], times: int, seconds: float, deadline_s: float
) -> tuple[list[str], Outcome]:
    """One overload between two measurements of the capacity; the cells of its row."""
    before = _capacity(server, requests)
    rss = server.rss_mb()
    outcome = run(open_loop(server.url, requests, rate=times * before, seconds=seconds))
    after_rss = server.rss_mb()
    capacity = (before + _capacity(server, requests)) / 2
    statuses = outcome.statuses()
    in_time = int((outcome.latencies <= deadline_s).sum())
    late = int(outcome.answered.sum()) - in_time
    other = sum(count for status, count in statuses.items() if status not in HONEST) + sum(outcome.failures.values())
    refused = np.isin(outcome.status, (429, 503))
    told = outcome.has_retry_after[refused].mean() if refused.any() else float("nan")
    return [
        f"{capacity:.0f}",
        f"{times * before:.0f}",
        f"{in_time / seconds:.0f}",
        f"{in_time / seconds / capacity:.2f}",
        *(str(count) for count in (late, statuses.get(429, 0), statuses.get(503, 0), statuses.get(504, 0), other)),
        f"{told:.0%}",
        f"{1e3 * outcome.quantile(0.5):.0f}",
        f"{1e3 * outcome.quantile(0.99):.0f}",
        f"{rss:.0f}, {after_rss:.0f}",
    ], outcome


def _capacity(server: Server, requests: list[bytes]) -> float:
    return run(closed_loop(server.url, requests, connections=32, seconds=8)).throughput


def _draw(curves: list[tuple[str, Outcome]]) -> None:
    """Latency of what was answered, on a chart."""
    figure, axis = pyplot.subplots(figsize=(7, 3.6))
    for name, outcome in curves:
        latencies = np.sort(outcome.latencies)
        if latencies.size:
            axis.plot(1e3 * latencies, np.linspace(0, 1, latencies.size), label=name)
    axis.set_xlabel("ms until the answer")
    axis.set_ylabel("share of the answers")
    axis.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / f"{NAME}.png", dpi=120)


if __name__ == "__main__":
    main()
