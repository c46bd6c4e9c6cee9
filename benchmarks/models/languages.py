"""`python -m benchmarks.models.languages`: own documents in other languages, and misspelt ones, against tuned TF-IDF.

Writes each data set as a file of own data with its splits, trains on it as `python -m model train --task
text-classification --data FILE` does, with models of words and of bytes, and classifies the test documents. TF-IDF and
logistic regression (scikit-learn) are fitted on the same training documents; validation chooses words or characters,
and C; for misspelt documents, it chooses among fewer. Each result is recorded when its run ends; a restarted benchmark
continues.
"""

import argparse
import itertools
import json
import random
import shutil
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.models.long_documents import correct, digits, points, right_answers
from benchmarks.models.runs import options_of, revisions, run_command
from model.data.lines import read_lines
from model.data.own import DataFiles
from model.runs.load import load_trained
from model.tasks.regression import without_warnings
from model.tasks.two_views import NGRAMS

NAME = "languages"
MISSPELT = "20newsgroups, misspelt"
SETS = {
    "chnsenticorp": "chnsenticorp.jsonl.xz",
    "avito": "avito_ads.jsonl.xz",
    "allocine": "allocine_small.jsonl.xz",
    MISSPELT: "20newsgroups_bydate.jsonl.xz",
}
"""Files of the data sets: Chinese reviews, Russian advertisements, French film reviews; and posts with headers, in
which letters are changed."""
CHANGED = 0.1
"""Fraction of the letters a-z and A-Z of MISSPELT, in all splits, that another random lower-case letter replaces."""
SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Split in the files -> split of own data."""
MODELS = {
    "words": (("--set", "model.kind=words"), 3),
    "bytes": (("--set", "model.kind=bytes"), 1),
}
"""Options of training of each of our models, and number of seeds: the fit of bytes has no random part."""
TFIDF = "TF-IDF"
VECTORIZERS: dict[str, dict[str, Any]] = {
    "words 1-2": {"analyzer": "word", "ngram_range": (1, 2)},
    "characters 1-4": {"analyzer": "char", "ngram_range": (1, 4)},
    "characters 1-5": {"analyzer": "char", "ngram_range": (1, 5)},
    "characters 1-5 within words": {"analyzer": "char_wb", "ngram_range": (1, 5)},
}
"""Settings of TF-IDF besides `sublinear_tf` and `min_df=2`, by their description."""
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
FIRST_STRENGTH = 10.0
"""Candidate inverse regularisation C of TF-IDF, and the one with which the settings are compared."""
OF_MISSPELT = ("characters 1-5 within words",), (3.0, 10.0, 30.0)
"""Setting and candidates for MISSPELT, whose n-grams are so many that each fit takes minutes."""

Rows = list[tuple[str, str]]
"""Texts and labels."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure what the record lacks: TF-IDF, then one seed after the other."""
    results: list[Data] = earlier(NAME, args.out).get("results", [])
    done = {(found["documents"], found["model"], found["seed"]) for found in results}
    runs = sorted((seed, model) for model, (_, seeds) in MODELS.items() for seed in range(seeds))
    wanted = [(name, model, seed) for seed, model in [(0, TFIDF), *runs] for name in args.sets]
    for name, model, seed in tqdm([key for key in wanted if key not in done], unit="run"):
        splits = read_splits(args.data_dir / SETS[name], CHANGED if name == MISSPELT else 0.0)
        if model == TFIDF:
            measured = tfidf(splits, *(OF_MISSPELT if name == MISSPELT else (tuple(VECTORIZERS), STRENGTHS)))
        else:
            folder = args.runs / f"{name}-{model}-{seed}".replace(", ", "-")
            measured = ours(splits, MODELS[model][0], seed, folder, args.data_dir)
        results.append({"documents": name, "model": model, "seed": seed, "revision": git_revision(), **measured})
        yield {"results": results}


def read_splits(path: Path, changed: float = 0.0) -> dict[str, Rows]:
    """Read a data set, and change a fraction of its letters.

    If it has no validation documents, a random tenth of the training documents becomes these.
    """
    splits: dict[str, Rows] = {split: [] for split in SPLITS.values()}
    generator = random.Random(0)
    for _, row in read_lines(path):
        splits[SPLITS[row["split"]]].append((misspelt(row["text"], changed, generator), row["label_name"]))
    if not splits["validation"]:
        random.Random(0).shuffle(splits["train"])
        count = len(splits["train"]) // 10
        splits["validation"], splits["train"] = splits["train"][:count], splits["train"][count:]
    return splits


def misspelt(text: str, changed: float, generator: random.Random) -> str:
    """The text with a fraction of its ASCII letters changed."""
    if not changed:
        return text
    letters = string.ascii_lowercase
    return "".join(
        generator.choice(letters.replace(one.lower(), ""))
        if one in string.ascii_letters and generator.random() < changed
        else one
        for one in text
    )


def tfidf(splits: dict[str, Rows], settings: Sequence[str], strengths: Sequence[float]) -> Data:
    """Fit TF-IDF with each setting, then with each C; the best one on validation classifies the test documents."""
    (train, labels), (validation, truth), (test, answers) = (columns(splits[name]) for name in SPLITS.values())

    def fitted(setting: str, strengths: Sequence[float]) -> Iterator[tuple[float, str, float, NDArray[np.bool_]]]:
        vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32, **VECTORIZERS[setting])
        x, held_out, tested = vectorizer.fit_transform(train), *map(vectorizer.transform, (validation, test))
        regression = LogisticRegression(max_iter=300, warm_start=True)  # each C starts from the weights of the last one
        for strength in strengths:
            with without_warnings():
                regression.set_params(C=strength).fit(x, labels)
            is_right = regression.predict(tested) == np.array(answers)
            yield float(regression.score(held_out, truth)), setting, strength, is_right

    setting = settings[0]
    if len(settings) > 1:
        _, setting, *_ = max((next(fitted(name, [FIRST_STRENGTH])) for name in settings), key=lambda one: one[0])
    accuracy, _, strength, is_right = max(fitted(setting, strengths), key=lambda one: one[0])
    return {"choice": f"{setting}, C = {strength:g}", "validation": accuracy, "correct": digits(is_right)}


def columns(rows: Rows) -> tuple[Sequence[str], Sequence[str]]:
    """Texts, and labels."""
    return [text for text, _ in rows], [label for _, label in rows]


def ours(splits: dict[str, Rows], options: Sequence[str], seed: int, folder: Path, data_dir: Path) -> Data:
    """Train on one core and classify the test documents."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = folder / "documents.jsonl"
    with file.open("w") as stream:
        for split, rows in splits.items():
            for text, label in rows:
                stream.write(json.dumps({"text": text, "label": label, "split": split}) + "\n")
    command = ("train", "--task", "text-classification", "--data", str(file), "--set", f"seed={seed}")
    run_command(*command, *options, "--runs", str(folder), data_dir=data_dir, threads=1)
    best = load_trained(folder / f"documents-seed{seed}", DataFiles(data=file))
    return {
        "choice": best.task.facts[NGRAMS],
        "validation": float(right_answers(best, best.data.validation).mean()),
        "correct": digits(right_answers(best, best.data.test)),
    }


def report(record: Record) -> str:
    """Report with one row per data set and model."""
    rows, results = [], record.data["results"]
    for name, model in itertools.product(SETS, MODELS):
        baseline = next((one for one in results if (one["documents"], one["model"]) == (name, TFIDF)), None)
        runs = [one for one in results if (one["documents"], one["model"]) == (name, model)]
        if baseline is not None and runs:
            answers, rival = [correct(run) for run in runs], correct(baseline)
            rows.append(
                [
                    name,
                    model,
                    f"{len(rival):,}",
                    str(len(runs)),
                    mean_and_deviation([100 * right.mean() for right in answers], ".1f"),
                    f"{100 * rival.mean():.1f}",
                    points(np.mean(answers, axis=0) - rival),
                    baseline["choice"],
                ]
            )
    names = ["documents", "model", "test documents", "seeds", "ours", "TF-IDF", "ours less TF-IDF", "choice of TF-IDF"]
    return (
        "Accuracy on the test documents in %, mean ± standard deviation over seeds. The difference is that of the same "
        f"test documents, in points, ± its standard error over the documents.\n\n{table(names, rows, left=2)}\n"
        f"{revisions(results)}\n"
    )


BENCHMARK = Benchmark.of(
    "Your own documents in other languages",
    measure,
    report,
    None,
    options_of(NAME, SETS),
    ("torch", "numpy", "scikit-learn"),
)

if __name__ == "__main__":
    BENCHMARK.main()
