"""`python -m benchmarks.models.growth`: cost of a document against its length, the rows of a batch, and threads.

Lengths: a document cut from Supreme Court arguments, 64 bytes to 1 MiB, on one thread. The shipped classifiers
`scotus`, `imdb-s3` and `imdb-bytes` read it with `artifact.load`: like the service, it cuts a document that is longer
than the model reads into overlapping windows, and computes them in batches. Beside them, the paper's encoder with
S3Attention and with softmax attention (random weights, eager PyTorch, whose softmax attention is fused) reads each
length as one row. For an encoder, lengths that would take longer than `--longest-s` are left out.

Rows: batches of 1 to 256 rows of 1,024 and 4,096 bytes, one thread. Threads: two for one document, and two documents at
once on a thread each.

Each part is measured in turns; what takes half a second or longer is measured once, after one call to warm up. Times
are CPU times, because other programs on the machine hardly change them; those of threads are times on the clock.
"""

import argparse
import functools
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import artifact
from artifact.backends import create_backend
from artifact.backends.base import InferenceBackend
from artifact.documents import pad_rows
from artifact.exports import read_manifest, version_folder
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.interleave import interleave, timed
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table, three_digits
from benchmarks.models.inference_paths import onnx_session
from model.config.attentions import AttentionName
from model.config.data import DocumentsConfig
from model.config.encoder import EncoderConfig
from model.data.documents import load_documents
from model.nn.classifier import PaperClassifier

LENGTHS = tuple(64 << i for i in range(15))
SPANS = ((256, 4_096), (4_096, 65_536), (65_536, 1_048_576))
"""Lengths between which a power is fitted."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ROW_LENGTHS = (1_024, 4_096)
LONGEST_BATCH_S = 2.0
"""Seconds of the longest batch."""
SLOW_S = 0.5
"""Seconds from which a turn is measured once."""
SHIPPED = ("scotus", "imdb-s3", "imdb-bytes")
ENCODERS: dict[str, AttentionName] = {"S3Attention encoder": "s3", "softmax encoder": "softmax"}
MODELS = (*SHIPPED, *ENCODERS)
THREADED = (("scotus", 65_536), *((name, 4_096) for name in MODELS))
"""Models and lengths that are measured on two threads."""
THREAD_ROUNDS = 5
"""Rounds on threads for each other round. The fastest counts, because another program may have one of the cores."""
ONE, WITHIN, BESIDE = "one", "within", "beside"
"""A document on one thread; on two threads; two documents at once on a thread each."""

Run = Callable[[], Any]
"""Computes one document or batch."""
Turn = tuple[Run, float]
"""A run and its seconds; those of the first call if they are SLOW_S or more."""
Key = tuple[str, int]
"""Model, and a length or a number of rows."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    add_data_dir(parser)
    parser.add_argument("--rounds", type=int, default=4, help="measured rounds (default: %(default)s)")
    parser.add_argument(
        "--longest-s", type=float, default=35, help="longest call of an encoder in seconds (default: %(default)s)"
    )


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Seconds of each round of each length, of each number of rows, and on one and two threads."""
    torch.set_num_threads(1)
    config = DocumentsConfig(name="scotus")
    test = load_documents(config, args.data_dir).test
    text = b"\n".join(test.texts)[: LENGTHS[-1]]
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # before thread pools are created
    manifests = {name: read_manifest(version_folder(Path("exports") / name)) for name in SHIPPED}
    data: Data = {
        "versions": {name: manifest.version for name, manifest in manifests.items()},
        "max_length": {name: max(manifest.files_of("onnx")) for name, manifest in manifests.items()},
        "lengths": of_lengths(text, args.rounds, args.longest_s),
        "rows": {str(length): of_rows(text, length, args.rounds) for length in ROW_LENGTHS},
    }
    os.sched_setaffinity(0, cores)
    yield {**data, "threads": of_threads(text, THREAD_ROUNDS * args.rounds)}


def of_lengths(text: bytes, rounds: int, longest_s: float) -> Data:
    """Seconds of each round for one document of each length, and where the encoders ended."""
    turns: dict[Key, Turn] = {}
    ended = {}
    for name in SHIPPED:
        classify = artifact.load(Path("exports") / name, device="cpu").classify
        found, _ = affordable((((name, n), functools.partial(classify, text[:n])) for n in LENGTHS), math.inf)
        turns |= found
    for name in ENCODERS:
        found, next_s = affordable((((name, n), encoder_run(name, [text[:n]])) for n in LENGTHS), longest_s)
        turns |= found
        if next_s is not None:
            ended[name] = {"bytes": LENGTHS[len(found)], "seconds": next_s}
    return {"seconds": rows_of(in_turns(turns, rounds)), "ended": ended}


def of_rows(text: bytes, length: int, rounds: int) -> list[Data]:
    """Seconds of each round for batches of rows of one length."""
    turns: dict[Key, Turn] = {}
    cut = [text[i * length : (i + 1) * length] for i in range(ROWS[-1])]
    for name in MODELS:
        run = batch_run if name in SHIPPED else encoder_run
        found, _ = affordable((((name, count), run(name, cut[:count])) for count in ROWS), LONGEST_BATCH_S)
        turns |= found
    return rows_of(in_turns(turns, rounds))


def of_threads(text: bytes, rounds: int) -> list[Data]:
    """Seconds of each round on one thread, on two, and of two documents at once."""
    turns: dict[tuple[str, int, str], Run] = {}
    with ThreadPoolExecutor(2) as pool:
        for name, length in THREADED:
            one, within = threaded_runs(name, text[:length])
            turns |= {(name, length, ONE): one, (name, length, WITHIN): within}
            turns[name, length, BESIDE] = functools.partial(at_once, pool, one)
        timers = {key: functools.partial(timed_warm, run) for key, run in turns.items()}
        measured = interleave(timers, rounds, warm_up=2)
    return [
        {"model": name, "bytes": length, **{how: measured[name, length, how] for how in (ONE, WITHIN, BESIDE)}}
        for name, length in THREADED
    ]


def timed_warm(run: Run) -> float:
    """Seconds of a call that follows another one, so that the caches hold the model."""
    run()
    return timed(run)


def at_once(pool: ThreadPoolExecutor, run: Run) -> None:
    """Compute two documents at once."""
    for call in [pool.submit(run) for _ in range(2)]:
        call.result()


def threaded_runs(name: str, document: bytes) -> tuple[Run, Run]:
    """Functions that compute a document on one thread and on two."""
    if name in ENCODERS:
        run = encoder_run(name, [document])

        def within() -> None:
            torch.set_num_threads(2)
            run()
            torch.set_num_threads(1)

        return run, within
    path = version_folder(Path("exports") / name) / "model.onnx"
    inputs = dict(zip(("bytes", "lengths"), pad_rows([document], len(document)), strict=True))
    one, two = (functools.partial(onnx_session(path, threads).run, None, inputs) for threads in (1, 2))
    return one, two


def batch_run(name: str, rows: Sequence[bytes]) -> Run:
    """Function that computes a batch of rows of one length with a shipped classifier."""
    backend = loaded(name)
    padded, lengths = pad_rows(rows, len(rows[0]))
    return lambda: backend.run({"bytes": padded, "lengths": lengths})


@functools.cache
def loaded(name: str) -> InferenceBackend:
    """Backend of a shipped classifier."""
    folder = version_folder(Path("exports") / name)
    return create_backend(read_manifest(folder), folder, device="cpu")


def encoder_run(name: str, rows: Sequence[bytes]) -> Run:
    """Function that computes a batch of rows of one length with an encoder of random weights."""
    torch.manual_seed(0)
    length = len(rows[0])
    model = PaperClassifier(EncoderConfig(attention=ENCODERS[name], mode="paper-masked", seq_len=length), 2).eval()
    padded, lengths = map(torch.from_numpy, pad_rows(rows, length))
    return torch.inference_mode()(lambda: model(padded, lengths))  # in the thread that calls it


def affordable(runs: Iterable[tuple[Key, Run]], longest_s: float) -> tuple[dict[Key, Turn], float | None]:
    """Time runs of increasing size; stop before the first that is expected to take longer than `longest_s`.

    A run is expected to grow by the factor of the run before it, but at least by two.

    Returns: the runs with their seconds, and the expected seconds of the next one if it was left out.
    """
    found: dict[Key, Turn] = {}
    before, expected = math.inf, 0.0
    for key, run in runs:
        if expected > longest_s:
            return found, expected
        seconds = timed(run, time.process_time)
        if seconds < SLOW_S:  # the first call allocates memory
            seconds = timed(run, time.process_time)
        expected, before = seconds * max(2.0, seconds / before), seconds
        found[key] = run, seconds
    return found, None


def in_turns(turns: dict[Key, Turn], rounds: int) -> dict[Key, list[float]]:
    """Seconds of each round of each run; of one that takes SLOW_S or longer, only one round."""
    parts = [
        interleave(
            {
                key: functools.partial(timed, run, time.process_time)
                for key, (run, s) in turns.items()
                if (s < SLOW_S) == is_fast
            },
            n,
        )
        for is_fast, n in ((True, rounds), (False, 1))
    ]
    return {key: (parts[0] | parts[1])[key] for key in turns}


def rows_of(measured: dict[Key, list[float]]) -> list[Data]:
    """Measurements of a part, for the record."""
    return [{"model": name, "size": size, "seconds": found} for (name, size), found in measured.items()]


def milliseconds(rows: Sequence[Data]) -> dict[Key, float]:
    """Median of each measurement of a part in ms."""
    return {(row["model"], row["size"]): 1000 * statistics.median(row["seconds"]) for row in rows}


def power(ms: dict[Key, float], name: str, span: tuple[int, int]) -> float | None:
    """Power of the length with which the cost grows in a span: the slope of the line fitted to the logarithms.

    None if fewer than three lengths of the span were measured.
    """
    points = [(math.log(size), math.log(ms[name, size])) for size in LENGTHS if (name, size) in ms]
    points = [point for point in points if math.log(span[0]) <= point[0] <= math.log(span[1])]
    if len(points) < 3:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def report(record: Record) -> str:
    """Report with the tables of the three parts."""
    data = record.data
    ms = milliseconds(data["lengths"]["seconds"])
    lengths = [[f"{n:,}", *(three_digits(ms.get((name, n))) for name in MODELS)] for n in LENGTHS]
    found_powers = {name: [power(ms, name, span) for span in SPANS] for name in MODELS}
    powers = [[name, *("" if p is None else f"{p:.2f}" for p in of)] for name, of in found_powers.items()]
    ended = "".join(
        f" The {name} ends before {at['bytes']:,} bytes, which would take about {at['seconds']:.0f} s."
        for name, at in data["lengths"]["ended"].items()
    )
    batches = []
    for name, length in itertools.product(MODELS, ROW_LENGTHS):
        found = milliseconds(data["rows"][str(length)])
        each = {count: found[name, count] / count for count in ROWS if (name, count) in found}
        batches.append([name, f"{length:,}", *(three_digits(each.get(count)) for count in ROWS)])
    threads = []
    for row in data["threads"]:
        one, within, beside = (1000 * min(row[how]) for how in (ONE, WITHIN, BESIDE))
        cells = [
            three_digits(one),
            three_digits(within),
            f"{one / within:.2f} x",
            three_digits(beside),
            f"{2 * one / beside:.2f} x",
        ]
        threads.append([row["model"], f"{row['bytes']:,}", *cells])
    reads = ", ".join(f"`{name}` reads up to {length:,} bytes" for name, length in data["max_length"].items())
    versions = ", ".join(f"`{name}` {version}" for name, version in data["versions"].items())
    return "\n".join(
        [
            f"Versions: {versions}. CPU time in milliseconds, median of {record.settings['rounds']} rounds in "
            f"turns, or one measurement from {SLOW_S:g} s on.",
            "",
            "## Length, one document on one thread",
            "",
            table(["bytes", *MODELS], lengths, left=0),
            f"At once, {reads}; longer documents are read in overlapping windows.{ended} Memory set no limit: the "
            "kernel of softmax attention is fused.",
            "",
            "Power of the length with which the cost grows, fitted between two lengths:",
            "",
            table(["", *(f"{low:,} to {high:,}" for low, high in SPANS)], powers),
            "## Rows of a batch, milliseconds a row on one thread",
            "",
            table(["", "bytes", *map(str, ROWS)], batches),
            f"No batch was measured that would take longer than {LONGEST_BATCH_S:g} s.",
            "",
            "## Threads",
            "",
            table(
                ["", "bytes", "one thread, ms", "two threads, ms", "faster", "two documents at once, ms", "throughput"],
                threads,
            ),
            f"Times on the clock, fastest of {len(data['threads'][0][ONE])} rounds in turns. Two threads compute one "
            "document, or two documents at once on a thread each, as the service does.",
        ]
    )


def draw(record: Record, path: Path) -> None:
    """Charts of the cost against length and against rows."""
    figure, axes = chart.figure((13, 4.5), 3)
    ms = milliseconds(record.data["lengths"]["seconds"])
    parts = [(ms, 1), *((milliseconds(record.data["rows"][str(length)]), 0) for length in ROW_LENGTHS)]
    for axis, (found, is_length) in zip(axes, parts, strict=True):
        for name in MODELS:
            sizes = [size for of, size in found if of == name]
            values = [found[name, size] / (1 if is_length else size) for size in sizes]
            axis.plot(sizes, values, marker="o", markersize=4, label=name)
        axis.set(xscale="log", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set(xlabel="bytes of a document", ylabel="ms a document, one thread")
    ticks = ["64", "256", *(f"{n // 1024} KiB" for n in LENGTHS[4:-1:2]), "1 MiB"]
    axes[0].set_xticks(LENGTHS[::2], ticks, fontsize=8)
    for axis, length in zip(axes[1:], ROW_LENGTHS, strict=True):
        axis.set(xlabel="rows of a batch", ylabel="ms a row, one thread", title=f"{length:,} bytes")
        axis.set_xticks(ROWS, [str(count) for count in ROWS])
    for axis in axes:
        axis.minorticks_off()
    axes[0].legend(loc="lower right")
    chart.save(figure, path)


BENCHMARK = Benchmark.of("Growth of the cost", measure, report, draw, options, ("torch", "onnxruntime", "numpy"))

if __name__ == "__main__":
    BENCHMARK.main()
