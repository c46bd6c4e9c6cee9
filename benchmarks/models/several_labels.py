"""`python -m benchmarks.models.several_labels`: any number of labels a document, against tuned TF-IDF.

Trains on news (Reuters-21578, ModApte) and on sentences with emotions (CEDR, Russian) as `python -m model train --task
text-classification --data FILE --label-column labels` does, and gives labels to the test documents. TF-IDF and a
logistic regression for each label against the rest (scikit-learn) are fitted on the same training documents; C and
thresholds are chosen on the same validation documents, for words and for characters. Validation also chooses between
these. Each result is recorded when its run ends; a restarted benchmark continues.
"""

import argparse
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from tqdm import tqdm

from artifact.arrays import Doubles
from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.models.runs import options_of, revisions, run_command
from model.config.data import DocumentsConfig
from model.data.documents import DocumentSet, columns_of, load_documents
from model.data.own import DataFiles, read_own
from model.runs.load import load_trained
from model.tasks.classification import ClassificationTask
from model.tasks.graphs import module_functions
from model.tasks.link import SIGMOIDS
from model.tasks.two_views import NGRAMS

NAME = "several_labels"
SETS = {"reuters": "reuters21578_modapte.jsonl.xz", "cedr": "cedr.jsonl.xz"}
SEEDS = 3
VECTORIZERS: dict[str, dict[str, Any]] = {
    "words": {"analyzer": "word", "ngram_range": (1, 2)},
    "characters": {"analyzer": "char_wb", "ngram_range": (1, 5)},
}
"""Settings of TF-IDF besides `sublinear_tf` and `min_df=2`: words 1-2, and characters 1-5 within words."""
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Candidate inverse regularisation C of TF-IDF."""
METRICS = ("micro_f1", "macro_f1")
SAMPLES = 2_000
"""Bootstrap samples of the test documents."""

Chosen = NDArray[np.bool_]
"""Labels of documents, (documents, labels)."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure what the record lacks: TF-IDF, then one seed after the other."""
    before = earlier(NAME, args.out)
    truths: dict[str, Data] = before.get("truth", {})
    results: list[Data] = before.get("results", [])
    done = {(found["documents"], found["model"], found["seed"]) for found in results}
    rivals = [(name, kind, None) for name in args.sets for kind in VECTORIZERS]
    wanted = [*rivals, *((name, "ours", seed) for seed in range(SEEDS) for name in args.sets)]
    for name, model, seed in tqdm([key for key in wanted if key not in done], unit="run"):
        file = args.data_dir / SETS[name]
        data = read(file)
        truths[name] = {"labels": data.labels, "chosen": packed(np.array(data.test.labels) == 1)}
        found = tfidf(data, model) if seed is None else ours(file, seed, args.runs / f"{name}-{seed}", args.data_dir)
        results.append({"documents": name, "model": model, "seed": seed, "revision": git_revision(), **found})
        yield {"truth": truths, "results": results}


def read(file: Path) -> DocumentSet:
    """A data set in the splits of training."""
    config = DocumentsConfig(name="own", label_column="labels", split_column="split")
    return load_documents(config, read_own(DataFiles(data=file), columns_of(config)))


def tfidf(data: DocumentSet, kind: str) -> Data:
    """Fit TF-IDF with each C; the best one on validation gives labels to the test documents."""
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32, **VECTORIZERS[kind])
    x = vectorizer.fit_transform(text.decode(errors="replace") for text in data.train.texts)
    held_out, tested = (
        vectorizer.transform(text.decode(errors="replace") for text in part.texts)
        for part in (data.validation, data.test)
    )
    labels, truth = np.array(data.train.labels), np.array(data.validation.labels)
    present = np.flatnonzero(labels.any(0))
    best: Data = {}
    for strength in STRENGTHS:
        regression = LogisticRegression(C=strength, solver="liblinear", random_state=0)
        model = OneVsRestClassifier(regression).fit(x, labels[:, present])
        logits, tested_logits = (np.full((part.shape[0], labels.shape[1]), -30.0) for part in (held_out, tested))
        logits[:, present] = model.decision_function(held_out)
        found = SIGMOIDS.report(logits, truth)
        if not best or found["micro_f1"] > best["validation"]["micro_f1"]:
            tested_logits[:, present] = model.decision_function(tested)
            thresholds = SIGMOIDS.thresholds(SIGMOIDS.probabilities(logits), truth)
            chosen = packed(SIGMOIDS.probabilities(tested_logits) >= thresholds)
            best = {"choice": f"C = {strength:g}", "validation": found, "chosen": chosen}
    return best


def ours(file: Path, seed: int, folder: Path, data_dir: Path) -> Data:
    """Train on one core and give labels to the test documents."""
    shutil.rmtree(folder, ignore_errors=True)
    command = ("train", "--task", "text-classification", "--data", str(file), "--label-column", "labels")
    settings = ("--set", f"seed={seed}", "--set", "name=labels")
    run_command(*command, *settings, "--runs", str(folder), data_dir=data_dir, threads=1)
    best = load_trained(folder / f"labels-seed{seed}", DataFiles(data=file))
    assert isinstance(best.task, ClassificationTask)
    function = module_functions(best.finished.graphs, torch.device("cpu"))[0]
    validation, test = (
        best.task.document_logits(function, part.texts) for part in (best.data.validation, best.data.test)
    )
    return {
        "choice": best.task.facts[NGRAMS],
        "validation": SIGMOIDS.report(validation, np.array(best.data.validation.labels)),
        "chosen": packed(SIGMOIDS.probabilities(test) >= np.array(best.finished.keys["thresholds"])),
    }


def packed(chosen: Chosen) -> str:
    """The numbers of the labels of each document, as text: `0 7;;3` for documents with two, none and one."""
    return ";".join(" ".join(map(str, np.flatnonzero(row))) for row in chosen)


def unpacked(text: str, labels: int) -> Chosen:
    """The inverse of `packed`."""
    rows = text.split(";")
    chosen = np.zeros((len(rows), labels), np.bool_)
    for row, numbers in zip(chosen, rows, strict=True):
        row[[int(number) for number in numbers.split()]] = True
    return chosen


def scores(chosen: Chosen, truth: Chosen, weights: Doubles) -> Doubles:
    """Micro and macro F1 in %, of documents that count as often as a sample has them: (samples, 2).

    Macro F1 is the mean over the labels that a document of `truth` has, also in samples without one of these.

    Shape:  chosen and truth (documents, labels); weights (samples, documents).
    """
    right, either = weights @ (chosen & truth), weights @ (1.0 * chosen + truth)
    micro = 2 * right.sum(1) / np.maximum(either.sum(1), 1)
    macro = (2 * right / np.maximum(either, 1))[:, truth.any(0)].mean(1)
    return 100 * np.stack([micro, macro], axis=1)


def report(record: Record) -> str:
    """Report with one row per data set and metric."""
    rows, results = [], record.data["results"]
    for name in SETS:
        found = [one for one in results if one["documents"] == name]
        runs = [one for one in found if one["seed"] is not None]
        rivals = {one["model"]: one for one in found if one["seed"] is None}
        if not runs or rivals.keys() != VECTORIZERS.keys():
            continue
        labels = len(record.data["truth"][name]["labels"])
        truth = unpacked(record.data["truth"][name]["chosen"], labels)
        best = max(rivals, key=lambda kind: float(rivals[kind]["validation"]["micro_f1"]))
        for number, metric in enumerate(METRICS):
            rows.append(_row(name, number, metric, truth, runs, rivals, best))
    names = ["documents", "metric", "test documents", "seeds", "ours", *(f"TF-IDF of {kind}" for kind in VECTORIZERS)]
    return (
        "F1 on the test documents in %, of ours mean ± standard deviation over seeds. Macro F1 is the mean over the "
        "labels that a test document has. The difference is that to the TF-IDF which validation chooses, in points, ± "
        f"its standard error over {SAMPLES:,} bootstrap samples of the test documents.\n\n"
        f"{table([*names, 'chosen', 'ours less the chosen'], rows)}\n{revisions(results)}\n"
    )


def _row(
    name: str, number: int, metric: str, truth: Chosen, runs: Sequence[Data], rivals: dict[str, Data], best: str
) -> list[str]:
    generator, documents = np.random.default_rng(0), len(truth)
    samples = generator.multinomial(documents, np.full(documents, 1 / documents), SAMPLES).astype(np.float64)
    weights = np.concatenate([np.ones((1, documents)), samples])  # the first row: every document once

    def values(found: Data) -> Doubles:
        return scores(unpacked(found["chosen"], truth.shape[1]), truth, weights)[:, number]

    own, other = [values(run) for run in runs], {kind: values(rival) for kind, rival in rivals.items()}
    difference = np.mean(own, axis=0) - other[best]
    return [
        name,
        metric.replace("_f1", " F1"),
        f"{documents:,}",
        str(len(runs)),
        mean_and_deviation([value[0] for value in own], ".1f"),
        *(f"{other[kind][0]:.1f}" for kind in VECTORIZERS),
        f"{best}, {rivals[best]['choice']}",
        f"{difference[0]:+.1f} ± {difference[1:].std(ddof=1):.1f}",
    ]


BENCHMARK = Benchmark.of(
    "Any number of labels a document",
    measure,
    report,
    None,
    options_of(NAME, SETS),
    ("torch", "numpy", "scikit-learn"),
)

if __name__ == "__main__":
    BENCHMARK.main()
