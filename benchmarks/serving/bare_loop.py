"""`python -m benchmarks.serving.bare_loop THREADS BATCH SECONDS`: documents per second of ONNX Runtime alone.

Upper bound of the server's throughput. Used by `benchmarks.serving.front_end`.
"""

import argparse
import threading
import time
from pathlib import Path

import numpy as np

from artifact.exports import version_folder
from artifact.loading import load_export
from benchmarks.lib.servers import document


def documents_a_second(threads: int, batch: int, seconds: float) -> float:
    """Documents per second, computing batches of full-length documents on every thread."""
    backend = load_export(version_folder(Path("exports/imdb-s3")), device="cpu").backend
    rows = np.frombuffer(document(4096) * batch, np.uint8).reshape(batch, 4096)
    lengths = np.full(batch, 4096, np.int32)
    done = [0] * threads
    until = time.perf_counter() + seconds

    def loop(thread: int) -> None:
        while time.perf_counter() < until:
            backend.run({"bytes": rows, "lengths": lengths})
            done[thread] += batch

    workers = [threading.Thread(target=loop, args=(thread,)) for thread in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(done) / (time.perf_counter() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.bare_loop", description=__doc__)
    parser.add_argument("threads", type=int)
    parser.add_argument("batch", type=int)
    parser.add_argument("seconds", type=float)
    args = parser.parse_args()
    print(documents_a_second(args.threads, args.batch, args.seconds))


if __name__ == "__main__":
    main()
