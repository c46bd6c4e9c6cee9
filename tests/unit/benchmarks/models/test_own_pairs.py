"""Pairs of the benchmark of own pairs, and its report."""

import re

from benchmarks.lib.record import Data
from benchmarks.models.own_pairs import entails, paired, relatedness, report
from tests.support.records import made_up


def test_documents_are_paired_once_and_every_second_pair_has_one_label() -> None:
    documents = [(f"text {i}", i % 3) for i in range(60)]
    label_of = dict(documents)
    rows = paired(documents)
    texts = [text for a, b, _ in rows for text in (a, b)]
    assert len(set(texts)) == len(texts) > 50
    assert all((label_of[a] == label_of[b]) == (label == 1) for a, b, label in rows)
    assert [label for *_, label in rows[:4]] == [1, 0, 1, 0]


def test_labels_of_sentences_are_a_yes_or_no_or_a_degree() -> None:
    row: Data = {"label_name": "entailment", "relatedness": 4.0}
    assert (entails(row), relatedness(row)) == (1.0, 0.75)
    assert entails({"label_name": "neutral"}) == 0.0


def run(pairs: str, draw: int, ours: float, tfidf: float, error: float) -> Data:
    numbers = {"ours": ours, "tfidf": tfidf, "error": error, "training": 500, "test": 40, "seconds": 12.0}
    return {"pairs": pairs, "draw": draw, "metric": "auc", "revision": "a", **numbers}


def test_report_tells_means_over_draws_and_where_ours_is_ahead_or_behind() -> None:
    runs = [
        run("newsgroup posts", 0, 0.8, 0.7, 0.03),
        run("newsgroup posts", 1, 0.9, 0.7, 0.04),
        run("papers, 500", 0, 0.80, 0.82, 0.02),
        run("SICK, entailment", 0, 0.6, 0.7, 0.01),
    ]
    found = re.sub(" +", " ", report(made_up({"runs": runs})))
    assert "| newsgroup posts | AUC | 500 | 2 | 40 | 0.850 | 0.700 | +0.150 ± 0.061 | 12 s |" in found
    assert "Ahead by more than two standard errors: newsgroup posts. Behind: SICK, entailment." in found
    assert "Revisions of the runs: a." in found
