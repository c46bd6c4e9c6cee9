"""The lexical view of a matcher and its head, compared with references in double precision."""

import numpy as np
import pytest
import torch

from artifact.documents import pad_rows
from model.config.models import OPENING, LexicalViewConfig
from model.nn.lexical import LexicalHead, LexicalView
from tests.support import reference

CONFIG = LexicalViewConfig(longest=2, num_ngrams=64, dim=8, max_length=96)
TEXTS = (b"tea and tea, and more tea", b"tea pot", b"an unknown word", b"", b"TEA POT; a tea-pot and a pot")
NGRAMS = ("tea", "pot", "and", "tea and", "and tea", "tea pot", "a")


def table() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((len(NGRAMS), CONFIG.dim))


def hashes() -> np.ndarray:
    found = []
    for ngram in NGRAMS:
        rows = reference.word_ngrams(ngram.encode(), CONFIG.longest)
        found.append(rows[-1][len(ngram.split()) - 1])
    return np.array(found, dtype=np.int64)


@pytest.fixture
def view() -> LexicalView:
    view = LexicalView(CONFIG).eval()
    view.fill(hashes(), table())
    return view


def vectors(view: LexicalView, *texts: bytes) -> torch.Tensor:
    document, lengths = pad_rows(texts, CONFIG.max_length)
    with torch.inference_mode():
        found: torch.Tensor = view(torch.from_numpy(document), torch.from_numpy(lengths))
    return found


def expected(text: bytes) -> np.ndarray:
    """Projection of one text, n-gram by n-gram."""
    known = dict(zip(hashes().tolist(), table(), strict=True))
    found = [ngram for row in reference.word_ngrams(text, CONFIG.longest) for ngram in row if ngram in known]
    total = sum(((1 + np.log(found.count(ngram))) * known[ngram] for ngram in set(found)), np.zeros(CONFIG.dim))
    projection: np.ndarray = total * np.sqrt(CONFIG.dim) / max(1e-12, float(np.linalg.norm(total)))
    return projection


def test_vectors_equal_the_reference(view: LexicalView) -> None:
    found = vectors(view, *TEXTS).double().numpy()
    for text, vector in zip(TEXTS, found, strict=True):
        assert vector == pytest.approx(expected(text), abs=2e-6)
    assert (found[2] == 0).all()
    assert (found[3] == 0).all()


@pytest.mark.parametrize("is_fixed", [False, True])
def test_vector_of_the_opening_is_that_of_the_first_bytes(is_fixed: bool) -> None:
    view = LexicalView(CONFIG.model_copy(update={"opening": True, "max_length": 2 * OPENING})).eval()
    view.fill(hashes(), table())
    view = view.with_fixed_shapes() if is_fixed else view
    long = b"tea and a pot " * 30
    texts = (*TEXTS, long, long[: OPENING - 1], b"tea pot".rjust(OPENING + 4))
    document, lengths = pad_rows(texts, 2 * OPENING)
    with torch.inference_mode():
        found = view(torch.from_numpy(document), torch.from_numpy(lengths)).double().numpy()
    assert found.shape == (len(texts), 2 * CONFIG.dim)
    for text, vector in zip(texts, found, strict=True):
        assert vector == pytest.approx(np.concatenate((expected(text), expected(text[:OPENING]))), abs=4e-6)


@pytest.mark.parametrize("is_fixed", [False, True])
def test_vectors_do_not_depend_on_other_documents_or_on_fixed_shapes(view: LexicalView, is_fixed: bool) -> None:
    other = view.with_fixed_shapes() if is_fixed else view
    together = vectors(other, *TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        assert torch.allclose(vectors(view, text)[0], vector, atol=1e-6)


def test_quantised_table_has_one_step_per_row() -> None:
    rows = table() * np.logspace(-6, 0, len(table()))[:, None]  # a step for all rows would round most of them to zero
    view = LexicalView(CONFIG).eval()
    view.fill(hashes(), rows)
    before, exact = vectors(view, *TEXTS), view.table.clone()
    view.quantise()
    assert view.table.dtype == torch.int8
    rounded = view.table * view.step.unsqueeze(1)
    assert ((rounded - exact).abs() <= exact.abs().amax(1, keepdim=True) / 254 + 1e-12).all()
    assert torch.allclose(vectors(view, *TEXTS), before, atol=2e-2)


def test_head_weighs_products_and_differences_of_unit_vectors() -> None:
    generator = np.random.default_rng(1)
    products, differences, bias = generator.standard_normal(8), generator.standard_normal(8), np.array([0.3])
    head = LexicalHead(CONFIG).double()
    head.fill(products[None, None], differences[None], bias)
    a, b = generator.standard_normal((2, 5, 8))
    found = head(torch.from_numpy(a), torch.from_numpy(b)).detach().numpy()
    for x, y, logit in zip(a, b, found, strict=True):
        x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
        assert logit.item() == pytest.approx(products @ (x * y) + differences @ np.abs(x - y) + 0.3, abs=1e-12)


def test_head_multiplies_each_vector_of_one_document_with_each_of_the_other() -> None:
    generator = np.random.default_rng(2)
    products, differences = generator.standard_normal((2, 2, 8)), generator.standard_normal((2, 8))
    head = LexicalHead(CONFIG.model_copy(update={"opening": True})).double()
    head.fill(products[..., :5], differences[..., :5], np.array([0.3]))
    a, b = generator.standard_normal((2, 6, 2, 8))
    found = head(*(torch.from_numpy(x.reshape(6, 16)) for x in (a, b))).detach().numpy()
    for x, y, logit in zip(a, b, found, strict=True):
        x, y = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (x, y))
        value = sum(products[i, j, :5] @ (x[i] * y[j])[:5] for i in range(2) for j in range(2))
        value += sum(differences[i, :5] @ np.abs(x[i] - y[i])[:5] for i in range(2))
        assert logit.item() == pytest.approx(value + 0.3, abs=1e-12)


def test_head_takes_zero_vectors_and_fewer_weights_than_dimensions() -> None:
    head = LexicalHead(CONFIG)
    head.fill(np.ones((1, 1, 3)), np.ones((1, 3)), np.array([-1.0]))
    assert head(torch.zeros(2, 8), torch.zeros(2, 8)).tolist() == [[-1.0], [-1.0]]
