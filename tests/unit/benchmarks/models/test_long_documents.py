"""The benchmark of long documents: what is read of a document, features of windows, and the report."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.models.long_documents import difference, digits, features, overrides, parts_of
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ClassificationRun


@pytest.mark.parametrize(("part", "sizes"), [("head", [4096]), ("windows", [4096] * 3), ("whole", [9192])])
def test_part_of_a_document(part: str, sizes: list[int]) -> None:
    text = bytes(97 + place % 26 for place in range(9192))
    found = parts_of(text, part)
    assert [len(window) for window in found] == sizes
    assert found[0].encode() == text[: sizes[0]]
    assert found[-1].encode() == (text[: sizes[0]] if part == "head" else text[-sizes[-1] :])


def test_features_are_means_of_the_windows() -> None:
    vectorizer = TfidfVectorizer().fit(["one two", "two three"])
    single = vectorizer.transform(["one two", "three", "two"]).toarray()
    found = features(vectorizer, [["one two", "three"], ["two"]]).toarray()
    assert found == pytest.approx(np.array([(single[0] + single[1]) / 2, single[2]]))


@pytest.mark.parametrize(("part", "length"), [("windows", 4096), ("whole", 65_536)])
def test_recipe_reads_windows_or_the_whole(part: str, length: int) -> None:
    config = load_recipe(find_recipe("un-debate"), list(overrides("un-debate-country", part)))
    assert isinstance(config, ClassificationRun)
    assert (config.data.name, config.model.max_length) == ("un-debate-country", length)


def result(model: str, part: str, correct: list[bool]) -> dict[str, object]:
    shared = {"documents": "scotus", "recipe": "", "revision": "r", "strength": 10.0, "validation": 0.5, "fit_s": 2.0}
    return {**shared, "model": model, "part": part, "correct": digits(np.array(correct))}


def test_differences_are_those_of_the_same_documents() -> None:
    better = result("n-gram view", "whole", [True, True, True, False])
    worse = result("TF-IDF", "whole", [True, False, True, False])
    # Differences 0, 1, 0, 0: mean 1/4, standard deviation 1/2.
    assert difference(better, worse) == "+25.0 ± 25.0"
    assert difference(worse, worse) == ""
    assert difference(worse, None) == ""
