"""`python -m benchmarks.models.own_documents`: classifiers of your own documents against tuned TF-IDF, by their number.

Draws 100, 300, 1,000 and 3,000 training documents of nine data sets, trains on each draw as `python -m model train
--task text-classification --data FILE` does, and classifies up to 2,500 test documents, the same for all draws. A tenth
as many documents of the training split are for validation. The baseline is that of the training command: TF-IDF and
logistic regression (scikit-learn), of words, pairs of words or parts of words, whose setting and C are chosen on the
folds on which our settings are chosen. A document with a label that the draw lacks counts as wrong for both. Each
result is recorded when its run ends; a restarted benchmark continues.
"""

import argparse
import functools
import json
import math
import random
import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from benchmarks.models.long_documents import digits, right_answers
from benchmarks.models.runs import options_of, revisions, run_command
from model.config.data import DocumentsConfig
from model.data.documents import load_documents
from model.data.lines import read_lines
from model.data.own import DataFiles
from model.runs.load import load_trained
from model.tasks.base import BASELINE
from model.tasks.classification import ClassificationTask
from model.tasks.two_views import NGRAMS

NAME = "own_documents"
SIZES = (100, 300, 1_000, 3_000)
DRAWS = 3
TEST_DOCUMENTS = 2_500
FEWEST_OF_LABEL = 20
"""Number of training documents of a label from which on it is read, of sets with many rare labels."""

Rows = list[tuple[str, str]]
"""Texts and labels."""


Splits = tuple[Rows, Rows]
"""Training and test documents of a data set."""


def lines(file: str, data_dir: Path) -> Splits:
    """A file of JSON lines with a label; validation documents count as training documents."""
    rows: dict[bool, Rows] = {False: [], True: []}
    for _, row in read_lines(data_dir / file):
        if row["split"] in ("train", "val", "test"):
            rows[row["split"] == "test"].append((row["text"], str(row.get("label_name", row["label"]))))
    return rows[False], rows[True]


def of_one_label(file: str, data_dir: Path) -> Splits:
    """The documents with exactly one label of a file in which they may have several, less rare labels."""
    rows: dict[bool, Rows] = {False: [], True: []}
    for _, row in read_lines(data_dir / file):
        if len(row["labels"]) == 1:
            rows[row["split"] == "test"].append((row["text"], row["labels"][0]))
    counts = Counter(label for _, label in rows[False])
    train, test = ([row for row in part if counts[row[1]] >= FEWEST_OF_LABEL] for part in rows.values())
    return train, test


def known(name: Literal["imdb", "20newsgroups", "20newsgroups-stripped"], data_dir: Path) -> Splits:
    """Film reviews; or newsgroup posts, with or without headers, signatures and quotes."""
    data = load_documents(DocumentsConfig(name=name), data_dir)
    train, validation, tested = (
        [(text.decode(), data.labels[label]) for text, label in zip(part.texts, part.labels, strict=True)]
        for part in (data.train, data.validation, data.test)
    )
    return train + validation, tested


SETS: dict[str, Callable[[Path], Splits]] = {
    "imdb": functools.partial(known, "imdb"),
    "20newsgroups": functools.partial(known, "20newsgroups"),
    "20newsgroups-stripped": functools.partial(known, "20newsgroups-stripped"),
    "un-debate": functools.partial(lines, "un-general-debate.jsonl.xz"),
    "avito": functools.partial(lines, "avito_ads.jsonl.xz"),
    "chnsenticorp": functools.partial(lines, "chnsenticorp.jsonl.xz"),
    "allocine": functools.partial(lines, "allocine_small.jsonl.xz"),
    "cedr-one-label": functools.partial(of_one_label, "cedr.jsonl.xz"),
    "reuters-one-label": functools.partial(of_one_label, "reuters21578_modapte.jsonl.xz"),
}
"""Film reviews; newsgroup posts with and without headers; speeches by region; Russian advertisements; Chinese and
French reviews; Russian sentences with an emotion; news with a topic."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train on the draws that the record lacks: one draw of every size first."""
    runs: list[Data] = earlier(NAME, args.out).get("runs", [])
    done = {(run["documents"], run["size"], run["draw"]) for run in runs}
    read = functools.cache(lambda name: SETS[name](args.data_dir))
    wanted = [(name, size, draw) for draw in range(DRAWS) for size in SIZES for name in args.sets]
    for name, size, draw in tqdm([key for key in wanted if key not in done], unit="run"):
        if size + size // 10 <= len(read(name)[0]):
            runs.append(measure_draw(name, read(name), size, draw, args))
            yield {"runs": runs}


def measure_draw(name: str, splits: Splits, size: int, draw: int, args: argparse.Namespace) -> Data:
    """Train on one draw, and classify the test documents with the model and with its baseline."""
    test = random.Random(name).sample(splits[1], min(TEST_DOCUMENTS, len(splits[1])))
    drawn = random.Random(f"{name}-{size}-{draw}").sample(splits[0], size + size // 10)
    known = {label for _, label in drawn[:size]}
    folder = args.runs / f"{name}-{size}-{draw}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = folder / "documents.jsonl"
    parts = {"train": drawn[:size], "validation": drawn[size:], "test": test}
    with file.open("w") as stream:
        for split, rows in parts.items():
            for text, label in rows:
                if label in known:
                    stream.write(json.dumps({"text": text, "label": label, "split": split}) + "\n")
    command = ("train", "--task", "text-classification", "--data", str(file), "--runs", str(folder))
    run_command(*command, data_dir=args.data_dir, threads=1)
    best = load_trained(folder / "documents-seed0", DataFiles(data=file))
    task, data = best.task, best.data
    assert isinstance(task, ClassificationTask)
    setting = task.facts[BASELINE]["setting"]
    baseline = task.baseline(data, setting)
    assert baseline is not None
    theirs = baseline.scores(data.test.texts).argmax(1) == np.array(data.test.labels)
    unknown = "0" * sum(label not in known for _, label in test)
    return {
        "documents": name,
        "size": size,
        "draw": draw,
        "revision": git_revision(),
        "choice": task.facts[NGRAMS],
        "baseline": setting,
        "ours": digits(right_answers(best, data.test)) + unknown,
        "tfidf": digits(theirs) + unknown,
    }


class Summary(NamedTuple):
    """The draws of a data set and a size."""

    documents: str
    size: int
    runs: Sequence[Data]
    ours: float
    """Accuracy in %, mean over draws."""
    tfidf: float
    error: float
    """Standard error of the difference in points."""

    @property
    def is_behind(self) -> bool:
        """Whether ours is behind by more than two standard errors."""
        return self.ours - self.tfidf < -2 * self.error


def summary(documents: str, size: int, runs: Sequence[Data]) -> Summary:
    """Means over draws; the variance is that of the test documents plus that of the draws.

    The draws have the same test documents, so that more draws do not lower the first variance.
    """
    ours, tfidf = ([np.array([float(digit) for digit in run[name]]) for run in runs] for name in ("ours", "tfidf"))
    differences = [100 * (mine - theirs) for mine, theirs in zip(ours, tfidf, strict=True)]
    variance = statistics.mean(float(one.var(ddof=1)) / len(one) for one in differences)
    if len(runs) > 1:
        variance += statistics.variance(float(one.mean()) for one in differences) / len(runs)
    mine, theirs = (100 * statistics.mean(float(one.mean()) for one in part) for part in (ours, tfidf))
    return Summary(documents, size, runs, mine, theirs, math.sqrt(variance))


def report(record: Record) -> str:
    """Report with one row per data set and size."""
    found = list(summaries(record))
    rows = [
        [
            one.documents,
            f"{one.size:,}",
            str(len(one.runs)),
            f"{len(one.runs[0]['ours']):,}",
            f"{one.ours:.1f}",
            f"{one.tfidf:.1f}",
            f"{one.ours - one.tfidf:+.1f} ± {one.error:.1f}",
            str(sum(bool(run["choice"]["prefixes"]) for run in one.runs)),
            Counter(run["baseline"].partition(",")[0] for run in one.runs).most_common(1)[0][0],
        ]
        for one in found
    ]
    columns = ["documents", "size", "draws", "test documents", "ours", "TF-IDF", "ours less TF-IDF", "prefixes", "of"]
    mean = statistics.mean(one.ours - one.tfidf for one in found)
    behind = [f"{one.documents} {one.size:,}" for one in found if one.is_behind]
    return (
        "Accuracy on test documents in %, mean over draws, of ours and of tuned TF-IDF. The difference is that of the "
        "same test documents, in points, ± its standard error over test documents and draws. Then the number of draws "
        f"in which prefixes of words were chosen, and what TF-IDF reads in most draws.\n\n{table(columns, rows)}\n"
        f"Mean difference of the {len(found)} rows: {mean:+.2f} points. Behind by more than two standard errors: "
        f"{', '.join(behind) or 'none'}.\n\n{revisions(record.data['runs'])}\n"
    )


def summaries(record: Record) -> Iterator[Summary]:
    """The data sets and sizes that are measured."""
    for name in SETS:
        for size in SIZES:
            runs = [run for run in record.data["runs"] if (run["documents"], run["size"]) == (name, size)]
            if runs:
                yield summary(name, size, runs)


def draw(record: Record, path: Path) -> None:
    """Chart with one panel per data set: accuracy against the number of documents."""
    found = list(summaries(record))
    names = [name for name in SETS if any(one.documents == name for one in found)]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, panels = chart.figure((4 * columns, 3 * rows), columns, rows=rows)
    for axes in panels[len(names) :]:
        axes.axis("off")
    for axes, name in zip(panels, names, strict=False):
        of_set = [one for one in found if one.documents == name]
        sizes = [one.size for one in of_set]
        axes.plot(sizes, [one.ours for one in of_set], "o-", label="ours")
        axes.plot(sizes, [one.tfidf for one in of_set], "s--", label="tuned TF-IDF")
        axes.set(title=name, xscale="log", xlabel="training documents", ylabel="accuracy, %")
        axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
    panels[0].legend(loc="lower right")
    chart.save(figure, path)


BENCHMARK = Benchmark.of(
    "Your own documents", measure, report, draw, options_of(NAME, SETS), ("torch", "numpy", "scikit-learn")
)

if __name__ == "__main__":
    BENCHMARK.main()
