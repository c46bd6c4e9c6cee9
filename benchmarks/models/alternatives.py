"""`python -m benchmarks.models.alternatives`: what else could classify film reviews, with which accuracy and cost.

Compares the shipped classifier with TF-IDF and logistic regression, with means of word and bigram vectors as in
fastText, with a transformer of DistilBERT's size (random weights, for its speed alone) in float32 and in int8, and with
the paper's encoder (random weights; its accuracy is recorded by `imdb_paper_cpu`). Accuracy is that on all test reviews
of IMDb. Cost is the CPU time of a document on one core, without a server and over HTTP while another core makes the
load, in turns: other programs on the machine hardly change the CPU time.

What is missing in `runs/alternatives/` is made first, on one thread, in ten minutes; `--make-only` ends then. The
measurements take two minutes and need two cores that do nothing else.
"""

import argparse
import collections
import contextlib
import itertools
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import artifact
from artifact.documents import combine, cut, pad_rows, take
from artifact.manifest import version_folder
from benchmarks.lib import chart, record
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.interleave import interleave
from benchmarks.lib.load import closed_loop, post, run
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, Server, server, service
from benchmarks.lib.table import mean_and_deviation, table, three_digits
from benchmarks.models import imdb_paper_cpu, rivals, untrained
from benchmarks.serving.classifiers import LOADERS, MODEL

NAME = "alternatives"
LONG = 4096
"""Bytes of the long documents."""
WARM_UP_S = 1.0

Classify = Callable[[str], Any]


@dataclass(frozen=True)
class Entry:
    """One classifier of the comparison."""

    key: str
    label: str
    """Name in the report."""
    documents: int = 200
    """Number of documents that are classified without a server, and sent over HTTP."""
    calls: int = 5
    """Number of calls over which the documents are divided; together, the calls classify each document once."""
    connections: int = 0
    """Connections of the load; 0 if it is not served."""
    seconds: float = 4.0
    """Duration of a load."""
    quoted: float | None = None
    """Published accuracy, for one that is not trained here."""


ENTRIES = (
    Entry("imdb-s3", "`imdb-s3`, as served", connections=32),
    Entry("tfidf", "TF-IDF + logistic regression", connections=32),
    Entry("word-vectors", "fastText-like", connections=32),
    # Sanh et al. 2019, arXiv:1910.01108, Table 2. It computes one document at a time, so that few connections suffice.
    Entry("transformer", "DistilBERT's size, float32", 20, 20, connections=4, seconds=6, quoted=0.9282),
    Entry("transformer-int8", "DistilBERT's size, int8", 20, 20, connections=4, seconds=6),
    Entry("paper-512", "S3Attention on 512 bytes", 100, 20),
    # Wang et al. 2024, arXiv:2408.08567, Table 1.
    Entry("paper", "S3Attention on 4,096 bytes", 100, 20, quoted=0.6927),
)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    add_data_dir(parser)
    parser.add_argument("--runs", default=f"runs/{NAME}", type=Path, help="folder of the models (default: %(default)s)")
    parser.add_argument("--make-only", action="store_true", help="make the models that are missing, measure nothing")
    parser.add_argument("--rounds", type=int, default=20, help="rounds without a server (default: %(default)s)")
    parser.add_argument("--loads", type=int, default=3, help="loads of each server (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Accuracies, seconds of each document, documents per second of each load, sizes on disk and in memory."""
    reviews = rivals.Reviews(args.data_dir)
    results = rivals.make(reviews, args.runs)
    if args.make_only:
        return
    texts = [text.decode() for text in reviews.test.texts]
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})  # before sessions and thread pools are created
    alone = without_server(texts, args.runs, args.rounds)
    os.sched_setaffinity(0, set(cores[1:]) or set(cores))
    served = over_http(texts, args.runs, args.loads, {cores[0]})
    recorded = accuracies()
    yield {
        "tests": len(texts),
        "models": results,
        "rows": [
            {
                "key": entry.key,
                "accuracies": results.get(entry.key, {}).get("accuracies") or recorded.get(entry.key, []),
                "quoted": entry.quoted,
                "disk_bytes": disk_bytes(entry.key, args.runs),
                **alone[entry.key],
                **served.get(entry.key, {}),
            }
            for entry in ENTRIES
        ],
    }


def accuracies() -> dict[str, list[float]]:
    """Test accuracies that other benchmarks have recorded, one for each seed."""
    imdb = [one for one in record.read("classification").data["runs"] if one["case"] == "imdb"]
    wanted = ("accuracy", "windows")
    return {
        "imdb-s3": [
            found["value"]
            for one in imdb
            for found in one["results"]
            if (found["metric"], found["condition"]) == wanted
        ],
        "paper-512": [one["results"]["windows"] for one in record.read(imdb_paper_cpu.NAME).data["runs"]],
    }


def file_of(key: str, runs: Path) -> Path:
    """File of a trained or exported classifier."""
    if key == "imdb-s3":
        return version_folder(rivals.SHIPPED) / "model.onnx"
    folder = runs / "transformer" / "int8" if key == "transformer-int8" else runs / key
    return next(folder.glob(f"{MODEL}.*"))


def disk_bytes(key: str, runs: Path) -> int | None:
    """Size of a classifier's file; None for the paper's encoders, which are not kept."""
    return None if key.startswith("paper") else file_of(key, runs).stat().st_size


def kind(key: str) -> str:
    """How a classifier is loaded (`LOADERS`)."""
    return key.removesuffix("-int8")


def load(key: str, runs: Path) -> Classify:
    """Load a classifier that computes one document at a time."""
    if key == "imdb-s3":
        return artifact.load(rivals.SHIPPED, device="cpu").classify
    if key == "paper-512":
        return in_windows("imdb-paper-cpu", 512)
    if key == "paper":
        return in_windows("imdb-paper", LONG)
    return LOADERS[kind(key)](file_of(key, runs).parent)


def in_windows(recipe: str, length: int) -> Classify:
    """The paper's encoder with random weights, on overlapping windows of `length` bytes, as evaluation reads them."""
    backend = untrained.load(recipe)

    def classify(text: str) -> Any:
        document = text.encode()
        rows = [take(document, spans) for spans in cut(len(document), length, length // 8, "windows")]
        padded, lengths = pad_rows(rows, length)
        return combine(list(backend.run({"bytes": padded, "lengths": lengths})["logits"]))

    return classify


def mix(texts: Sequence[str], count: int) -> list[str]:
    """Texts at evenly spaced quantiles of the length in bytes, in random order."""
    by_length = sorted(texts, key=lambda text: len(text.encode()))
    chosen = [by_length[(2 * i + 1) * len(by_length) // (2 * count)] for i in range(count)]
    random.Random(0).shuffle(chosen)
    return chosen


def long_documents(texts: Sequence[str], count: int) -> list[str]:
    """Documents of LONG bytes, cut from a sequence of reviews; their few characters outside ASCII are left out."""
    joined = "\n".join(random.Random(0).sample(list(texts), len(texts))).encode("ascii", "ignore").decode()
    return [joined[i * LONG : (i + 1) * LONG] for i in range(count)]


class Turn:
    """Classifies some documents per call, each time the next ones, and measures the CPU time of each.

    Args:
        classify: the classifier.
        documents: documents of all calls.
        calls: number of calls in which each document occurs once.

    """

    def __init__(self, classify: Classify, documents: Sequence[str], calls: int) -> None:
        self._classify = classify
        numbered = list(enumerate(documents))
        self._parts = itertools.cycle([numbered[i::calls] for i in range(calls)])

    def __call__(self) -> list[tuple[int, float]]:
        """Classify the next documents; returns the number of each, and its seconds."""
        found = []
        for number, document in next(self._parts):
            started = time.process_time()
            self._classify(document)
            found.append((number, time.process_time() - started))
        return found


def without_server(texts: Sequence[str], runs: Path, rounds: int) -> dict[str, Data]:
    """CPU seconds of each document, the median of its rounds, by classifier."""
    turns = {}
    for entry in ENTRIES:
        classify = load(entry.key, runs)
        turns[entry.key, "mix_s"] = Turn(classify, mix(texts, entry.documents), entry.calls)
        turns[entry.key, "long_s"] = Turn(classify, long_documents(texts, entry.documents), entry.calls)
    measured = interleave(turns, rounds, warm_up=1, label="without a server")
    found: dict[str, Data] = {entry.key: {} for entry in ENTRIES}
    for (key, what), blocks in measured.items():
        rounds_of = collections.defaultdict[int, list[float]](list)
        for number, seconds in itertools.chain.from_iterable(blocks):
            rounds_of[number].append(seconds)
        found[key][what] = [round(statistics.median(rounds_of[number]), 7) for number in sorted(rounds_of)]
    return found


def over_http(texts: Sequence[str], runs: Path, loads: int, server_core: set[int]) -> dict[str, Data]:
    """Documents per second and CPU seconds a document of each load, and memory after them, by classifier."""
    with contextlib.ExitStack() as stack:
        servers: dict[str, Server] = {}
        turns: dict[str, Callable[[], tuple[float, float]]] = {}
        for entry in ENTRIES:
            if entry.connections:
                servers[entry.key] = stack.enter_context(start(entry.key, runs, server_core))
                turns[entry.key] = load_of(entry, servers[entry.key], mix(texts, entry.documents))
        measured = interleave(turns, loads, label="over HTTP")
        return {
            key: {
                "documents_per_s": [rate for rate, _ in found],
                "served_s": [seconds for _, seconds in found],
                "memory_mib": servers[key].rss_mib(),
            }
            for key, found in measured.items()
        }


def start(key: str, runs: Path, cores: set[int]) -> contextlib.AbstractContextManager[Server]:
    """Start the service with the shipped classifier alone, or a plain FastAPI app with another one."""
    if key == "imdb-s3":
        return service("--models", key, cores=cores)
    return server(["-m", "benchmarks.serving.plain_server", kind(key), str(file_of(key, runs).parent)], cores)


def load_of(entry: Entry, target: Server, documents: Sequence[str]) -> Callable[[], tuple[float, float]]:
    """Function that loads a server; returns documents per second, and CPU seconds a document. The server is warm."""
    path, field = ("v1/classify", "inputs") if entry.key == "imdb-s3" else ("classify", "text")
    requests = [post(f"{target.url}/{path}", json.dumps({field: text}).encode()) for text in documents]

    def turn(seconds: float = entry.seconds) -> tuple[float, float]:
        before = target.cpu_s()
        done = run(closed_loop(target.url, requests, connections=entry.connections, seconds=seconds))
        assert set(done.statuses()) == {200}, done.statuses()
        return done.throughput, (target.cpu_s() - before) / int(done.answered.sum())

    turn(WARM_UP_S)
    return turn


def report(measured: Record) -> str:
    """Report with one row per classifier."""
    rows = [cells(row) for row in measured.data["rows"]]
    models = measured.data["models"]
    tfidf, vectors, shipped = models["tfidf"], models["word-vectors"], models["imdb-s3"]
    best = max(vectors["tried"], key=lambda tried: float(tried["validation"]))
    chosen = vectors["chosen"]
    columns = [
        "classifier", "accuracy, %", "n", "ms, median", "ms, mean", "ms, 4,096 bytes", "ms over HTTP", "documents/s",
        "MB on disk", "MiB of memory",
    ]  # fmt: skip
    return "\n".join(
        [
            f"Accuracy on the {measured.data['tests']:,} test reviews of IMDb, mean ± sd over n trainings; n = 0: "
            "quoted. Times are CPU times of a document on one core, without a server: median and mean over reviews at "
            "evenly spaced quantiles of the length, then the median over documents of 4,096 bytes. Over HTTP: the "
            "server's CPU time for one of these reviews. Documents/s: the server on one core, the load on another, "
            "reviews in JSON, 32 requests in flight (4 for the transformers, which compute one at a time). Memory: "
            "resident set of the server after the load.",
            "",
            table(columns, rows),
            f"- `imdb-s3`: version {shipped['version']}, which is right in {100 * shipped['accuracy']:.2f} % of the "
            "reviews; accuracy of three trainings from the [record](../classification/report.md). It alone learns from "
            "the unlabelled reviews, too. Without a server: `artifact.load`, one document a call. Served by this "
            "project's service, which computes batches; the others by a plain FastAPI app with a pydantic body, one "
            "process.",
            f"- TF-IDF: words and bigrams, sublinear, C = {tfidf['strength']:g}, chosen on validation "
            f"({100 * tfidf['validation']:.2f} %), then fitted on training and validation.",
            f"- fastText-like: the mean of {chosen['dim']}-dimensional vectors of words and bigrams (hashed into "
            f"{chosen['rows']:,} rows), then a linear layer; trained with Adam, {chosen['epochs']} epochs, learning "
            f"rate {chosen['learning_rate']:g}, chosen on validation ({100 * best['validation']:.2f} %). It is not the "
            "original program; NumPy computes it here.",
            "- DistilBERT's size: 6 layers, 768 wide, 12 heads, in ONNX Runtime with random weights, because the "
            "weights are not available here. It reads the first 512 tokens. Words and punctuation marks count as "
            "tokens; WordPiece makes more of them and takes time of its own, so its real cost is higher. int8 is "
            "dynamic quantisation; its accuracy is unknown here.",
            "- S3Attention: the paper's encoder on bytes, in windows of 512 or 4,096 bytes, timed with random weights. "
            "The accuracy for 512 bytes is from the [record](../imdb_paper_cpu/report.md).",
        ]
    )


def cells(row: Data) -> list[str]:
    """Cells of a row of the report."""
    found = [100 * value for value in row["accuracies"]]
    accuracy = mean_and_deviation(found, ".2f") if found else ""
    if row["quoted"] is not None:
        accuracy = f"{100 * row['quoted']:.1f}"
    rate = statistics.median(row["documents_per_s"]) if "documents_per_s" in row else None
    return [
        label_of(row["key"]),
        accuracy,
        str(len(found)) if accuracy else "",
        three_digits(1000 * statistics.median(row["mix_s"])),
        three_digits(1000 * statistics.mean(row["mix_s"])),
        three_digits(1000 * statistics.median(row["long_s"])),
        "" if rate is None else three_digits(1000 * statistics.median(row["served_s"])),
        "" if rate is None else f"{rate:.0f}" if rate >= 20 else f"{rate:.1f}",
        "" if row["disk_bytes"] is None else f"{row['disk_bytes'] / 1e6:.1f}",
        "" if rate is None else f"{row['memory_mib']:.0f}",
    ]


def label_of(key: str) -> str:
    """Name of a classifier in the report."""
    return next(entry.label for entry in ENTRIES if entry.key == key)


def draw(measured: Record, path: Path) -> None:
    """Chart of accuracy against milliseconds, without a server and over HTTP."""
    figure, (axes,) = chart.figure((8.5, 5))
    for number, row in enumerate(measured.data["rows"]):
        alone, color = 1000 * statistics.mean(row["mix_s"]), f"C{number}"
        label = label_of(row["key"]).replace("`", "")
        found = [100 * value for value in row["accuracies"]] or ([100 * row["quoted"]] if row["quoted"] else [])
        if not found:
            axes.axvline(alone, color=color, linestyle=":")
            axes.annotate(f"{label}:\naccuracy unknown", (alone, 82), (-4, 0), "data", "offset points", ha="right")
            continue
        height = statistics.mean(found)
        axes.errorbar(alone, height, statistics.stdev(found) if len(found) > 1 else 0, fmt="o", color=color, capsize=3)
        if "documents_per_s" in row:
            served = 1000 * statistics.median(row["served_s"])
            axes.plot([alone, served], [height, height], "-", color=color, alpha=0.5)
            axes.plot(served, height, "o", color=color, markerfacecolor="white")
        name = f"{label}\n(accuracy quoted)" if row["quoted"] else label
        axes.annotate(name, (alone, height), (0, 8), "data", "offset points", ha="center", color=color)
    axes.set(
        xlabel="ms a document on one core: mean without a server (filled), over HTTP (hollow)",
        ylabel="accuracy on IMDb's test reviews, %", xscale="log", ylim=(67, 96),
    )  # fmt: skip
    axes.margins(x=0.2)
    axes.grid(alpha=0.3)
    chart.save(figure, path)


BENCHMARK = Benchmark(
    program="benchmarks.models.alternatives",
    title="Alternatives to the shipped classifier",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    chart=draw,
    packages=(*PACKAGES, "pydantic", "scikit-learn", "torch"),
)

if __name__ == "__main__":
    BENCHMARK.main()
