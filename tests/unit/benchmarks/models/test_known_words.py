"""The benchmark of known words: kinds of texts, a small model, and the report."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.models.known_words import BENCHMARK, OWN, kinds
from model.errors import UserError
from tests.support.paths import EXPORTS
from tests.support.records import expect_in_report, made_up
from tests.unit.model.conftest import exported_once
from tests.unit.model.export.test_export_words import ngram_run


def test_kinds_have_as_many_texts_as_the_own_documents() -> None:
    texts = {"a": [b"one two", "über".encode()], "b": [b"x"]}
    found = kinds(texts, "a", np.random.default_rng(0))
    assert (found[OWN], found["b"]) == (texts["a"], texts["b"])
    assert found["own, ROT13"][0] == b"bar gjb"
    assert found["own, EBCDIC"][0].decode("cp037") == "one two"
    assert {len(part) for name, part in found.items() if name != "b"} == {2}


def test_model_knows_its_own_documents_better_than_noise(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = exported_once(ngram_run(tmp_path_factory), tmp_path_factory)
    arguments = ["--exports", str(folder.parents[1]), "--models", "tiny", "--sets", "synthetic", "--documents", "20"]
    *_, data = BENCHMARK.measure(BENCHMARK.parse(arguments))
    (model,) = data["models"]
    assert model["model"] == "tiny/1"
    assert len(model["shares"][OWN]) == 20
    assert np.mean(model["shares"]["random letters"]) < model["low"] < np.median(model["shares"][OWN])


def test_model_that_does_not_count_words_is_named(tmp_path: Path) -> None:
    arguments = ["--exports", str(EXPORTS), "--models", "aan", "--sets", "synthetic", "--data-dir", str(tmp_path)]
    with pytest.raises(UserError, match=r"^aan \d+ does not count words; export it again$"):
        list(BENCHMARK.measure(BENCHMARK.parse(arguments)))


def test_report_has_the_quantiles_of_each_kind_and_what_is_below_low(tmp_path: Path) -> None:
    shares = {OWN: [0.6] * 50 + [0.7] * 50, "random bytes": [0.1, 0.1, 0.5, 0.5]}
    measured = made_up({"models": [{"model": "a/3", "low": 0.45, "shares": shares}]})
    expected = [
        f"| a | {OWN} | 100 | 0.60 | 0.65 | 0.70 | 0.0 |",
        "| a | random bytes | 4 | 0.10 | 0.30 | 0.50 | 50.0 |",
        "`known.low`: `a/3` 0.45.",
    ]
    expect_in_report(BENCHMARK, measured, expected, tmp_path)
