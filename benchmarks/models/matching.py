"""`python -m benchmarks.models.matching`: the matcher on pairs of papers against TF-IDF, and its ablation.

Trains into `runs/matching/` (up to half an hour per run on one core). Each result is recorded when its run ends; a
restarted benchmark continues. The results of TF-IDF are those of the record `aan_tfidf`.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, read
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.models.runs import Case, evaluate, options_of, revisions, trained, values_by_case

NAME = "matching"
METRICS = ("accuracy", "auc")
DISJOINT = "data.disjoint=true"
NO_ENCODER = "model.encoder_pairs=1000000"
NO_JOINT = "model.joint_view.min_pairs=1000000"
UNSEEN = "trained without the papers of the test"


def _attention(name: str) -> tuple[str, ...]:
    return NO_ENCODER, f'model.joint_view.attention="{name}"'


CASES = {
    "served": (Case("served", "aan", 3), "all"),
    "served, disjoint": (Case(f"served, {UNSEEN}", "aan", 3, (DISJOINT,)), "paper-disjoint"),
    "no joint": (Case("served, without joint view", "aan", 3, (NO_JOINT,)), "all"),
    "no S3": (Case("served, without S3Attention", "aan", 1, _attention("none")), "all"),
    "DBA": (Case("the same, DBA between the documents", "aan", 1, _attention("dba")), "all"),
    "S3 joined": (Case("the same, S3Attention over both documents", "aan", 1, _attention("s3")), "all"),
    "softmax joined": (Case("the same, softmax over both documents", "aan", 1, _attention("softmax")), "all"),
    "S3 alone": (Case("S3Attention alone", "aan-s3", 3), "all"),
    "S3 alone, disjoint": (Case(f"S3Attention alone, {UNSEEN}", "aan-s3", 2, (DISJOINT,)), "paper-disjoint"),
    "no Fourier": (
        Case(
            "S3Attention alone, without Fourier convolution", "aan-s3", 1, ("model.encoder.options.use_fourier=false",)
        ),
        "all",
    ),
    "stem alone": (Case("the stem alone", "aan-s3", 1, ("model.encoder.num_layers=0",)), "all"),
}
"""Label in the chart -> runs and their test pairs."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train and evaluate the missing runs."""
    return trained(NAME, [case for case, _ in CASES.values()], args, evaluate)


def values_of(record: Record) -> dict[str, dict[str, list[float]]]:
    """Label -> metric -> one value per seed."""
    found = values_by_case(record.data["runs"])
    return {
        label: {
            metric: [run[metric, f"{pairs} pairs, first 4000 bytes"] for run in found[case.name]] for metric in METRICS
        }
        for label, (case, pairs) in CASES.items()
        if case.name in found
    }


def tfidf() -> dict[str, Data]:
    """Test pairs -> results of the TF-IDF cosine."""
    return {row["pairs"]: row for row in read("aan_tfidf").data["sets"]}


def report(record: Record) -> str:
    """Report: comparison with TF-IDF."""
    rows = [
        [
            CASES[label][0].name,
            CASES[label][1],
            str(len(values["auc"])),
            *(mean_and_deviation(values[metric], ".4f") for metric in METRICS),
        ]
        for label, values in values_of(record).items()
    ]
    baseline = tfidf()
    rows += [
        ["TF-IDF cosine", pairs, "", *(f"{row[metric]:.4f}" for metric in METRICS)] for pairs, row in baseline.items()
    ]
    counts = ", ".join(f"{pairs} {row['examples']:,}" for pairs, row in baseline.items())
    return (
        f"First 4,000 bytes of each paper; test pairs: {counts}; mean ± standard deviation over seeds. TF-IDF: "
        f"`aan_tfidf`.\n\n{table(['model', 'test pairs', 'seeds', 'accuracy', 'AUC'], rows, left=2)}\n"
        f"{revisions(record.data['runs'])}\n"
    )


def draw(record: Record, path: Path) -> None:
    """Bar chart of accuracy and AUC, with TF-IDF on the same pairs as a line over each bar."""
    figure, panels = chart.figure((10, 4.4), 2)
    found, baseline = values_of(record), tfidf()
    for panel, metric in zip(panels, METRICS, strict=True):
        for place, (label, values) in enumerate(found.items()):
            deviation = statistics.stdev(values[metric]) if len(values[metric]) > 1 else 0.0
            panel.bar(place, statistics.mean(values[metric]), yerr=deviation, capsize=3, color="C0")
            known = baseline[CASES[label][1]][metric]
            panel.plot([place - 0.45, place + 0.45], [known, known], color="black", label=None if place else "TF-IDF")
        panel.set(ylabel=metric, xticks=range(len(found)), ylim=(0.75, 1.0))
        panel.set_xticklabels(list(found), fontsize=8, rotation=45, ha="right")
        panel.legend()
    chart.save(figure, path)


BENCHMARK = Benchmark.of(
    "Pairs of ACL Anthology papers",
    measure,
    report,
    draw,
    options_of(NAME),
    ("torch", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
