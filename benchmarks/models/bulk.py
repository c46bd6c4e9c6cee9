"""`python -m benchmarks.models.bulk`: documents a second of many short documents, by how they are sent.

Parts of 300 bytes of IMDb's test reviews, classified by `imdb-s3` on two cores: one request for each, 64 in a request,
and all in one NDJSON upload (curl); and by `python -m service predict`, without a server.
Server and client share the cores. Beside them, TF-IDF and logistic regression of scikit-learn (words and pairs of
words, the settings of the record `text_tfidf`), in a process on each core. In turns.

The time that a process takes to start and to load a model is not counted: of `predict`, the difference of two runs, of
which one has a tenth of the documents.
"""

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import orjson
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.interleave import interleave, timed
from benchmarks.lib.load import closed_loop, post, run
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, ROOT, Server, service
from benchmarks.lib.table import median_and_range, ratio, table
from model.config.data import DocumentsConfig
from model.data.documents import load_documents

SIZE = 300
"""Bytes of a document."""
EXPORT = "exports/imdb-s3"
CORES = 2
CONNECTIONS, LIST_LENGTH, LIST_CONNECTIONS = 32, 64, 8
"""Concurrent requests of one document; documents of a request with a list, and concurrent requests of these."""
SINGLE, LISTS, NDJSON = "one request each", f"{LIST_LENGTH} in a request", "NDJSON"
PREDICT, TFIDF = "predict, without a server", "scikit-learn, TF-IDF + LR"
STRENGTH = 100.0
"""C of logistic regression, which the record `text_tfidf` chose on validation."""
KEPT = list[Pipeline]()
"""The pipeline in a process that classifies with it."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    add_data_dir(parser)
    parser.add_argument("--documents", type=int, default=20_000, help="documents of a turn (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="seconds of a turn of requests (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Documents a second of each round."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    data = load_documents(DocumentsConfig(name="imdb"), args.data_dir)
    texts = parts_of(data.test.texts, args.documents)
    rival = fitted(data.train.texts, data.train.labels)
    with tempfile.TemporaryDirectory() as folder, service() as server:
        whole, tenth = (Path(folder) / f"{name}.jsonl" for name in ("whole", "tenth"))
        for path, count in ((whole, len(texts)), (tenth, len(texts) // 10)):
            path.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts[:count]))
        with ProcessPoolExecutor(CORES, initializer=KEPT.append, initargs=(rival,)) as pool:
            turns: dict[str, Callable[[], float]] = {
                SINGLE: functools.partial(requests, server, texts, 1, CONNECTIONS, args.seconds),
                LISTS: functools.partial(requests, server, texts, LIST_LENGTH, LIST_CONNECTIONS, args.seconds),
                NDJSON: lambda: len(texts) / timed(lambda: upload(server, whole)),
                PREDICT: lambda: (len(texts) - len(texts) // 10) / (predicted(whole) - predicted(tenth)),
                TFIDF: lambda: len(texts) / timed(lambda: list(pool.map(classify, shares(texts)))),
            }
            rates = interleave(turns, args.rounds, warm_up=1)
    yield {"rates": rates}


def parts_of(texts: Sequence[bytes], count: int) -> list[str]:
    """The first SIZE bytes of each document, repeated until there are `count`; shorter documents are left out."""
    parts = [text[:SIZE].decode(errors="replace") for text in texts if len(text) >= SIZE]
    return [parts[i % len(parts)] for i in range(count)]


def requests(server: Server, texts: Sequence[str], each: int, connections: int, seconds: float) -> float:
    """Documents a second of requests with `each` documents."""
    groups = [texts[i : i + each] for i in range(0, len(texts) - each + 1, each)]
    url = f"{server.url}/v1/classify"
    bodies = [post(url, orjson.dumps({"inputs": group[0] if each == 1 else group})) for group in groups]
    done = run(closed_loop(server.url, bodies, connections=connections, seconds=seconds))
    assert set(done.statuses()) == {200}, done.statuses()
    return each * done.throughput


def upload(server: Server, path: Path) -> None:
    """Upload a file of NDJSON and read all answers. Raises: RuntimeError unless each line has one."""
    command = ["curl", "-sfT", str(path), "-X", "POST", "-H", "content-type: application/x-ndjson"]
    answers = subprocess.run([*command, f"{server.url}/v1/classify"], capture_output=True, check=True).stdout
    check(answers, path)


def predicted(path: Path) -> float:
    """Seconds of `predict` with a file."""
    command = [sys.executable, "-m", "service", "predict", EXPORT, str(path)]
    started = time.perf_counter()
    answers = subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout
    seconds = time.perf_counter() - started
    check(answers, path)
    return seconds


def check(answers: bytes, path: Path) -> None:
    """Raise RuntimeError unless there is a label for each line of a file."""
    lines, found = path.read_bytes().count(b"\n"), answers.count(b"\n")
    if found != lines or answers.count(b'"label"') < lines:
        raise RuntimeError(f"{lines} lines have {found} answers: {answers[:500]!r}")


def fitted(texts: Sequence[bytes], labels: Sequence[Any]) -> Pipeline:
    """TF-IDF and logistic regression."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    pipeline = make_pipeline(vectorizer, LogisticRegression(C=STRENGTH, max_iter=1000))
    return pipeline.fit([text.decode(errors="replace") for text in texts], labels)


def classify(texts: Sequence[str]) -> None:
    """Classify documents with the pipeline of this process."""
    KEPT[0].predict_proba(texts)


def shares(texts: Sequence[str]) -> list[Sequence[str]]:
    """A part of the documents for each process."""
    return [texts[i::CORES] for i in range(CORES)]


def report(record: Record) -> str:
    """Report with a row for each way."""
    rates = record.data["rates"]
    rows = [[name, median_and_range(found), ratio(found, rates[SINGLE])] for name, found in rates.items()]
    return "\n".join(
        [
            f"Documents of {SIZE} bytes a second on {CORES} cores with everything on them, median of "
            f"{record.settings['rounds']} rounds in turns (lowest to highest). Scikit-learn's classifier is less "
            "accurate: see the records `text_tfidf` and `classification`.",
            "",
            table(["", "documents/s", "ratio"], rows),
        ]
    )


BENCHMARK = Benchmark.of("Short documents in bulk", measure, report, None, options, (*PACKAGES, "scikit-learn"))

if __name__ == "__main__":
    BENCHMARK.main()
