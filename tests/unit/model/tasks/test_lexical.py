"""Fit of the lexical view: projections, and the weights of products and differences."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from artifact.documents import cut, pad_rows, take
from model.config.models import OPENING, LexicalViewConfig, MatcherConfig
from model.nn.lexical import LexicalView
from model.nn.matcher import ViewsMatcher
from model.nn.words import WordHasher
from model.tasks import lexical
from model.tasks.lexical import (
    EXPONENTS,
    STRENGTHS,
    Choice,
    LabelledPairs,
    Projection,
    Weights,
    choose,
    fit,
    fit_weights,
    project,
)
from model.tasks.link import area_under_roc
from model.tasks.ngrams import count

CONFIG = LexicalViewConfig(longest=2, num_ngrams=512, dim=16, max_length=256)


def topics(number: int = 60, noise: int = 4) -> tuple[list[bytes], np.ndarray]:
    """Texts of three topics, and the topic of each."""
    generator = np.random.default_rng(0)
    words = [[f"topic{topic}word{i}" for i in range(8)] for topic in range(3)]
    topic = generator.integers(3, size=number)
    common = [f"common{i}" for i in range(6)]
    texts = [" ".join([*generator.choice(words[t], 4), *generator.choice(common, noise)]).encode() for t in topic]
    return texts, topic


def pairs_of(topic: np.ndarray, number: int = 300) -> LabelledPairs:
    index = np.random.default_rng(1).integers(len(topic), size=(number, 2))
    index = index[index[:, 0] != index[:, 1]]
    return LabelledPairs(index, (topic[index[:, 0]] == topic[index[:, 1]]).astype(np.float64))


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_projections_equal_what_the_model_computes(exponent: float) -> None:
    texts, _ = topics()
    texts.append(b" ".join(texts[:12]))  # longer than a window
    counted = count(WordHasher(1, CONFIG.max_length), texts, CONFIG.max_length, CONFIG.max_length // 8)
    found = project(counted, exponent, CONFIG.dim, 0)
    view = LexicalView(CONFIG).eval()
    view.fill(found.hashes, found.table)
    document, lengths = pad_rows(texts[:60], CONFIG.max_length)
    with torch.inference_mode():
        vectors = view(torch.from_numpy(document), torch.from_numpy(lengths)).double().numpy()
    expected = found.vectors_of(counted)
    rank = expected.shape[1]
    assert (vectors / np.sqrt(CONFIG.dim))[:, :rank] == pytest.approx(expected[:60], abs=1e-5)
    assert found.vectors == pytest.approx(expected)
    assert np.linalg.norm(found.vectors, axis=1) == pytest.approx(np.ones(len(texts)))


def test_decompositions_of_few_and_many_documents_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The documents of a topic are alike, so that three singular vectors are all that there are."""
    texts = [f"one{i % 3} two{i % 3} three{i % 3}".encode() for i in range(60)]
    counted = count(WordHasher(1, CONFIG.max_length), texts, CONFIG.max_length, CONFIG.max_length // 8)
    few = project(counted, 1.0, CONFIG.dim, 0)
    assert few.table.shape[1] == 3
    monkeypatch.setattr(lexical, "MAX_PRODUCTS", 0)
    many = project(counted, 1.0, 3, 0)
    assert few.table @ few.table.T == pytest.approx(many.table @ many.table.T)


def test_without_a_strength_the_logit_is_a_scaled_cosine() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((2, 200, 1, 6))
    targets = ((a * b).sum((1, 2)) + generator.standard_normal(200) > 0).astype(np.float64)
    (weights,) = fit_weights(a, b, targets, [0.0])
    assert weights.products == pytest.approx(np.full((1, 1, 6), weights.products[0, 0, 0]))
    assert weights.products[0, 0, 0] > 0
    assert (weights.differences == 0).all()


def test_a_larger_strength_fits_the_training_pairs_more_closely() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((2, 400, 1, 6))
    targets = (a[:, 0, 0] * b[:, 0, 0] > 0).astype(np.float64)  # one dimension decides
    found = [area_under_roc(one.logits(a, b), targets) for one in fit_weights(a, b, targets, STRENGTHS)]
    assert found == sorted(found)
    assert found[-1] > found[0] + 0.1


def test_a_degree_counts_as_shares_of_both_labels() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((2, 40, 1, 3))
    degrees = np.where(np.arange(40) % 2, 0.75, 0.0)
    repeated = np.repeat(np.arange(40), 4)
    labels = (np.tile(np.arange(4), 40) < 4 * degrees[repeated]).astype(np.float64)
    (graded,) = fit_weights(a, b, degrees, [4.0])
    (binary,) = fit_weights(a[repeated], b[repeated], labels, [1.0])
    assert graded.logits(a, b) == pytest.approx(binary.logits(a, b), abs=0.02)


def test_choice_and_fit_find_topics() -> None:
    texts, topic = topics(120)
    pairs = pairs_of(topic[:60])
    choice = choose(texts[:60], pairs, CONFIG, 0)
    assert (choice.longest, choice.exponent, choice.strength) in {
        (longest, exponent, strength) for longest in (1, 2) for exponent in EXPONENTS for strength in STRENGTHS
    }
    assert choose(texts[:60], pairs, CONFIG, 0) == choice
    fitted = fit(texts[:60], pairs, CONFIG, choice, 0)
    model = ViewsMatcher(MatcherConfig(lexical_view=choice.of(CONFIG)))
    fitted.fill(model)
    view, head = model.encoder.lexical, model.head.lexical
    new = pairs_of(topic[60:])
    document, lengths = pad_rows(texts[60:], CONFIG.max_length)
    with torch.inference_mode():
        vectors = view(torch.from_numpy(document), torch.from_numpy(lengths))
        logits = head(*(vectors[column] for column in torch.from_numpy(new.index.T)))[:, 0].numpy()
    assert area_under_roc(logits, new.targets) > 0.9


LONG = CONFIG.model_copy(update={"opening": True, "max_length": 1024})


def titled(number: int) -> tuple[list[bytes], np.ndarray]:
    """Texts whose topic is in their first bytes, followed by words of any topic; the last one has several windows."""
    texts, topic = topics(number, noise=0)
    generator = np.random.default_rng(2)
    long = [text.ljust(OPENING) + b" ".join(texts[i] for i in generator.integers(number, size=12)) for text in texts]
    long[-1] += b" " * 300 + long[0]
    assert len(long[-1]) > LONG.max_length
    return long, topic


def test_openings_are_chosen_if_they_tell_more_than_the_whole() -> None:
    texts, topic = titled(160)
    pairs = pairs_of(topic, 600)
    choice = choose(texts, pairs, LONG, 0)
    assert choice.opening
    assert not choose(texts, pairs, LONG.model_copy(update={"opening": False}), 0).opening
    shortened = [text[:OPENING] for text in texts]
    assert not choose(shortened, pairs, LONG, 0).opening


def test_openings_are_tried_with_strengths_up_to_the_best_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, topic = titled(60)
    pairs, tried = pairs_of(topic), {1: set[float](), 2: set[float]()}

    def noted(a: np.ndarray, b: np.ndarray, targets: np.ndarray, strengths: Sequence[float]) -> list[Weights]:
        tried[a.shape[1]] |= set(strengths)
        return fit_weights(a, b, targets, strengths)

    without = choose(texts, pairs, LONG.model_copy(update={"opening": False}), 0)
    monkeypatch.setattr(lexical, "fit_weights", noted)
    choose(texts, pairs, LONG, 0)
    assert tried == {1: set(STRENGTHS), 2: {one for one in STRENGTHS if one <= without.strength}}


@pytest.mark.parametrize("longest", [1, 2])
def test_fit_with_openings_gives_the_logits_of_the_model(longest: int) -> None:
    texts, topic = titled(80)
    pairs = pairs_of(topic)
    choice = Choice(longest, 1.0, 0.01, opening=True)
    fitted = fit(texts, pairs, LONG, choice, 0)
    model = ViewsMatcher(MatcherConfig(lexical_view=choice.of(LONG))).eval()
    fitted.fill(model)
    view, head = model.encoder.lexical, model.head.lexical
    windows = [[take(text, part) for part in cut(len(text), 1024, 128, "windows")] for text in texts]
    assert max(map(len, windows)) > 1
    with torch.inference_mode():
        vectors = torch.stack([view(*map(torch.from_numpy, pad_rows(rows, 1024))).mean(0) for rows in windows])
        logits = head(*(vectors[column] for column in torch.from_numpy(pairs.index.T)))[:, 0].numpy()
    counted = [count(WordHasher(longest, 1024), texts, 1024, 128)]
    projection = Projection(fitted.hashes, fitted.table, np.empty(0))
    openings = [[row[:OPENING] for row in rows] for rows in windows]
    flat = count(WordHasher(longest, OPENING), [row for rows in openings for row in rows], OPENING, 0)
    of_windows = projection.vectors_of(flat)
    sizes = np.cumsum([len(rows) for rows in openings])[:-1]
    means = np.stack([part.mean(0) for part in np.split(of_windows, sizes)])
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    expected = np.stack((projection.vectors_of(counted[0]), means), axis=1)
    a, b = (expected[column] for column in pairs.index.T)
    assert logits == pytest.approx(fitted.weights.logits(a, b), abs=1e-4)
    assert area_under_roc(logits, pairs.targets) > 0.9


@pytest.mark.parametrize("first", [[0, 1], [0, 0, 0, 0]], ids=["two pairs", "one first text"])
def test_without_folds_of_both_labels_the_choice_is_the_cosine_of_words(first: list[int]) -> None:
    texts, _ = topics(8)
    number = len(first)
    pairs = LabelledPairs(np.array([first, np.arange(2, 2 + number)]).T, (np.arange(number) % 2).astype(np.float64))
    choice = choose(texts, pairs, CONFIG, 0)
    assert choice == Choice(longest=1, exponent=1.0, strength=0.0)
    fit(texts, pairs, CONFIG, choice, 0)


def test_texts_without_a_common_word_are_an_error() -> None:
    with pytest.raises(ValueError, match="no word is in several documents"):
        choose([b"one", b"two"], LabelledPairs(np.array([[0, 1], [1, 0]]), np.array([0.0, 1.0])), CONFIG, 0)
