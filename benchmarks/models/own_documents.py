"""`python -m benchmarks.models.own_documents`: classifiers of your own documents against TF-IDF, by their number.

Draws 100, 300, 1,000 and 3,000 training documents of three data sets, three times each, trains on each draw as
`python -m model train --task text-classification --data FILE` does, and measures on up to 2,500 test documents. A
tenth as many documents of the training split are for validation. TF-IDF and logistic regression (scikit-learn) are
fitted on the same training documents with two settings and a fixed C each, not tuned as the training command's baseline
is; the better one on test counts. Each result is recorded when its run ends; a restarted benchmark continues.
"""

import argparse
import functools
import json
import random
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from benchmarks.models.runs import options_of, revisions, run_command
from model.config.data import DocumentsConfig
from model.data.documents import load_documents
from model.data.lines import read_lines
from model.tasks import tfidf
from model.tasks.classification import accuracy

NAME = "own_documents"
SIZES = (100, 300, 1_000, 3_000)
DRAWS = 3
TEST_DOCUMENTS = 2_500
UN_FILE = "un-general-debate.jsonl.xz"

Rows = list[tuple[str, str]]
"""Texts and labels."""


Splits = tuple[Rows, Rows]
"""Training and test documents of a data set."""


def un_debate(data_dir: Path) -> Splits:
    """Speeches in the UN General Debate, 16 regions, split by time."""
    rows: dict[str, Rows] = {"train": [], "test": []}
    for _, row in read_lines(data_dir / UN_FILE):
        if row["split"] in rows:
            rows[row["split"]].append((row["text"], row["label_name"]))
    return rows["train"], rows["test"]


def known(name: Literal["imdb", "20newsgroups-stripped"], data_dir: Path) -> Splits:
    """Film reviews; or newsgroup posts without headers, signatures and quotes."""
    data = load_documents(DocumentsConfig(name=name), data_dir)
    train, validation, tested = (
        [(text.decode(), data.labels[label]) for text, label in zip(part.texts, part.labels, strict=True)]
        for part in (data.train, data.validation, data.test)
    )
    return train + validation, tested


SETS: dict[str, Callable[[Path], Splits]] = {
    "imdb": functools.partial(known, "imdb"),
    "20newsgroups-stripped": functools.partial(known, "20newsgroups-stripped"),
    "un-debate": un_debate,
}


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train and evaluate the draws that the record lacks."""
    runs: list[Data] = earlier(NAME, args.out).get("runs", [])
    done = {(run["documents"], run["size"], run["draw"]) for run in runs}
    for name in args.sets:
        missing = [(size, draw) for size in SIZES for draw in range(DRAWS) if (name, size, draw) not in done]
        if not missing:
            continue
        splits = SETS[name](args.data_dir)
        for size, draw in tqdm(missing, desc=name, unit="run"):
            runs.append(measure_draw(name, splits, size, draw, args))
            yield {"runs": runs}


def measure_draw(name: str, splits: Splits, size: int, draw: int, args: argparse.Namespace) -> Data:
    """Train on one draw and evaluate it, and both baselines."""
    generator = random.Random(f"{name}-{size}-{draw}")
    drawn = generator.sample(splits[0], size + size // 10)
    test = generator.sample(splits[1], min(TEST_DOCUMENTS, len(splits[1])))
    known = {label for _, label in drawn[:size]}
    test = [row for row in test if row[1] in known]
    validation = [row for row in drawn[size:] if row[1] in known]
    folder = args.runs / f"{name}-{size}-{draw}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = folder / "documents.jsonl"
    parts = {"train": drawn[:size], "validation": validation, "test": test}
    file.write_text(
        "".join(
            json.dumps({"text": text, "label": label, "split": split}) + "\n"
            for split, rows in parts.items()
            for text, label in rows
        )
    )
    command = ("train", "--task", "text-classification", "--data", str(file), "--runs", str(folder))
    run_command(*command, data_dir=args.data_dir, threads=1)
    run = folder / "documents-seed0"
    run_command("evaluate", str(run), data_dir=args.data_dir, threads=1)
    results = json.loads((run / "evaluation.json").read_text())
    return {
        "documents": name,
        "size": size,
        "draw": draw,
        "revision": git_revision(),
        "test": len(test),
        "ours": next(row["value"] for row in results if (row["metric"], row["condition"]) == ("accuracy", "windows")),
        **baselines(drawn[:size], validation, test),
    }


def baselines(train: Rows, validation: Rows, test: Rows) -> Data:
    """Test accuracy of TF-IDF and logistic regression with each setting."""
    labels = sorted({label for _, label in train})

    def split(rows: Rows) -> tuple[list[bytes], list[int]]:
        return [text.encode() for text, _ in rows], [labels.index(label) for _, label in rows]

    texts, truth = split(test)
    found = {}
    for setting in tfidf.VECTORIZERS:
        baseline = tfidf.fit_classifier(split(train), split(validation), len(labels), accuracy, (setting,))
        assert baseline is not None
        found[setting] = accuracy(baseline.scores(texts), np.array(truth))
    return {"baselines": found}


def report(record: Record) -> str:
    """Report with one row per data set and size."""
    rows = []
    for name, size, runs in by_size(record):
        differences = [100 * (run["ours"] - max(run["baselines"].values())) for run in runs]
        deviation = statistics.stdev(differences) if len(differences) > 1 else 0.0
        rows.append(
            [
                name,
                f"{size:,}",
                str(len(runs)),
                f"{100 * statistics.mean(run['ours'] for run in runs):.1f}",
                *(
                    f"{100 * statistics.mean(run['baselines'][setting] for run in runs):.1f}"
                    for setting in tfidf.VECTORIZERS
                ),
                f"{statistics.mean(differences):+.1f} ± {deviation / len(differences) ** 0.5:.1f}",
            ]
        )
    columns = ["documents", "size", "draws", "ours", *tfidf.VECTORIZERS, "ours less the better"]
    return (
        "Accuracy on test documents in %, mean over draws. The last column is the mean difference to the better TF-IDF "
        "of each draw, ± its standard error, in points.\n\n"
        f"{table(columns, rows)}\n{revisions(record.data['runs'])}\n"
    )


def by_size(record: Record) -> Iterator[tuple[str, int, Sequence[Data]]]:
    """Data set, size and its runs."""
    for name in SETS:
        for size in SIZES:
            found = [run for run in record.data["runs"] if (run["documents"], run["size"]) == (name, size)]
            if found:
                yield name, size, found


def draw(record: Record, path: Path) -> None:
    """Chart with one panel per data set: accuracy against the number of documents."""
    figure, panels = chart.figure((12, 4), len(SETS))
    for axes, name in zip(panels, SETS, strict=True):
        found = [(size, runs) for found_name, size, runs in by_size(record) if found_name == name]
        sizes = [size for size, _ in found]
        axes.plot(sizes, [100 * statistics.mean(run["ours"] for run in runs) for _, runs in found], "o-", label="ours")
        for setting in tfidf.VECTORIZERS:
            means = [100 * statistics.mean(run["baselines"][setting] for run in runs) for _, runs in found]
            axes.plot(sizes, means, "s--", label=f"TF-IDF ({setting})")
        axes.set(title=name, xscale="log", xlabel="training documents", ylabel="accuracy, %")
        axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
    panels[0].legend()
    chart.save(figure, path)


BENCHMARK = Benchmark.of(
    "Your own documents", measure, report, draw, options_of(NAME, SETS), ("torch", "numpy", "scikit-learn")
)

if __name__ == "__main__":
    BENCHMARK.main()
