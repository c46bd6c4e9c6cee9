"""`python -m benchmarks.models.own_pairs`: matchers of your own pairs against the tuned cosine of TF-IDF.

Trains on pairs of newsgroup posts without headers (do they belong to one group?), of sentences (SICK: does one entail
the other, and to which degree are they related?) and of papers (does one cite the other?), as `python -m model train
--task text-matching --data FILE` does, and scores test pairs. The baseline is that of the training command: the cosine
of TF-IDF vectors (scikit-learn), of words, pairs of words or parts of words, whichever is best on the training pairs.
A tenth as many pairs as for training are for validation. Each result is recorded when its run ends; a restarted
benchmark continues.
"""

import argparse
import functools
import json
import random
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from benchmarks.models.runs import options_of, revisions, run_command
from model.config.data import DocumentsConfig
from model.data.documents import load_documents
from model.data.lines import read_lines
from model.data.own import DataFiles
from model.data.pairs import DOCUMENTS, PAIRS
from model.runs.load import load_trained
from model.tasks.base import BASELINE
from model.tasks.comparison import difference
from model.tasks.graphs import module_functions
from model.tasks.lexical_matching import CHOICE, HAS_ENCODER, LexicalMatchingTask

NAME = "own_pairs"
DRAWS = 3
TEST_PAIRS = 4_000
MAX_BYTES = 4_000
"""Bytes of a paper that are read."""

Rows = list[tuple[str, str, float]]
"""Pairs of texts and their labels."""
Splits = dict[str, Rows]
"""Pairs of the splits train, validation and test."""


def newsgroups(size: int, draw: int, data_dir: Path) -> Splits:
    """Pairs of posts, every second one of a single group; each post is in one pair."""
    data = load_documents(DocumentsConfig(name="20newsgroups-stripped"), data_dir)
    learned = [*zip(data.train.texts, data.train.labels, strict=True)]
    learned += zip(data.validation.texts, data.validation.labels, strict=True)
    tested = [*zip(data.test.texts, data.test.labels, strict=True)]
    random.Random(f"{NAME}-{draw}").shuffle(learned)
    random.Random(NAME).shuffle(tested)
    rows = paired([(text.decode(), label) for text, label in learned if text.strip()])
    test = paired([(text.decode(), label) for text, label in tested if text.strip()])
    return {"train": rows[:size], "validation": rows[size : size + size // 10], "test": test[:TEST_PAIRS]}


def paired(documents: Sequence[tuple[str, int]]) -> Rows:
    """Pairs of documents, which belong together if their labels are equal, as every second pair's are."""
    left, rows = list(documents), Rows()
    while left:
        text, label = left.pop()
        wanted = len(rows) % 2 == 0
        partner = next((i for i in reversed(range(len(left))) if (left[i][1] == label) == wanted), None)
        if partner is not None:
            rows.append((text, left.pop(partner)[0], float(wanted)))
    return rows


def sick(label: Callable[[Data], float], size: int, draw: int, data_dir: Path) -> Splits:
    """Pairs of sentences, in their published splits."""
    del size, draw
    splits: Splits = {"train": [], "val": [], "test": []}
    for _, row in read_lines(data_dir / "sick.jsonl.xz"):
        splits[row["split"]].append((row["text_a"], row["text_b"], label(row)))
    return {"train": splits["train"], "validation": splits["val"], "test": splits["test"]}


def papers(size: int, draw: int, data_dir: Path) -> Splits:
    """Pairs of papers of the ACL Anthology, which belong together if the first cites the second."""
    texts = {row["id"]: row["text"][:MAX_BYTES] for _, row in read_lines(data_dir / DOCUMENTS)}
    splits: dict[str, Rows] = {"train": [], "val": [], "test": []}
    for _, row in read_lines(data_dir / PAIRS):
        splits[row["split"]].append((texts[row["id_a"]], texts[row["id_b"]], float(row["label"])))
    generator, tested = random.Random(f"{NAME}-{draw}"), random.Random(NAME)
    return {
        "train": generator.sample(splits["train"], size),
        "validation": generator.sample(splits["val"], max(100, size // 10)),
        "test": tested.sample(splits["test"], TEST_PAIRS),
    }


def entails(row: Data) -> float:
    """1 if the first sentence entails the second."""
    return float(row["label_name"] == "entailment")


def relatedness(row: Data) -> float:
    """Relatedness from 1 to 5, as a degree from 0 to 1."""
    return (float(row["relatedness"]) - 1) / 4


SETS: dict[str, tuple[Callable[[int, int, Path], Splits], int, int]] = {
    "newsgroup posts": (newsgroups, 2_000, DRAWS),
    "SICK, entailment": (functools.partial(sick, entails), 4_500, 1),
    "SICK, relatedness": (functools.partial(sick, relatedness), 4_500, 1),
    "papers, 500": (papers, 500, DRAWS),
    "papers, 2,000": (papers, 2_000, DRAWS),
    "papers, 10,000": (papers, 10_000, DRAWS),
}
"""Name of a set -> how it is read, number of training pairs, number of draws."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train on the draws that the record lacks: the first draw of all sets, then the next."""
    runs: list[Data] = earlier(NAME, args.out).get("runs", [])
    done = {(run["pairs"], run["draw"]) for run in runs}
    wanted = [(name, draw) for draw in range(DRAWS) for name in args.sets if draw < SETS[name][2]]
    for name, draw in tqdm([key for key in wanted if key not in done], unit="run"):
        read, size, _ = SETS[name]
        runs.append(measure_draw(name, read(size, draw, args.data_dir), draw, args))
        yield {"runs": runs}


def measure_draw(name: str, splits: Splits, draw: int, args: argparse.Namespace) -> Data:
    """Train on one draw, and score the test pairs with the model and with its baseline."""
    folder = args.runs / "".join(letter if letter.isalnum() else "-" for letter in f"{name}-{draw}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = folder / "pairs.jsonl"
    with file.open("w") as stream:
        for split, rows in splits.items():
            for a, b, label in rows:
                stream.write(json.dumps({"text_a": a, "text_b": b, "label": label, "split": split}) + "\n")
    command = ("train", "--task", "text-matching", "--data", str(file), "--runs", str(folder))
    run_command(*command, data_dir=args.data_dir, threads=1)
    best = load_trained(folder / "pairs-seed0", DataFiles(data=file))
    task, data = best.task, best.data
    assert isinstance(task, LexicalMatchingTask)
    baseline = task.baseline(data, task.facts[BASELINE]["setting"])
    assert baseline is not None
    pairs = task.pairs(data, "test")
    logits, targets = task.logits(module_functions(best.finished.graphs, torch.device("cpu")), data, pairs)
    cosines = baseline.scores(data.texts, pairs[:, :2])
    found = difference(task.order_value, logits, cosines, targets, pairs[:, 0].tolist())
    return {
        "pairs": name,
        "draw": draw,
        "revision": git_revision(),
        "training": len(task.pairs(data, "train")),
        "test": len(pairs),
        "metric": task.metric,
        "choice": task.facts[CHOICE],
        "has_encoder": task.facts[HAS_ENCODER],
        "baseline": baseline.setting,
        "ours": task.order_value(logits, targets),
        "tfidf": task.order_value(cosines, targets),
        "error": found.error,
        "seconds": best.progress.seconds,
    }


def report(record: Record) -> str:
    """Report with one row per set."""
    rows, behind, ahead = [], [], []
    for name in SETS:
        runs = [run for run in record.data["runs"] if run["pairs"] == name]
        if not runs:
            continue
        ours, tfidf = (statistics.mean(run[key] for run in runs) for key in ("ours", "tfidf"))
        gains = [run["ours"] - run["tfidf"] for run in runs]
        variance = statistics.mean(run["error"] ** 2 for run in runs)
        variance += statistics.variance(gains) / len(gains) if len(gains) > 1 else 0
        gain, error = ours - tfidf, variance**0.5
        behind += [name] if gain < -2 * error else []
        ahead += [name] if gain > 2 * error else []
        rows.append(
            [
                name,
                {"auc": "AUC", "spearman": "rank correlation"}[runs[0]["metric"]],
                f"{runs[0]['training']:,}",
                str(len(runs)),
                f"{runs[0]['test']:,}",
                f"{ours:.3f}",
                f"{tfidf:.3f}",
                f"{gain:+.3f} ± {error:.3f}",
                f"{statistics.mean(run['seconds'] for run in runs):.0f} s",
            ]
        )
    columns = ["pairs", "metric", "training pairs", "draws", "test pairs", "ours", "cosine", "ours less cosine", "fit"]
    return (
        "Test pairs, mean over draws, of ours and of the tuned cosine of TF-IDF. The difference is that of the same "
        "test pairs, ± its standard error over their first texts and over draws. Then the time in which the "
        f"lexical view is chosen and fitted.\n\n{table(columns, rows)}\n"
        f"Ahead by more than two standard errors: {', '.join(ahead) or 'none'}. Behind: {', '.join(behind) or 'none'}."
        f"\n\n{revisions(record.data['runs'])}\n"
    )


BENCHMARK = Benchmark.of(
    "Your own pairs", measure, report, None, options_of(NAME, SETS), ("torch", "numpy", "scikit-learn")
)

if __name__ == "__main__":
    BENCHMARK.main()
