"""Descriptions of made-up packages, their pairs and splits, the ranks of texts, and the report."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.lib.record import Data
from benchmarks.models import descriptions
from benchmarks.models.descriptions import BENCHMARK, COSINE, OURS, Package
from model.errors import UserError
from tests.support.records import expect_in_report, made_up

RECORDS = """\
Package: tea-doc
Source: tea (1.2)
Description-en: brew tea - documentation
 Tea is brewed
  * black
 .
 .
 or green.
Section: doc

Package: tea-doc
Description-en: an older version
 Of the same package.

Package: cup
Description-en: a cup

Package: untranslated
Description-md5: 12
"""
LONG = "one two three four five six seven eight nine ten eleven twelve"


def test_records_of_apt_are_read() -> None:
    found = [*descriptions.parsed(RECORDS)]
    assert found == [
        Package("cup", "a cup", ""),
        Package("tea", "brew tea - documentation", "Tea is brewed\n * black\n\n\nor green."),
    ]


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("word", LONG),
        ("two words", "too short"),
        ("dummy package", LONG),
        ("Eight-Nine", LONG),
        ("the first one", f"{LONG}, different"),
        ("a new one", "First, first first: first first first first first first first first first.\n\nother"),
    ],
    ids=["one word", "few words", "general", "contained", "known short text", "known paragraph"],
)
def test_packages_that_tell_little_or_too_much_are_left_out(short: str, long: str) -> None:
    first = Package("a", "The first one!", "first " * 12)
    assert descriptions.cleaned([first, Package("b", short, long)]) == [first._replace(long="first " * 11 + "first")]


def test_long_text_loses_the_short_one_and_what_many_sources_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptions, "SHARED", 1)
    text = f"Brews\n tea: {LONG}.\n\nPart of a Project."
    found = descriptions.cleaned([Package("a", "brews tea", text), Package("b", "a cup", "Part of a project!")])
    assert found == [Package("a", "brews tea", LONG)]


def packages(count: int) -> list[Package]:
    """Two packages of each source, with words of their own and of their topic."""
    return [
        Package(f"source{i // 2}", f"tool number{i} topic{i % 7}", f"It has topic{i % 7} and number{i} {LONG}")
        for i in range(count)
    ]


def test_pairs_have_a_text_of_another_source_in_the_same_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptions, "FEWEST_PACKAGES", 200)
    monkeypatch.setattr(descriptions, "SIZES", {"test": 40, "validation": 30})
    known = packages(300)
    assert Counter(descriptions.split(known)) == {"train": 230, "test": 40, "validation": 30}
    file = tmp_path / "pairs" / "pairs.jsonl"
    descriptions.write(known, file)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert descriptions.share_of_known(file) == 0
    source, split = {one.long: one.source for one in known}, dict(zip(known, descriptions.split(known), strict=True))
    of_long = {one.long: split[one] for one in known}
    assert len(rows) == 600
    for right, wrong in zip(rows[::2], rows[1::2], strict=True):
        assert right["query"] == wrong["query"]
        assert (right["label"], wrong["label"]) == (1, 0)
        assert source[right["document"]] == right["source"] != source[wrong["document"]]
        assert right["split"] == wrong["split"] == of_long[right["document"]] == of_long[wrong["document"]]
    near = [wrong["query"].split()[2] in wrong["document"] for wrong in rows[1::2]]
    train = near[:230]
    assert np.mean(train[1::2]) > 0.9  # the similar ones have the same topic
    assert np.mean(train[::2]) < 0.4


def test_candidates_are_of_other_sources_and_the_first_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptions, "FEWEST_PACKAGES", 200)
    monkeypatch.setattr(descriptions, "SIZES", {"test": 40})
    monkeypatch.setattr(descriptions, "CANDIDATES", 9)
    known = packages(200)
    descriptions.write(known, tmp_path / "pairs.jsonl")
    texts, pairs = descriptions.rankings(tmp_path / "pairs.jsonl")
    of_text = {text.encode(): one.source for one in known for text in (one.short, one.long)}
    assert pairs.shape == (40 * 9, 3)
    for ranked in np.split(pairs, 40):
        query, right, *others = ranked[0, 0], *ranked[:, 1]
        assert (ranked[:, 0] == query).all()
        assert ranked[:, 2].tolist() == [1] + [0] * 8
        assert texts[query].split()[1] in texts[right].split()
        assert len({right, *others}) == 9
        assert of_text[texts[query]] not in {of_text[texts[other]] for other in others}


def test_few_packages_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="apt knows 30 English descriptions to learn from; at least 10,000 needed"):
        descriptions.write(packages(30), tmp_path / "pairs.jsonl")
    assert not [*tmp_path.iterdir()]


def test_equal_scores_share_the_mean_of_their_ranks() -> None:
    scores = np.array([[3, 1, 2], [2, 3, 2], [0, 1, 2]], np.float32)
    assert descriptions.reciprocal_ranks(scores).tolist() == pytest.approx([1, 1 / 2.5, 1 / 3])


def run(seed: int, ours: list[int], auc: float) -> Data:
    cosine = {"auc": 0.8, "accuracy": 0.7, "reciprocal_ranks": [1000, 500, 500, 1000]}
    return {
        "seed": seed,
        "revision": "a",
        "baseline": "words",
        OURS: {"auc": auc, "accuracy": 0.9, "reciprocal_ranks": ours},
        COSINE: cosine,
    }


def test_report_compares_both_models(tmp_path: Path) -> None:
    runs = [run(0, [1000, 1000, 500, 1000], 0.9), run(1, [1000, 1000, 1000, 500], 0.92)]
    data = {"runs": runs, "shared": 0.04, "pairs": {"train": 2_000, "validation": 20, "test": 8}}
    expected = [
        "| descriptions | 0.9100 ± 0.0141 | 0.9000 ± 0.0000 | 0.8750 ± 0.0000 | 0.7500 ± 0.0000 |",
        "| cosine of TF-IDF | 0.8000 | 0.7000 | 0.7500 | 0.5000 |",
        "Difference of the mean reciprocal rank: +0.125 ± 0.161",
        "the cosine (words) has no seed",
        "4 % of the right texts of the test have a paragraph in common",
    ]
    expect_in_report(BENCHMARK, made_up(data), expected, tmp_path)
