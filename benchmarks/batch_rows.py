"""`python -m benchmarks.batch_rows`: how many rows a batch should hold on this CPU.

Servers with different limits are saturated in turns. Writes `batch_rows.md` into `benchmarks/results/`.
"""

import argparse
import contextlib
import statistics

from benchmarks.load import closed_loop, post, run
from benchmarks.served import RESULTS, TEXT, document, header, service, table

NAME = "batch_rows"
CONNECTIONS = 32


def main() -> None:
    """Measure, print the table, write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch_rows", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8, 16, 32], help="limits to compare")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement (default: %(default)s)")
    args = parser.parse_args()
    head = header(
        "Rows in a batch",
        [
            f"Documents of 4,096 bytes, {CONNECTIONS} connections that ask as fast as they are answered, {args.rounds} "
            f"rounds of {args.seconds:g} s in turns; server and load share the cores."
        ],
        f"python -m benchmarks.batch_rows --rows {' '.join(map(str, args.rows))} --rounds {args.rounds} "
        f"--seconds {args.seconds:g}",
    )
    with contextlib.ExitStack() as stack:
        servers = {
            rows: stack.enter_context(service("--reload-s", "0", "--max-batch-rows", str(rows))) for rows in args.rows
        }
        measured: dict[int, list[float]] = {rows: [] for rows in args.rows}
        for _ in range(args.rounds):
            for rows, server in servers.items():
                requests = [post(f"{server.url}/v1/classify", document(4096), TEXT)]
                load = closed_loop(server.url, requests, connections=CONNECTIONS, seconds=args.seconds)
                measured[rows].append(run(load).throughput)
    first = measured[args.rows[0]]
    lines = [
        [
            str(rows),
            f"{statistics.median(found):.0f} ({min(found):.0f} to {max(found):.0f})",
            f"{statistics.median(a / b for a, b in zip(found, first, strict=True)):.2f}",
        ]
        for rows, found in measured.items()
    ]
    report = f"{head}\n{table(['rows at most', 'documents/s', f'ratio to {args.rows[0]}'], lines)}"
    print(report)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{NAME}.md").write_text(report)


if __name__ == "__main__":
    main()
