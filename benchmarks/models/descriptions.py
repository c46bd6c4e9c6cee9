"""`python -m benchmarks.models.descriptions`: a matcher of short and long descriptions of Debian's packages.

On Debian, reads the descriptions in the package lists of the sources that apt knows (for the record, `main` of Debian
12), which it downloads into a folder of its own (35 MB). The short description of a package is the query, its long one
the text that belongs to it. From the long one, it removes the short one where it is repeated word for word, and
paragraphs that more than 20 source packages share. It drops transitional, dummy and meta packages, and descriptions
that are too short or still contain the short one; of packages with the same short description or first paragraph, it
keeps the first. Each short description is also paired with a long one of another source package: alternately a random
one, and one of the ranks 3 to 12 by the cosine of TF-IDF. All packages of a source are in the same split.

Trains the recipe `descriptions` on them, and compares it with the tuned cosine of TF-IDF that training prints: on the
test pairs, and by the rank of the right text among those of 99 other packages. Each result is recorded when its run
ends; a restarted benchmark continues.
"""

import argparse
import dataclasses
import hashlib
import json
import random
import re
import shutil
import statistics
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from tqdm import tqdm

from artifact.arrays import Doubles
from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier, replacing
from benchmarks.lib.table import table
from benchmarks.models.runs import folders_of, revisions, run_command
from model.data.own import DataFiles
from model.errors import UserError
from model.runs.load import load_trained
from model.tasks.graphs import module_functions
from model.tasks.lexical_matching import LexicalMatchingTask
from model.tasks.link import Outputs, area_under_roc
from model.training.checkpoint import BEST

NAME = "descriptions"
SEEDS = 3
SHARED = 20
"""Paragraphs that more source packages share are left out."""
FEWEST = 2, 12
"""Minimum number of words of a short and of a long description."""
GENERAL = re.compile("transitional|dummy|metapackage", re.IGNORECASE)
"""Short descriptions of packages without content."""
SIZES = {"test": 2_500, "validation": 1_500}
"""Approximate number of packages in each split; the rest is for training."""
FEWEST_PACKAGES = 10_000
"""Fewer descriptions mean that apt has no English ones, or few sources."""
NEAR = slice(2, 12)
"""Ranks of the similar texts that are drawn; the nearest ones may describe the same thing."""
BATCH = 1_000
"""Number of packages that are compared with all others at once, so that their cosines fit into memory."""
CANDIDATES = 100
TASK = "text-matching"
OURS, COSINE = NAME, "cosine of TF-IDF"


class Package(NamedTuple):
    """Descriptions of a package."""

    source: str
    """Name of its source package."""
    short: str
    long: str


def words(text: str) -> str:
    """The words of a text in lower case."""
    return " ".join(re.findall(r"\w+", text.lower()))


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text that are not empty."""
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def download(folder: Path) -> str:
    """All packages that apt knows, in the format of `apt-cache show`, from lists in a folder.

    Raises: CalledProcessError if apt fails; FileNotFoundError without apt.
    """
    lists = (f"Dir::State::Lists={folder}", "Dir::Cache::pkgcache=", "Dir::Cache::srcpkgcache=")
    options = [word for one in (*lists, "Acquire::Languages=en") for word in ("-o", one)]
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", *options, "update"], check=True)
    command = ["apt-cache", *options, "search", "--full", "--names-only", "."]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def parsed(records: str) -> Iterator[Package]:
    """The packages of records, in the order of their names; of several versions, the first."""
    found: dict[str, Package] = {}
    for record in records.split("\n\n"):
        fields: dict[str, str] = dict(re.findall(r"^([\w-]+): (.*(?:\n .*)*)", record, re.MULTILINE))
        if fields.keys() >= {"Package", "Description-en"}:
            short, _, long = fields["Description-en"].partition("\n")
            source = (fields.get("Source") or fields["Package"]).partition(" ")[0]
            text = re.sub(r"^ \.?", "", long, flags=re.MULTILINE)
            found.setdefault(fields["Package"], Package(source, short.strip(), text.strip()))
    return (found[name] for name in sorted(found))


def cleaned(packages: Sequence[Package]) -> list[Package]:
    """The packages that tell enough, without what their long descriptions repeat: see the top of this file."""
    sources = defaultdict[str, set[str]](set)
    for package in packages:
        for part in paragraphs(package.long):
            sources[words(part)].add(package.source)
    kept, known = list[Package](), set[str]()
    for source, short, long in packages:
        text = "\n\n".join(part for part in paragraphs(long) if len(sources[words(part)]) <= SHARED)
        text = re.sub(re.escape(short).replace(r"\ ", r"\s+"), "", text, flags=re.IGNORECASE)
        text = re.sub("[ \t]+", " ", text).strip(" .:\n")
        is_short = len(words(short).split()) < FEWEST[0] or len(text.split()) < FEWEST[1]
        if is_short or GENERAL.search(short) or words(short) in words(text):
            continue
        keys = {"short " + words(short), "first " + words(paragraphs(text)[0])}
        if known.isdisjoint(keys):
            kept.append(Package(source, short, text))
        known |= keys
    return kept


def split(packages: Sequence[Package]) -> list[str]:
    """Split of each package: sources, in the order of their hashes, fill test, then validation, then training."""
    counts = Counter(package.source for package in packages)
    splits, left = dict[str, str](), dict(SIZES)
    for source in sorted(counts, key=lambda name: hashlib.sha256(name.encode()).digest()):
        splits[source] = next((name for name, size in left.items() if size > 0), "train")
        if splits[source] in left:
            left[splits[source]] -= counts[source]
    return [splits[package.source] for package in packages]


def pairs_of(packages: Sequence[Package]) -> Iterator[Data]:
    """Rows of the table: the pair of each package, and its short description with another package's long one."""
    splits, generator = split(packages), random.Random(NAME)
    long = [package.long for package in packages]
    learned = [text for text, name in zip(long, splits, strict=True) if name == "train"]
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32, stop_words="english").fit(learned)
    for name in ("train", *SIZES):
        members = [number for number, its in enumerate(splits) if its == name]
        texts = vectorizer.transform([long[number] for number in members])
        # similar to both descriptions: to the short one, so that shared words mislead
        queries = texts + vectorizer.transform([packages[number].short for number in members])
        sources = np.unique([packages[number].source for number in members], return_inverse=True)[1]
        for first in range(0, len(members), BATCH):
            cosines = (queries[first : first + BATCH] @ texts.T).toarray()
            for row, likeness in enumerate(cosines, first):
                source, short, text = packages[members[row]]
                others = np.flatnonzero(sources != sources[row])
                if row % 2:
                    others = others[np.argsort(-likeness[others], kind="stable")[NEAR]]
                wrong = long[members[others[generator.randrange(len(others))]]]
                for label, document in ((1, text), (0, wrong)):
                    yield {"query": short, "document": document, "label": label, "split": name, "source": source}


def write(packages: Sequence[Package], file: Path) -> None:
    """Write the pairs as a table that `python -m model train` reads."""
    if len(packages) < FEWEST_PACKAGES:
        raise UserError(
            f"apt knows {len(packages):,} English descriptions to learn from; at least {FEWEST_PACKAGES:,} needed"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as partial, partial.open("w") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in pairs_of(packages))


def read(file: Path) -> Iterator[Data]:
    """The rows of the table."""
    with file.open() as stream:
        yield from map(json.loads, stream)


def rankings(file: Path) -> tuple[list[bytes], NDArray[np.int64]]:
    """Texts, and the pairs to rank, as in `Pairs.table`: each query with CANDIDATES texts, the right one first.

    The texts are those of the test split; the wrong ones are of other source packages.

    Shape:  the pairs are (queries * CANDIDATES, 3).
    """
    rows = [row for row in read(file) if row["split"] == "test" and row["label"]]
    generator, pairs = random.Random(NAME), list[tuple[int, int, int]]()
    for number, row in enumerate(rows):
        others = [i for i, other in enumerate(rows) if other["source"] != row["source"]]
        candidates = [number, *generator.sample(others, CANDIDATES - 1)]
        pairs += [(len(rows) + number, other, int(other == number)) for other in candidates]
    texts = [row[name].encode() for name in ("document", "query") for row in rows]
    return texts, np.array(pairs)


def share_of_known(file: Path) -> float:
    """Share of the right texts of the test split that have a paragraph in common with one of another split."""
    rows = [row for row in read(file) if row["label"]]
    known = {words(part) for row in rows if row["split"] != "test" for part in paragraphs(row["document"])} - {""}
    tested = [{words(part) for part in paragraphs(row["document"])} for row in rows if row["split"] == "test"]
    return sum(not known.isdisjoint(its) for its in tested) / len(tested)


def reciprocal_ranks(scores: Outputs) -> Doubles:
    """1 / rank of the first of each row of scores (queries, candidates); equal scores share the mean of their ranks."""
    first, others = scores[:, :1], scores[:, 1:]
    ranks: Doubles = 1 + (others > first).sum(1) + (others == first).sum(1) / 2
    return 1 / ranks


def results(run: Path, file: Path) -> Data:
    """Results of a run and of its baseline on the test pairs, and on the rankings."""
    best = load_trained(run, DataFiles(data=file))
    task, data = best.task, best.data
    assert isinstance(task, LexicalMatchingTask)
    baseline = task.chosen_baseline(data)
    assert baseline is not None
    functions = module_functions(best.finished.graphs, torch.device("cpu"))
    pairs, (texts, ranked) = task.pairs(data, "test"), rankings(file)
    logits, targets = task.logits(functions, data, pairs)
    ranking, _ = task.logits(functions, dataclasses.replace(data, texts=texts), ranked)
    cosines = baseline.scores(data.texts, pairs[:, :2])
    return {
        "baseline": baseline.setting,
        OURS: _results(logits, logits > 0, targets, ranking),
        COSINE: _results(cosines, cosines >= baseline.threshold, targets, baseline.scores(texts, ranked[:, :2])),
    }


def _results(scores: Outputs, answers: NDArray[np.bool_], targets: Doubles, ranking: Outputs) -> Data:
    """AUC and accuracy of pairs, and the reciprocal rank of each query, in thousandths."""
    reciprocal = reciprocal_ranks(ranking.reshape(-1, CANDIDATES))
    return {
        "auc": area_under_roc(scores, targets),
        "accuracy": float((answers == targets).mean()),
        "reciprocal_ranks": np.rint(1000 * reciprocal).astype(int).tolist(),
    }


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Make the pairs if there are none; train the seeds that the record lacks."""
    file = args.data_dir / NAME / f"{NAME}.jsonl"
    if not file.is_file():
        write(cleaned([*parsed(download(file.parent / "lists"))]), file)
    counts = Counter(row["split"] for row in read(file))
    facts: Data = {
        "digest": hashlib.sha256(file.read_bytes()).hexdigest(),
        "pairs": dict(counts),
        "shared": share_of_known(file),
    }
    print(", ".join(f"{name} {count:,} pairs" for name, count in counts.items()), flush=True)
    before = earlier(NAME, args.out)
    runs: list[Data] = before.get("runs", []) if before.get("digest") == facts["digest"] else []
    for seed in tqdm(sorted(set(range(SEEDS)) - {run["seed"] for run in runs}), unit="run"):
        folder = args.runs / facts["digest"][:12]
        run = folder / f"{NAME}-seed{seed}"
        if not (run / BEST).is_file():
            shutil.rmtree(run, ignore_errors=True)
            command = ("train", NAME, "--task", TASK, "--data", str(file), "--text-column", "query", "document")
            run_command(*command, "--runs", str(folder), "--set", f"seed={seed}", data_dir=args.data_dir, threads=1)
        runs.append({"seed": seed, "revision": git_revision(), **results(run, file)})
        yield {**facts, "runs": runs}


def report(record: Record) -> str:
    """Report: both models on the test pairs and on the rankings, and the difference of their reciprocal ranks."""
    runs, rows = record.data["runs"], list[list[str]]()
    for name, found in ((OURS, [run[OURS] for run in runs]), (COSINE, [runs[0][COSINE]])):
        ranks = [np.array(one["reciprocal_ranks"]) / 1000 for one in found]
        values = (
            [one["auc"] for one in found],
            [one["accuracy"] for one in found],
            [float(one.mean()) for one in ranks],
            [float((one == 1).mean()) for one in ranks],
        )
        rows.append([name, *map(_summary, values)])
    gains = np.mean(
        [np.subtract(run[OURS]["reciprocal_ranks"], run[COSINE]["reciprocal_ranks"]) for run in runs], axis=0
    )
    gain, error = gains.mean() / 1000, gains.std(ddof=1) / len(gains) ** 0.5 / 1000
    counts = record.data["pairs"]
    return (
        f"Trained on {counts['train']:,} pairs, {counts['validation']:,} for validation; tested on {counts['test']:,} "
        f"pairs, and on {len(gains):,} short descriptions with {CANDIDATES} long ones each, of which one is right. "
        f"Mean ± standard deviation over {len(runs)} seeds; the cosine ({runs[0]['baseline']}) has no seed.\n\n"
        f"{table(['model', 'AUC', 'accuracy', 'mean reciprocal rank', 'right text first'], rows)}\n"
        f"Difference of the mean reciprocal rank: {gain:+.3f} ± {error:.3f} (standard error over the short "
        f"descriptions). {100 * record.data['shared']:.0f} % of the right texts of the test have a paragraph in common "
        f"with one of training or validation.\n\n{revisions(runs)}\n"
    )


def _summary(values: Sequence[float]) -> str:
    """Mean, and the standard deviation of several values."""
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{spread}"


BENCHMARK = Benchmark.of(
    "Descriptions of packages", measure, report, None, folders_of(NAME), ("torch", "numpy", "scikit-learn")
)

if __name__ == "__main__":
    BENCHMARK.main()
